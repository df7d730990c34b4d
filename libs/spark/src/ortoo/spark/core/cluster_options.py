"""The options for the connection to a cluster, the same for reads and writes.

Processes that only parse options import this module. It therefore imports no gRPC.
"""

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ortoo.common.cluster.addresses import is_address, proxy_variable
from ortoo.common.errors import Invalid
from ortoo.spark.core.options import OptionReader

if TYPE_CHECKING:
    from ortoo.common.grpc.tls import TlsClient

TLS_OPTIONS: Final = ("tlsCaFile", "tlsCertificateFile", "tlsKeyFile")
CLUSTER_OPTIONS: Final = (
    "address", "accessKey", "secretKey", "tls", *TLS_OPTIONS, "callTimeoutMs", "callAttempts", "unavailableTimeoutMs",
)  # fmt: skip
"""The names of these options."""
UNAVAILABLE_TIMEOUT_MS: Final = 120_000
_UNKNOWN: Final = {getattr(socket, name, socket.EAI_NONAME) for name in ("EAI_NONAME", "EAI_NODATA")}
"""The answers for a name that does not exist. Other failures, such as that of a DNS server, may end."""


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """Addresses, user and TLS files of a cluster. Each combination of values has its own connection."""

    addresses: tuple[str, ...]
    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    tls: "TlsClient | None" = None
    """The files have the same paths on the driver and on every executor."""
    call_timeout_ms: int = 10_000
    call_attempts: int = 0
    """Attempts of a call; 0 = attempts for `unavailable_timeout_ms`."""
    unavailable_timeout_ms: int = UNAVAILABLE_TIMEOUT_MS
    """The longest wait for a snode or an enode that is down; long enough for a restart or an election."""

    @classmethod
    def of(cls, reader: OptionReader) -> "ClusterOptions":
        """Parse the options.

        Errors: Invalid for a missing or malformed address, or if only one of `accessKey` and `secretKey` is given.
        """
        addresses = reader.names("address") or tuple(os.environ.get("ORTOO_ADDRESS", "").replace(",", " ").split())
        if not addresses:
            raise Invalid('missing address; expected .option("address", "host:8081") or ORTOO_ADDRESS', field="address")
        for address in addresses:
            if not is_address(address):
                raise Invalid(f"{address!r} is not host:port, such as localhost:8081", field="address")
        if len(incomplete := reader.given("accessKey", "secretKey")) == 1:
            raise Invalid("expected both accessKey and secretKey, or neither", field=incomplete[0])
        files = [reader.text(name) for name in TLS_OPTIONS]
        speaks_tls = reader.flag("tls", any(files))
        for name in TLS_OPTIONS:
            reader.require(name, speaks_tls, "tls=true")
        tls = None
        if speaks_tls:
            from ortoo.common.grpc.tls import SYSTEM, TlsClient

            tls = TlsClient(files[0] or SYSTEM, *files[1:])
        reader.at_most_one("callAttempts", "unavailableTimeoutMs")
        attempts = reader.number("callAttempts", low=1) if reader.given("callAttempts") else 0
        return cls(
            addresses, reader.text("accessKey"), reader.text("secretKey"),
            tls, reader.duration_ms("callTimeoutMs", 10_000), attempts,
            0 if attempts else reader.duration_ms("unavailableTimeoutMs", UNAVAILABLE_TIMEOUT_MS),
        )  # fmt: skip


def check_names(cluster: ClusterOptions, resolve: Callable[..., Any] = socket.getaddrinfo) -> None:
    """Refuse addresses of which none has a name that exists, as Kafka's client does. Errors: Invalid.

    Only the start of a new query calls this. Later the names exist, and may be missing during a restart.
    """
    if all(_is_unknown(address, resolve) for address in cluster.addresses):
        names = " and ".join(dict.fromkeys(address.rpartition(":")[0] for address in cluster.addresses))
        raise Invalid(f"the name {names} does not exist; check the spelling, or the DNS of the driver", field="address")


def _is_unknown(address: str, resolve: Callable[..., Any]) -> bool:
    if proxy_variable(address, os.environ):  # the proxy resolves the name
        return False
    host, _, port = address.rpartition(":")
    try:
        resolve(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        return error.errno in _UNKNOWN
    except (OSError, UnicodeError):
        return False
    return False
