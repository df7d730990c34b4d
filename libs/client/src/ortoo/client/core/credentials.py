"""Who a client is, for clusters with access control, and how it speaks TLS."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from ortoo.common.errors import Invalid
from ortoo.common.grpc.tls import TlsClient

ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE = "ORTOO_ACCESS_KEY", "ORTOO_SECRET_KEY"
TLS_VARIABLES = ("ORTOO_TLS_CA_FILE", "ORTOO_TLS_CERTIFICATE_FILE", "ORTOO_TLS_KEY_FILE")


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who calls."""

    access_key: str
    secret_key: str = field(repr=False)

    def __post_init__(self) -> None:
        if not self.access_key or not self.secret_key:
            raise Invalid("give both the access key and its secret, or neither", field="access_key")


def credentials_from(access_key: str, secret_key: str) -> Credentials | None:
    """Those that are given, else those of the environment, else none. Errors: Invalid for one half only."""
    if not access_key and not secret_key:
        access_key, secret_key = os.environ.get(ACCESS_KEY_VARIABLE, ""), os.environ.get(SECRET_KEY_VARIABLE, "")
    return Credentials(access_key, secret_key) if access_key or secret_key else None


def tls_from(
    ca_file: str, certificate_file: str, key_file: str, environ: Mapping[str, str] = os.environ
) -> TlsClient | None:
    """By the files that are given, else those of the environment, else none. Errors: Invalid for a part only."""
    files = [ca_file, certificate_file, key_file]
    if not any(files):
        files = [environ.get(name, "") for name in TLS_VARIABLES]
    return TlsClient(*files) if any(files) else None
