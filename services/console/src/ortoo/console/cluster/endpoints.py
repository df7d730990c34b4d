"""The clusters of a console: the one of its settings, or one for each profile of the `ortoo` command."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

from ortoo.client.core.credentials import TLS_VARIABLES, addresses_from, read_profile
from ortoo.common.errors import Invalid, NotFound
from ortoo.common.grpc.tls import TlsClient
from ortoo.console.settings import ConsoleSettings


@dataclass(frozen=True, slots=True)
class ClusterEndpoint:
    """A cluster and the way to its snodes."""

    name: str
    """The name of its profile; empty = the only cluster, of the settings."""
    addresses: tuple[str, ...]
    tls_files: tuple[str, str, str]
    """The roots, the certificate and its key. Without roots, calls are not encrypted."""

    @property
    def root(self) -> str:
        """The beginning of the paths of its pages; empty for the only cluster."""
        return f"/clusters/{quote(self.name, safe='')}" if self.name else ""

    @property
    def log_fields(self) -> dict[str, str]:
        """The fields that name it in log lines."""
        return {"cluster": self.name} if self.name else {}

    @property
    def command_options(self) -> tuple[str, ...]:
        """The options with which the `ortoo` command calls it."""
        return ("--profile", self.name) if self.name else ()

    def tls(self) -> TlsClient | None:
        """TLS for calls to its snodes; None = plaintext."""
        return TlsClient(*self.tls_files) if any(self.tls_files) else None


def cluster_endpoints(
    settings: ConsoleSettings, environ: Mapping[str, str] = os.environ
) -> tuple[ClusterEndpoint, ...]:
    """The clusters, in the order of the setting `profiles`. Errors: Invalid for a profile that cannot be used."""
    if not settings.profiles:
        files = (settings.tls_ca_file, settings.tls_certificate_file, settings.tls_key_file)
        return (ClusterEndpoint("", tuple(settings.snode_addresses), files),)
    return tuple(_endpoint(name, environ) for name in settings.profiles)


def _endpoint(name: str, environ: Mapping[str, str]) -> ClusterEndpoint:
    """The cluster of a profile. Its user is ignored: each user of the console signs in."""
    try:
        values = read_profile(name, environ)
    except (Invalid, NotFound) as error:
        raise Invalid(f"{error.message}; `ortoo profile save` writes one", field="profiles") from None
    ca_file, certificate_file, key_file = (values.get(one.removeprefix("ORTOO_").lower(), "") for one in TLS_VARIABLES)
    addresses = addresses_from(values.get("address", ""), {})
    return ClusterEndpoint(name, tuple(addresses), (ca_file, certificate_file, key_file))
