"""The options for the connection to a cluster, the same for reads and writes.

Processes that only parse options import this module. It therefore imports no gRPC.
"""

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ortoo.common.cluster.addresses import is_address
from ortoo.common.errors import Invalid
from ortoo.spark.core.options import OptionReader

if TYPE_CHECKING:
    from ortoo.common.grpc.tls import TlsClient

TLS_OPTIONS: Final = ("tlsCaFile", "tlsCertificateFile", "tlsKeyFile")
CLUSTER_OPTIONS: Final = ("address", "accessKey", "secretKey", "tls", *TLS_OPTIONS, "callTimeoutMs", "callAttempts")
"""The names of these options."""


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """Addresses, user and TLS files of a cluster. Each combination of values has its own connection."""

    addresses: tuple[str, ...]
    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    tls: "TlsClient | None" = None
    """The files have the same paths on the driver and on every executor."""
    call_timeout_ms: int = 10_000
    call_attempts: int = 5

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
        return cls(
            addresses, reader.text("accessKey"), reader.text("secretKey"),
            tls, reader.duration_ms("callTimeoutMs", 10_000), reader.number("callAttempts", 5, low=1),
        )  # fmt: skip
