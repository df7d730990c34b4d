"""The settings of the console, from a file, the environment (`ORTOO_CONSOLE_...`) and the command line."""

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from ortoo.common.cluster.address_server import is_url
from ortoo.common.cluster.addresses import check_address, is_address, is_loopback
from ortoo.common.cluster.names import check_process_name
from ortoo.common.errors import Invalid
from ortoo.common.process import settings as reading
from ortoo.common.process.masked_url import mask_url
from ortoo.common.process.settings import LoadedSettings, NumberRange, check_ranges

IMPORTANT = ("name", "listen_address", "snode_address", "profiles", "read_only")
CLUSTER = "{cluster}"
"""Stands for the name of a profile in the settings of Prometheus."""
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class ConsoleSettings:
    """The settings of one console."""

    ENVIRON_PREFIX: ClassVar[str] = "ORTOO_CONSOLE_"
    LIVE: ClassVar[tuple[str, ...]] = ()
    RELOADED: ClassVar[tuple[str, ...]] = ()
    HIDDEN: ClassVar[Mapping[str, str]] = {}

    name: str = "console-0"
    """The console's name in logs."""
    listen_address: str = "127.0.0.1:8088"
    """host:port to serve browsers on; port 0 takes any free port."""
    snode_address: str = "127.0.0.1:8081"
    """host:port of each snode that the console may call, separated by `;`."""
    profiles: tuple[str, ...] = ()
    """The profiles of the `ortoo` command whose clusters the console shows, the first one first. Their addresses and
    TLS files replace snode_address and tls_*, and their users are ignored. Empty = the cluster of snode_address."""
    tls_ca_file: str = ""
    """The roots of the snodes' certificates, PEM, or `system`. Empty = calls to snodes are not encrypted."""
    tls_certificate_file: str = ""
    """The console's certificate for calls to snodes that require one, PEM."""
    tls_key_file: str = ""
    """The private key of the certificate in tls_certificate_file, PEM."""
    https_certificate_file: str = ""
    """The certificate that the console shows to browsers, PEM. Empty = the console serves plain HTTP."""
    https_key_file: str = ""
    """The private key of the certificate in https_certificate_file, PEM."""
    allowed_hosts: tuple[str, ...] = ()
    """The host names, without port, by which browsers may reach the console. Empty = at a loopback address only
    localhost, 127.0.0.1 and [::1], otherwise every name."""
    read_only: bool = False
    """Whether every action is refused. Users can then only look, whatever their permissions are."""
    bodies_hidden: bool = False
    """Whether pages leave out bodies, keys, tags and properties of messages."""
    bodies_masked: bool = False
    """Whether pages leave out bodies, keys, tags and properties until a user requests those of one message. Each such
    request is logged."""
    sessions_max: Annotated[int, NumberRange(1, 100_000)] = 1_000
    """Maximum number of browser sessions in each cluster. Above it the session that was unused longest ends."""
    session_idle_s: Annotated[float, NumberRange(1, 604_800)] = 28_800.0
    """Time without a request after which a session ends."""
    session_lifetime_s: Annotated[float, NumberRange(1, 2_592_000)] = 86_400.0
    """Time after the sign-in at which a session ends, also while it is used."""
    trusted_proxies: tuple[str, ...] = ()
    """The addresses or networks of proxies before the console. Their header X-Forwarded-For names the browsers, for the
    limit on attempts to sign in."""
    live_pages_max: Annotated[int, NumberRange(1, 10_000)] = 100
    """Maximum number of pages that follow a topic at once."""
    prometheus_url: str = ""
    """The URL of a Prometheus server that scrapes the cluster, for lags and rates of more than an hour. `{cluster}` in
    it stands for the name of the cluster's profile. Empty = only the last hour, which the cluster keeps."""
    prometheus_labels: tuple[str, ...] = ()
    """The labels NAME=VALUE that the cluster's series have in Prometheus, such as ortoo_cluster=shop, if it scrapes
    other clusters too. `{cluster}` in a value stands for the name of the cluster's profile."""
    metrics_address: str = ""
    """host:port where Prometheus scrapes (/metrics, /healthz, /readyz). Empty = no such port."""
    log_level: str = "info"
    """The lowest level that is logged: debug, info, warning or error."""

    @property
    def snode_addresses(self) -> list[str]:
        """The addresses of the snodes."""
        return [part.strip() for part in self.snode_address.split(";") if part.strip()]

    @property
    def is_local(self) -> bool:
        """Whether only browsers of this machine reach the console."""
        return is_loopback(self.listen_address)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The host names that requests may use; empty = all."""
        return self.allowed_hosts or (LOOPBACK_NAMES if self.is_local else ())

    @property
    def proxy_networks(self) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
        """The networks of trusted proxies. Errors: Invalid."""
        try:
            return tuple(ipaddress.ip_network(one) for one in self.trusted_proxies)
        except ValueError as error:
            raise Invalid(
                f"{error}; expected addresses such as 10.1.2.3 or 10.1.0.0/16", field="trusted_proxies"
            ) from None

    def prometheus_url_of(self, cluster: str) -> str:
        """The URL of Prometheus for the cluster of a profile."""
        return self.prometheus_url.replace(CLUSTER, cluster)

    def prometheus_labels_of(self, cluster: str) -> dict[str, str]:
        """The labels of the series of the cluster of a profile. Errors: Invalid."""
        found = {}
        for pair in self.prometheus_labels:
            name, equals, value = pair.partition("=")
            if not equals or not re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", name.strip()):
                raise Invalid(f"{pair!r}; expected NAME=VALUE, such as ortoo_cluster=shop", field="prometheus_labels")
            found[name.strip()] = value.strip().replace(CLUSTER, cluster)
        return found

    def check(self) -> None:
        """Refuse settings that cannot work. Errors: Invalid, naming the field."""
        check_ranges(self)
        check_process_name(self.name, "name")
        check_address(self.listen_address, "listen_address")
        if self.metrics_address:
            check_address(self.metrics_address, "metrics_address")
        if not self.snode_addresses or not all(is_address(one) for one in self.snode_addresses):
            raise Invalid(
                f"{self.snode_address!r}; expected host:port of snodes, separated by `;`", field="snode_address"
            )
        self._check_profiles()
        self._check_prometheus()
        if bool(self.https_certificate_file) != bool(self.https_key_file):
            missing = "https_key_file" if self.https_certificate_file else "https_certificate_file"
            raise Invalid("missing; HTTPS needs https_certificate_file and https_key_file", field=missing)
        if bool(self.tls_certificate_file) != bool(self.tls_key_file):
            missing = "tls_key_file" if self.tls_certificate_file else "tls_certificate_file"
            raise Invalid("missing; a certificate needs tls_certificate_file and tls_key_file", field=missing)
        if self.tls_certificate_file and not self.tls_ca_file:
            raise Invalid("missing; a certificate is used only in calls with TLS", field="tls_ca_file")
        _ = self.proxy_networks
        if self.log_level not in ("debug", "info", "warning", "error"):
            raise Invalid(f"{self.log_level!r}; expected debug, info, warning or error", field="log_level")

    def _check_profiles(self) -> None:
        for name in self.profiles:
            if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
                raise Invalid(f"{name!r}; expected letters of ASCII, digits, - and _", field="profiles")
        if len(set(self.profiles)) != len(self.profiles):
            raise Invalid("a profile is named twice; name each one once", field="profiles")
        if self.profiles and self.tls_ca_file:
            raise Invalid("not used with profiles; name the files in the profiles", field="tls_ca_file")

    def _check_prometheus(self) -> None:
        if self.prometheus_url and not is_url(self.prometheus_url):
            raise Invalid(
                f"{mask_url(self.prometheus_url)!r}; expected a URL such as http://prometheus:9090",
                field="prometheus_url",
            )
        _ = self.prometheus_labels_of("")
        texts = (self.prometheus_url, *self.prometheus_labels)
        if self.prometheus_url and len(self.profiles) > 1 and not any(CLUSTER in one for one in texts):
            raise Invalid(
                f"not known which series belong to which profile; use {CLUSTER} here or in prometheus_url",
                field="prometheus_labels",
            )


def load(
    environ: Mapping[str, str] = os.environ,
    *,
    file: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> LoadedSettings[ConsoleSettings]:
    """Read and check the settings. Errors: Invalid, naming the setting."""
    found = reading.load(
        ConsoleSettings,
        environ_prefix=ConsoleSettings.ENVIRON_PREFIX,
        environ=environ,
        file=file,
        overrides=overrides,
    )
    found.settings.check()
    return found
