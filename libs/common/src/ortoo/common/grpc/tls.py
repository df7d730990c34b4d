"""Both ends of TLS, by files: a server's second port, and what a client believes and shows."""

from dataclasses import dataclass
from pathlib import Path

import grpc

from ortoo.common.errors import Invalid

SYSTEM = "system"
"""In place of a file: the roots that come with gRPC."""


@dataclass(frozen=True, slots=True)
class TlsListener:
    """A second port of the same server, on which TLS is spoken."""

    address: str
    """host:port; port 0 takes any free one."""
    certificate_file: Path
    """The server's certificate and those between it and the root, PEM."""
    key_file: Path
    """The certificate's private key, PEM."""
    client_ca_file: str = ""
    """The roots of clients' certificates, PEM: every client must show one. Empty = none needs one."""

    def credentials(self) -> grpc.ServerCredentials:
        """Read the files. Errors: Invalid, naming the setting."""
        key = _read(self.key_file, "tls_key_file")
        certificate = _read(self.certificate_file, "tls_certificate_file")
        roots = _read(Path(self.client_ca_file), "tls_client_ca_file") if self.client_ca_file else None
        return grpc.ssl_server_credentials([(key, certificate)], roots, require_client_auth=roots is not None)


@dataclass(frozen=True, slots=True)
class TlsClient:
    """How a client speaks TLS."""

    ca_file: str
    """The roots of servers' certificates, PEM; `system` = those that come with gRPC."""
    certificate_file: str = ""
    """What the client shows, PEM; empty = nothing."""
    key_file: str = ""
    """The private key of that, PEM."""

    def __post_init__(self) -> None:
        if bool(self.certificate_file) != bool(self.key_file):
            raise Invalid("give both the certificate and its key, or neither", field="tls_certificate_file")
        if not self.ca_file:
            raise Invalid(f"give the roots of servers' certificates as well, or {SYSTEM!r}", field="tls_ca_file")

    def credentials(self) -> grpc.ChannelCredentials:
        """Read the files. Errors: Invalid, naming the setting."""
        roots = None if self.ca_file == SYSTEM else _read(Path(self.ca_file), "tls_ca_file")
        if not self.certificate_file:
            return grpc.ssl_channel_credentials(roots)
        key = _read(Path(self.key_file), "tls_key_file")
        return grpc.ssl_channel_credentials(roots, key, _read(Path(self.certificate_file), "tls_certificate_file"))


def _read(file: Path, field: str) -> bytes:
    try:
        text = file.read_bytes()
    except OSError as error:
        raise Invalid(f"{file} cannot be read: {error.strerror}; give a PEM file", field=field) from None
    if b"-----BEGIN " not in text:
        raise Invalid(f"{file} is no PEM file; it must hold a line like -----BEGIN ...-----", field=field)
    return text
