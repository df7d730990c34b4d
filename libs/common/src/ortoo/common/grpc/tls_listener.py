"""A second port of a server, on which TLS is spoken."""

from dataclasses import dataclass
from pathlib import Path

import grpc

from ortoo.common.errors import Invalid


@dataclass(frozen=True, slots=True)
class TlsListener:
    """A second port of the same server, on which TLS is spoken."""

    address: str
    """host:port; port 0 takes any free one."""
    certificate_file: Path
    """The server's certificate and those between it and the root, PEM."""
    key_file: Path
    """The certificate's private key, PEM."""

    def credentials(self) -> grpc.ServerCredentials:
        """Read the files. Errors: Invalid, naming the setting."""
        texts = []
        for field, file in (("tls_key_file", self.key_file), ("tls_certificate_file", self.certificate_file)):
            try:
                texts.append(file.read_bytes())
            except OSError as error:
                raise Invalid(f"{file} cannot be read: {error.strerror}; give a PEM file", field=field) from None
            if b"-----BEGIN " not in texts[-1]:
                raise Invalid(f"{file} is no PEM file; it must hold a line like -----BEGIN ...-----", field=field)
        return grpc.ssl_server_credentials([(texts[0], texts[1])])
