"""Streams between processes by mutual TLS, by grpc.aio and by h2, on servers of both transports."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from ortoo.common.cluster.role_names import CertificateNames
from ortoo.common.cluster.service_settings import ServiceSettings
from ortoo.common.errors.handshakes import HandshakeFailed
from ortoo.common.errors.status import rpc_errors
from ortoo.common.grpc.channels import Channels
from ortoo.common.grpc.cluster_token import cluster_channels
from ortoo.common.grpc.server import GrpcServer
from ortoo.common.grpc.tls import cluster_listener
from ortoo.common.grpc.transport import SocketTransport, using_transport
from tests.integration.certificates import FAULTS, HOST, NAME, Authority, Certificate, dated_certificates

pytestmark = pytest.mark.usefixtures("each_transport")

PATH = "/test.Streams/Echo"


@pytest.fixture(params=["grpc", "h2"])
def wire(request: pytest.FixtureRequest) -> str:
    """The implementation of the caller's streams."""
    name: str = request.param
    return name


async def echo(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
    """The names in the caller's certificate, then each request."""
    yield str(CertificateNames.of(context.auth_context())).encode()
    async for request in requests:
        yield request


def server_with(settings: ServiceSettings) -> GrpcServer:
    """A server of the echo on its cluster port, which has a plaintext port only without TLS."""

    def add(to: Any) -> None:
        handlers: dict[str, Any] = {"Echo": grpc.stream_stream_rpc_method_handler(echo)}
        to.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Streams", handlers),))

    listener = cluster_listener(settings)
    return GrpcServer("127.0.0.1:0" if listener is None else "", [("test.Streams", add)], cluster_tls=listener)


def settings_of(authority: Authority, certificate: Certificate, name: str = NAME) -> ServiceSettings:
    """The settings of a process with a certificate; callers expect `name`, or the host if it is empty."""
    settings: dict[str, Any] = {**authority.settings(certificate), "tls_cluster_name": name}
    return ServiceSettings(**settings)


@contextlib.contextmanager
def calling(channels: Channels, address: str) -> Any:
    """A new stream over `channels`, whose transport does not depend on the server's."""
    with using_transport(SocketTransport()):
        call: Any = channels.channel_to(address).stream_stream(PATH, bytes, bytes)()
    try:
        yield call
    finally:
        call.cancel()


async def test_messages_of_all_sizes_and_the_names_of_the_caller_arrive(wire: str, tmp_path: Path) -> None:
    """The called side sees the caller's certificate, as its guard does."""
    authority = await Authority.make(tmp_path / "authority")
    enode = settings_of(authority, await authority.sign("enode"))
    snode = settings_of(authority, await authority.sign("snode", NAME, f"snode.{NAME}", "spiffe://ortoo/snode"))
    sizes = [*range(100), 64 << 10, (64 << 10) + 1, 4 << 20, 0, 2 << 20, 1]
    async with (
        asyncio.timeout(60),
        server_with(enode) as server,
        cluster_channels(snode, None, wire=wire) as channels,
    ):
        with calling(channels, server.cluster_address) as call:
            assert await call.read() == f"{NAME}, snode.{NAME}, spiffe://ortoo/snode".encode()
            for at, size in enumerate(sizes):
                await call.write(bytes([at % 256]) * size)
                assert await call.read() == bytes([at % 256]) * size


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_failed_handshake_names_its_reason(fault: str, wire: str, tmp_path: Path) -> None:
    """The same error for each implementation, on each side."""
    authority, made = await dated_certificates(tmp_path)
    good = made["good"]
    side, kind = fault.split(" ", 1)
    damaged = ServiceSettings() if kind == "in plaintext" else settings_of(authority, made[kind], "")
    enode, snode = settings_of(authority, good, ""), settings_of(authority, good, "")
    if side == "server":
        enode = damaged
    else:
        snode = damaged
    async with (
        asyncio.timeout(60),
        server_with(enode) as server,
        cluster_channels(snode, None, wire=wire) as channels,
    ):
        address = f"{HOST}:{(server.cluster_address or server.address).rpartition(':')[2]}"
        with (
            calling(channels, address) as call,
            pytest.raises(HandshakeFailed) as failed,
            rpc_errors("the peer", is_internal=True),
        ):
            await call.wait_for_connection()
        assert failed.value.fault == FAULTS[fault]
        assert HOST not in failed.value.message


async def test_new_certificates_of_a_new_authority_are_used_without_a_restart(wire: str, tmp_path: Path) -> None:
    """By both sides; the open stream continues, and certificates of the former authority are refused."""
    authority = await Authority.make(tmp_path / "authority")
    enode = settings_of(authority, await authority.sign("enode"))
    snode = settings_of(authority, await authority.sign("snode"))
    former = await Authority.make(tmp_path / "former")
    for file in authority.folder.iterdir():
        (former.folder / file.name).write_bytes(file.read_bytes())
    stale = settings_of(former, Certificate(former.folder / "snode.pem", former.folder / "snode.key"))
    async with (
        asyncio.timeout(60),
        server_with(enode) as server,
        cluster_channels(snode, None, wire=wire) as channels,
        cluster_channels(stale, None, wire=wire) as stale_channels,
    ):
        with calling(channels, server.cluster_address) as first:
            assert await first.read()
            fresh = await Authority.make(tmp_path / "fresh")
            for role in ("enode", "snode"):
                made = await fresh.sign(role)
                for file in (made.certificate_file, made.key_file):
                    (authority.folder / file.name).write_bytes(file.read_bytes())
            authority.ca_file.write_bytes(fresh.ca_file.read_bytes())
            with using_transport(SocketTransport()):
                await channels.renew()
            with calling(channels, server.cluster_address) as second:
                assert await second.read()
            await first.write(b"still here")
            assert await first.read() == b"still here"
            with (
                calling(stale_channels, server.cluster_address) as refused,
                pytest.raises(HandshakeFailed),
                rpc_errors("the peer"),
            ):
                await refused.wait_for_connection()


def client_context(authority: Authority, shown: Certificate) -> ssl.SSLContext:
    """The context of a client of OpenSSL for HTTP/2."""
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    context.load_cert_chain(shown.certificate_file, shown.key_file)
    context.set_alpn_protocols(["h2"])
    return context


async def connected(address: str, context: ssl.SSLContext) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection of OpenSSL to the port. Errors: OSError."""
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port), ssl=context, server_hostname=NAME)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_refused_client_gets_an_alert_with_the_reason(
    version: ssl.TLSVersion, each_transport: str, tmp_path: Path
) -> None:
    """On h2. Without it the client's operator would only see a broken connection, as on grpc.aio."""
    authority, other = await Authority.make(tmp_path / "authority"), await Authority.make(tmp_path / "other")
    context = client_context(authority, await other.sign("stranger"))
    context.maximum_version = version
    async with asyncio.timeout(60), server_with(settings_of(authority, await authority.sign("enode"))) as server:
        with pytest.raises(
            (ssl.SSLError, ConnectionResetError)
        ) as refused:  # with TLS 1.3 the client's handshake succeeds first
            reader, writer = await connected(server.cluster_address, context)
            try:
                while await reader.read(1 << 16):
                    pass
                raise ConnectionResetError
            finally:
                writer.transport.abort()
        if each_transport == "h2":
            assert isinstance(refused.value, ssl.SSLError)
            assert "ALERT" in refused.value.reason


async def test_a_client_that_does_not_offer_http2_is_refused(tmp_path: Path) -> None:
    """HTTP/2 over TLS requires ALPN."""
    authority = await Authority.make(tmp_path / "authority")
    context = client_context(authority, await authority.sign("snode"))
    async with asyncio.timeout(60), server_with(settings_of(authority, await authority.sign("enode"))) as server:
        for protocols in ((), ("http/1.1",)):
            context.set_alpn_protocols(protocols)
            with contextlib.suppress(OSError):
                reader, writer = await connected(server.cluster_address, context)
                assert await reader.read() == b""
                writer.transport.abort()
        context.set_alpn_protocols(["http/1.1", "h2"])
        reader, writer = await connected(server.cluster_address, context)
        assert await reader.read(1)
        writer.transport.abort()
