"""The settings that every role has; a role's own class adds the rest."""

import enum
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from ortoo.common.cluster.addresses import check_address, check_receiver
from ortoo.common.cluster.names import check_process_name
from ortoo.common.cluster.role_names import Role, RoleNames, setting_of
from ortoo.common.errors import Invalid
from ortoo.common.process.settings import LoadedSettings, NumberRange, check_ranges, load

TLS_CLUSTER = tuple(f"tls_cluster_{end}" for end in ("listen_address", "certificate_file", "key_file", "ca_file"))


class ServerTransport(enum.StrEnum):
    """The implementation of gRPC's wire in a server."""

    H2 = "h2"
    """libnghttp2, on the event loop of the process."""
    GRPC = "grpc"
    """grpc.aio."""


@dataclass(frozen=True)
class ServiceSettings:
    """The settings of every process. Each role has its own defaults for `name` and `listen_address`."""

    ENVIRON_PREFIX: ClassVar[str]
    """Prefix of its environment variables, such as ORTOO_ENODE_."""
    LIVE: ClassVar[tuple[str, ...]] = ("log_level",)
    """The settings that operators can change in a running process, by RPC or in the file with SIGHUP."""
    RELOADED: ClassVar[tuple[str, ...]] = ()
    """The settings that change in a running process only in the file, with SIGHUP. An admin's RPC cannot change them.

    Every setting that names a file of keys, or peers that get this process's tokens, is in this list or fixed.
    """
    HIDDEN: ClassVar[Mapping[str, str]] = {}
    """Settings that cannot be given, and the settings from which their values are taken."""
    REMOVED: ClassVar[frozenset[str]] = frozenset({"one_core_if_enough"})
    """Settings without effect, which are still accepted."""

    name: str = ""
    """The name of the process in the cluster."""
    listen_address: str = ""
    """host:port to serve on; port 0 takes any free port."""
    cluster_token_file: str = ""
    """A file with a token that all processes of the cluster share. Enodes and name servers then refuse other callers.
    Empty = they answer every caller that reaches their ports."""
    tls_cluster_listen_address: str = ""
    """host:port for calls of the other processes of the cluster, by mutual TLS. Enodes and name servers then answer
    only health checks and reflection on listen_address. Empty = processes call each other in plaintext."""
    tls_cluster_certificate_file: str = ""
    """The certificate of this process as caller and as server, PEM. This file, the key and the roots are read again
    when they change."""
    tls_cluster_key_file: str = ""
    """The private key of the certificate of this process, PEM."""
    tls_cluster_ca_file: str = ""
    """The roots of the certificates of all processes of the cluster, PEM."""
    tls_cluster_name: str = ""
    """The name that the certificates of all processes share, such as ortoo.cluster. Empty = each certificate is for the
    host name of its process."""
    drain_delay_s: Annotated[float, NumberRange(0, 600)] = 0.0
    """Time for which a stopping process still serves everything after it is no longer ready, so that load balancers
    notice."""
    stop_grace_s: Annotated[float, NumberRange(0, 600)] = 5.0
    """Time in which running calls may end after a stop was requested."""
    memory_budget_bytes: Annotated[int, NumberRange(0, 1 << 44)] = 0
    """Memory for the calls of all clients: unread answers, and requests in progress. Above it the calls of slow readers
    are ended and other clients are throttled. The default 0 means half of the memory of the container or the machine,
    less the memory reserved for caches."""
    connections_max: Annotated[int, NumberRange(0, 1 << 20)] = 0
    """Maximum number of connections of each port. Further connections are closed at once. 0 = one for each 64 KiB of
    memory_budget_bytes. A port never takes more than its part of the process's file descriptors."""
    connections_per_address_max: Annotated[int, NumberRange(0, 1 << 20)] = 0
    """Maximum number of connections to a port from one address. Above it the process closes the connections from that
    address that have been silent longest. 0 = half of the connections that the port takes. Raise it where all clients
    come through one proxy or address translation."""
    transport: ServerTransport = ServerTransport.H2
    """The implementation of gRPC's wire on the process's ports, and in a snode of its streams to enodes: `h2`, or
    `grpc`, the reference (docs/operations/transport.md)."""
    metrics_address: str = ""
    """host:port where Prometheus scrapes (/metrics, /healthz, /readyz). Empty = no such port."""
    metrics_endpoint: str = ""
    """http://host:port of an OTLP/gRPC receiver of metrics. Empty = none."""
    metrics_interval_s: Annotated[float, NumberRange(0.05, 3_600)] = 60.0
    """Interval between exports of metrics to `metrics_endpoint`."""
    log_level: str = "info"
    """The lowest level that is logged: debug, info, warning or error."""

    @property
    def closes_inner_ports(self) -> bool:
        """Whether the settings of this process require a token or a certificate from callers of inner ports."""
        return bool(self.cluster_token_file or self.tls_cluster_listen_address)

    @classmethod
    def load(
        cls,
        environ: Mapping[str, str] = os.environ,
        *,
        file: Path | None = None,
        overrides: Mapping[str, Any] | None = None,
    ) -> LoadedSettings[Self]:
        """Read and check the settings. Errors: Invalid, naming the setting."""
        found = load(cls, environ_prefix=cls.ENVIRON_PREFIX, environ=environ, file=file, overrides=overrides)
        check_ranges(found.settings)  # also the ranges of settings without effect in this role
        completed = cls.completed(found)
        completed.settings.check()
        return completed

    @classmethod
    def completed(cls, loaded: LoadedSettings[Self]) -> LoadedSettings[Self]:
        """The settings with values that a role derives from other settings. Errors: Invalid."""
        return loaded

    def check(self) -> None:
        """Refuse settings that cannot work. Errors: Invalid, naming the field."""
        check_process_name(self.name, "name")
        check_address(self.listen_address, "listen_address")
        if self.metrics_address:
            check_address(self.metrics_address, "metrics_address")
        check_receiver(self.metrics_endpoint, "metrics_endpoint")
        check_ranges(self)
        if self.tls_cluster_listen_address:
            check_address(self.tls_cluster_listen_address, "tls_cluster_listen_address")
        given = [name for name in TLS_CLUSTER if getattr(self, name)]
        if given and len(given) < len(TLS_CLUSTER):
            missing = next(name for name in TLS_CLUSTER if name not in given)
            raise Invalid(
                f"missing although {given[0]} is set; mutual TLS needs all of {', '.join(TLS_CLUSTER)}", field=missing
            )
        if self.log_level not in ("debug", "info", "warning", "error"):
            raise Invalid(f"{self.log_level!r}; expected debug, info, warning or error", field="log_level")


@dataclass(frozen=True)
class InnerSettings(ServiceSettings):
    """The settings of a process that other processes of the cluster call: a name server or an enode."""

    role_names: RoleNames = RoleNames()
    """The certificate names of each role, for callers that use mutual TLS."""

    def check(self) -> None:
        """Refuse settings that cannot work. Errors: Invalid, naming the field."""
        super().check()
        self.role_names.check()
        if not self.tls_cluster_listen_address:
            for role in Role:
                if self.role_names.names_of(role):
                    raise Invalid(
                        f"certificate names need mutual TLS; set all of {', '.join(TLS_CLUSTER)}, or remove the names",
                        field=setting_of(role),
                    )
