"""Examines an address: DNS name, port, protocol, and role of the server. The answers are not trusted.

Each step has a short limit and independent steps run concurrently, so that the total stays below two seconds. Other
packages derive findings from the result.
"""

import asyncio
import contextlib
import dataclasses
import enum
import os
import socket
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ortoo.client.core.credentials import tls_from
from ortoo.common.cluster.addresses import is_address
from ortoo.common.errors.handshakes import HandshakeFault, handshake_fault
from ortoo.common.grpc.channels import Channels
from ortoo.common.grpc.tls import TlsClient

RESOLVE_TIMEOUT_S: Final = 0.3
CONNECT_TIMEOUT_S: Final = 0.4
PROTOCOL_TIMEOUT_S: Final = 0.4
CHECK_TIMEOUT_S: Final = RESOLVE_TIMEOUT_S + CONNECT_TIMEOUT_S + PROTOCOL_TIMEOUT_S
"""The longest time for one address; the protocol step may use what resolving and connecting leave."""
# The first bytes of every HTTP/2 connection: the preface, and an empty SETTINGS frame.
HELLO: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
SERVICES: Final = {
    "snode": "ortoo.v1.AdminService",
    "name server": "ortoo.v1.NameService",
    "enode": "ortoo.v1.EnodeService",
}
PROXY_VARIABLES: Final = ("grpc_proxy", "https_proxy", "http_proxy")


class SpokenProtocol(enum.Enum):
    """The protocol that the server at an address speaks."""

    NOT_ASKED = "not asked"
    HTTP2 = "HTTP/2"
    HTTP1 = "HTTP/1"
    TLS = "TLS"
    OTHER = "another protocol"
    NOTHING = "nothing"
    """The connection is accepted, but the server sends nothing."""
    CLOSES = "hangs up"


@dataclass(frozen=True, slots=True)
class AddressCheck:
    """The result of checking one address. A field is set only if the checks for the fields before it succeeded."""

    address: str
    well_formed: bool = False
    resolves: bool = False
    refused: bool = False
    """The host answers, but no process listens on the port."""
    connects: bool = False
    protocol: SpokenProtocol = SpokenProtocol.NOT_ASKED
    role: str = ""
    """snode, name server or enode; empty for another gRPC server."""
    serving: bool = False
    """Whether its health service reports that it serves requests."""
    handshake_fault: HandshakeFault | None = None
    """Why the TLS handshake with the client's files failed; None if it succeeded or the client has no files."""
    proxy_variable: str = ""
    """The environment variable that routes gRPC to this address through a proxy."""


async def check_address(
    address: str, environ: Mapping[str, str] = os.environ, *, timeout_factor: float = 1.0
) -> AddressCheck:
    """Examine one address. Never raises, and takes at most `timeout_factor` times CHECK_TIMEOUT_S."""
    deadline_s = asyncio.get_running_loop().time() + CHECK_TIMEOUT_S * timeout_factor
    checked = await check_reachable(address, environ, timeout_factor=timeout_factor)
    if not checked.connects:
        return checked
    host, port = _host_and_port(address)
    tls = tls_from("", "", "", environ)
    # Concurrently: the steps share one deadline.
    protocol, is_tls, (role, serving, answers, fault) = await asyncio.gather(
        _detect_protocol(host, port, deadline_s),
        _speaks_tls(host, port, deadline_s),
        _detect_role(address, deadline_s, tls),
    )
    if tls is not None and fault is not None:
        return dataclasses.replace(checked, protocol=SpokenProtocol.TLS if is_tls else protocol, handshake_fault=fault)
    if is_tls and tls is not None and answers:
        protocol = SpokenProtocol.HTTP2
    if is_tls and protocol in (SpokenProtocol.CLOSES, SpokenProtocol.NOTHING):
        protocol = SpokenProtocol.TLS  # some TLS servers close plaintext connections without an alert
    if protocol is not SpokenProtocol.HTTP2:
        role, serving = "", False
    elif not answers:
        protocol = SpokenProtocol.NOTHING  # it sent its first frame and then no answer
    return dataclasses.replace(checked, protocol=protocol, role=role, serving=serving)


async def check_reachable(
    address: str, environ: Mapping[str, str] = os.environ, *, timeout_factor: float = 1.0
) -> AddressCheck:
    """Examine only the DNS name and the port of an address; `timeout_factor` multiplies the usual time limits."""
    if not is_address(address) or "/" in address:
        return AddressCheck(address)
    host, port = _host_and_port(address)
    checked = AddressCheck(
        address, well_formed=True, proxy_variable=_proxy_variable(address.rpartition(":")[0], environ)
    )
    try:
        async with asyncio.timeout(RESOLVE_TIMEOUT_S * timeout_factor):
            await _resolve(host, port)
    except (OSError, TimeoutError, UnicodeError):
        return checked
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S * timeout_factor):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError) as error:
        return dataclasses.replace(checked, resolves=True, refused=isinstance(error, ConnectionRefusedError))
    writer.close()
    return dataclasses.replace(checked, resolves=True, connects=True)


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


async def _resolve(host: str, port: int) -> None:
    """Resolve a name in a separate thread, so that a resolver that hangs does not delay the examination.

    An IP address needs no resolver. On a busy machine the thread could be late, and the host would seem unknown.
    """
    with contextlib.suppress(OSError):
        socket.getaddrinfo(host, port, flags=socket.AI_NUMERICHOST)
        return
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[None] = loop.create_future()

    def set_answer(error: Exception | None) -> None:
        if not answer.done():
            answer.set_result(None) if error is None else answer.set_exception(error)

    def ask() -> None:
        error: Exception | None = None
        try:
            socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as caught:
            error = caught
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(set_answer, error)

    threading.Thread(target=ask, name="resolve", daemon=True).start()
    await answer


async def _detect_protocol(host: str, port: int, deadline_s: float) -> SpokenProtocol:
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout_at(deadline_s):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(HELLO)
            response = await reader.read(64)
    except TimeoutError:
        return SpokenProtocol.NOTHING
    except OSError:
        return SpokenProtocol.CLOSES
    finally:
        if writer is not None:
            writer.close()
    if not response:
        return SpokenProtocol.CLOSES
    if response.startswith(b"HTTP/"):
        return SpokenProtocol.HTTP1
    if response[0] in (0x15, 0x16) and response[1:2] == b"\x03":
        return SpokenProtocol.TLS
    return SpokenProtocol.HTTP2 if len(response) >= 9 and response[3] == 4 else SpokenProtocol.OTHER


async def _speaks_tls(host: str, port: int, deadline_s: float) -> bool:
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout_at(deadline_s):
            _, writer = await asyncio.open_connection(host, port, ssl=trusting)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


async def _detect_role(
    address: str, deadline_s: float, tls: TlsClient | None
) -> tuple[str, bool, bool, HandshakeFault | None]:
    """The role of the server at `address`, whether it is serving, whether it answers at all, and a failed handshake."""
    timeout_s = max(0.0, deadline_s - asyncio.get_running_loop().time())
    async with Channels(tls=tls.credentials() if tls is not None else None) as channels:
        health = health_pb2_grpc.HealthStub(channels.channel_to(address))

        async def ask(role: str, service: str) -> tuple[str, bool, bool, HandshakeFault | None]:
            try:
                answer = await health.Check(health_pb2.HealthCheckRequest(service=service), timeout=timeout_s)
            except grpc.aio.AioRpcError as error:
                answers = error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED
                return "", False, answers, handshake_fault(error.details() or "")
            return role, answer.status == health_pb2.HealthCheckResponse.SERVING, True, None

        found = await asyncio.gather(*(ask(role, service) for role, service in SERVICES.items()))
    fault = next((one[3] for one in found if one[3] is not None), None)
    return next((one for one in found if one[0]), ("", False, any(one[2] for one in found), fault))


def _proxy_variable(host: str, environ: Mapping[str, str]) -> str:
    """The proxy variable that gRPC obeys for this host, found in gRPC's own order."""
    excepted = environ.get("no_grpc_proxy", environ.get("no_proxy", ""))
    if any(part and host.endswith(part.strip().lstrip("*")) for part in excepted.split(",")):
        return ""
    return next((name for name in PROXY_VARIABLES if environ.get(name)), "")
