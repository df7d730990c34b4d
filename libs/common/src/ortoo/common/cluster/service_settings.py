"""The settings that every role has; a role's own class adds the rest."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from ortoo.common.cluster.addresses import check_address, check_receiver
from ortoo.common.cluster.names import check_process_name
from ortoo.common.cluster.role_names import Role, RoleNames, setting_of
from ortoo.common.errors import Invalid
from ortoo.common.process.settings import Loaded, Range, check_ranges, load

TLS_CLUSTER = tuple(f"tls_cluster_{end}" for end in ("listen_address", "certificate_file", "key_file", "ca_file"))


@dataclass(frozen=True)
class ServiceSettings:
    """What may be chosen about any process; a role says its own defaults of the first two."""

    ENVIRON_PREFIX: ClassVar[str]
    """What its variables of the environment begin with, such as ORTOO_ENODE_."""
    LIVE: ClassVar[tuple[str, ...]] = ("log_level",)
    """What changes in a running process."""
    HIDDEN: ClassVar[Mapping[str, str]] = {}
    """Settings that nobody gives, and those that they are taken from."""

    name: str = ""
    """Its name in the cluster."""
    listen_address: str = ""
    """host:port to serve on; port 0 takes any free one."""
    cluster_token_file: str = ""
    """A file with a token that all processes of the cluster have: enodes and name servers then answer nobody else.
    Empty = they answer whoever reaches their ports."""
    tls_cluster_listen_address: str = ""
    """host:port where the other processes of the cluster are answered by mutual TLS, and nobody else. Enodes and name
    servers then tell only their health on listen_address. Empty = processes call each other in the clear."""
    tls_cluster_certificate_file: str = ""
    """What this process shows to the others when it calls them and when they call it, PEM; read again when it
    changes, as the next two are."""
    tls_cluster_key_file: str = ""
    """The private key of that, PEM."""
    tls_cluster_ca_file: str = ""
    """The roots of the certificates of all processes of the cluster, PEM."""
    tls_cluster_name: str = ""
    """What the certificates of all processes are for, such as ortoo.cluster. Empty = each is for the host by which
    others call it."""
    drain_delay_s: Annotated[float, Range(0, 600)] = 0.0
    """How long everything is served after readiness went red at a stop, so that load balancers hear of it."""
    stop_grace_s: Annotated[float, Range(0, 600)] = 5.0
    """How long running calls may go on after a stop was asked for."""
    memory_budget_bytes: Annotated[int, Range(0, 1 << 44)] = 0
    """How much the process may hold for all who call it: what they have not read, and what they sent that is on its
    way. Beyond it those who do not read are ended and others told to slow down. 0 = half of what the container or the
    machine has, less what is set aside for caches."""
    connections_max: Annotated[int, Range(0, 1 << 20)] = 0
    """How many connections each port takes; further ones are closed at once. 0 = one for each 64 KiB that
    memory_budget_bytes allows. A port never takes more than its part of the process's file descriptors."""
    connections_per_address_max: Annotated[int, Range(0, 1 << 20)] = 0
    """How many connections to a port may come from one address. Beyond it the process ends those whose peers have been
    silent longest. 0 = half of connections_max. Raise it where all clients come through one proxy or address
    translation."""
    one_core_if_enough: bool = True
    """Whether the process keeps all its threads on one core while one is enough (CPU affinity, pinning): calls then
    cost less and come back sooner. It chooses an idle one, and uses all that it may as soon as it needs more."""
    metrics_address: str = ""
    """host:port where Prometheus scrapes (/metrics, /healthz, /readyz). Empty = nowhere."""
    metrics_endpoint: str = ""
    """http://host:port of an OTLP/gRPC receiver that metrics are sent to. Empty = none."""
    metrics_interval_s: Annotated[float, Range(0.05, 3_600)] = 60.0
    """How often they are sent there."""
    log_level: str = "info"
    """debug, info, warning or error."""

    @property
    def closes_inner_ports(self) -> bool:
        """Whether callers of inner ports need a token or a certificate, by the settings of this process."""
        return bool(self.cluster_token_file or self.tls_cluster_listen_address)

    @classmethod
    def load(
        cls,
        environ: Mapping[str, str] = os.environ,
        *,
        file: Path | None = None,
        overrides: Mapping[str, Any] | None = None,
    ) -> Loaded[Self]:
        """Read and check the settings. Errors: Invalid, naming the setting."""
        found = load(cls, environ_prefix=cls.ENVIRON_PREFIX, environ=environ, file=file, overrides=overrides)
        check_ranges(found.settings)  # also of what counts for nothing in this role
        completed = cls.completed(found)
        completed.settings.check()
        return completed

    @classmethod
    def completed(cls, loaded: Loaded[Self]) -> Loaded[Self]:
        """The settings with what follows from them. Errors: Invalid."""
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
            raise Invalid(f"mutual TLS needs it beside {given[0]}; give all of {', '.join(TLS_CLUSTER)}", field=missing)
        if self.log_level not in ("debug", "info", "warning", "error"):
            raise Invalid(f"{self.log_level!r}; expected debug, info, warning or error", field="log_level")


@dataclass(frozen=True)
class InnerSettings(ServiceSettings):
    """What may be chosen about a process that other processes of the cluster call: a name server or an enode."""

    role_names: RoleNames = RoleNames()
    """The names in certificates that stand for each role, where callers come by mutual TLS."""

    def check(self) -> None:
        """Refuse settings that cannot work. Errors: Invalid, naming the field."""
        super().check()
        self.role_names.check()
        if not self.tls_cluster_listen_address:
            for role in Role:
                if self.role_names.chosen(role):
                    raise Invalid(
                        f"names of certificates need mutual TLS; give all of {', '.join(TLS_CLUSTER)}, or no names",
                        field=setting_of(role),
                    )
