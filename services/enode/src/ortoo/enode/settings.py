"""Settings of an enode, by file, environment (`ORTOO_ENODE_...`) and command line."""

import dataclasses
import enum
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Self

from ortoo.common.cluster.address_server import check_name_servers
from ortoo.common.cluster.addresses import check_address, check_advertised, check_receiver
from ortoo.common.cluster.names import check_process_name
from ortoo.common.cluster.service_settings import InnerSettings
from ortoo.common.errors import Invalid
from ortoo.common.process.settings import FormerName, LoadedSettings, NumberRange
from ortoo.enode.log.settings import DAY_MS, RETENTION_SETTINGS, FlushMode, StoreSettings
from ortoo.enode.transactions.checks import CheckSchedule

GROUP_RETENTION_MS_MIN = 120_000
"""Snodes report popping groups every half minute, so a shorter retention would drop groups in use."""
SLAVE_MEMORY_LESS_PERCENT = 10
"""A follower serves no reads, so its memory is better used by the page cache."""
IMPORTANT = (
    "name",
    "cluster",
    "listen_address",
    "advertised_address",
    "namesrv_address",
    "data_dir",
    "role",
    "replica",
    "durability",
    "store.flush_mode",
)
LIMITS = ("group_retention_ms", "delay_max_ms", "dedup_window_ms")
"""Settings of the client-facing parts that can be changed while the enode runs."""


class Durability(enum.StrEnum):
    """When a send is acknowledged in an enode of several replicas. Other changes wait for a majority of disks."""

    REPLICAS = "replicas"
    """When it is on a majority of the replicas' disks."""
    LEADER = "leader"
    """When it is on the leader's disk: a change of leader may lose it."""


class NodeRole(enum.StrEnum):
    """The roles of a broker in RocketMQ, with RocketMQ's names."""

    ASYNC_MASTER = "ASYNC_MASTER"
    """May lead, and then acknowledges a send when its own disk has it."""
    SYNC_MASTER = "SYNC_MASTER"
    """May lead, and then acknowledges a send when a majority of disks has it."""
    SLAVE = "SLAVE"
    """Follows, and leads only when an operator elects it."""


DURABILITY_OF_ROLE = {NodeRole.ASYNC_MASTER: Durability.LEADER, NodeRole.SYNC_MASTER: Durability.REPLICAS}
"""The durability that a role implies when it is set explicitly."""


@dataclass(frozen=True)
class EnodeSettings(InnerSettings):
    """The settings of one enode."""

    ENVIRON_PREFIX = "ORTOO_ENODE_"
    LIVE = ("log_level", *LIMITS, *(f"store.{name}" for name in RETENTION_SETTINGS))
    RELOADED = ("namesrv_address",)
    HIDDEN = {"store.enode": "name", "store.cluster": "cluster"}  # noqa: RUF012  # a constant

    name: str = "enode-0"
    """The enode's name in the cluster. The store records it, so it must not change."""
    cluster: str = "default"
    """The cluster's name; a store made for another cluster is refused."""
    listen_address: str = "127.0.0.1:8091"
    """host:port to serve on; port 0 takes any free port."""
    advertised_address: str = ""
    """host:port where snodes reach this enode. Empty = the listen address."""
    namesrv_address: str = "127.0.0.1:8071"
    """host:port of each name server of the cluster, separated by `;`, or the http:// URL of such a list."""
    data_dir: Path = Path("ortoo-data/enode")
    """Folder of the store."""
    role: NodeRole = NodeRole.ASYNC_MASTER
    """The replica's role: ASYNC_MASTER (durability `leader`), SYNC_MASTER (`replicas`), or SLAVE (leads only if an
    operator elects it). If `replica_listen_address` is set, the default follows from `durability`."""
    durability: Durability = Durability.REPLICAS
    """When the leader acknowledges a send. `replicas`: when a majority of the replicas' disks has the message.
    `leader`: when its own disk has the message, so that a take-over may lose it. All replicas should have
    the same value."""
    replica: Annotated[int, NumberRange(1, 99), FormerName("member")] = 1
    """The replica's number, 1 or more. The folder records it, so it must not change."""
    replicas: Annotated[int, NumberRange(1, 5), FormerName("members")] = 1
    """The number of replicas of a new set: 1, 3 or 5, or 2 without automatic take-over. It has no
    effect on an existing set."""
    replica_listen_address: Annotated[str, FormerName("member_listen_address")] = ""
    """host:port where the other replicas reach this replica. Empty = the enode has a single replica."""
    replica_addresses: Annotated[str, FormerName("member_addresses")] = ""
    """The addresses of the replicas of a new set, by number: host:port, separated by `;`."""
    memory_share_percent: Annotated[int, NumberRange(1, 90)] = 40
    """Maximum percentage of the memory for the store's caches. With the role SLAVE the default is 10 lower."""
    heartbeat_interval_s: Annotated[float, NumberRange(0.05, 3_600)] = 5.0
    """Interval between announcements of the enode at the name servers."""
    health_interval_s: Annotated[float, NumberRange(0.01, 3_600)] = 0.5
    """Interval between checks of the store's health."""
    transaction_check_after_ms: Annotated[int, NumberRange(1, DAY_MS)] = 6_000
    """Time after which the producers of an open transaction are asked for its verdict, unless the transaction has a
    time of its own."""
    transaction_check_interval_ms: Annotated[int, NumberRange(1, DAY_MS)] = 30_000
    """Interval between the first two checks. It doubles after each check, up to 120 times this value."""
    transaction_checks_max: Annotated[int, NumberRange(1, DAY_MS)] = 15
    """Number of checks without a verdict, after which a transaction is parked: it is not checked until `ortoo tx
    resume`."""
    delay_max_ms: Annotated[int, NumberRange(0, 366 * DAY_MS)] = 366 * DAY_MS
    """Maximum delay of a message; at most 366 days, which is the default. Longer delays are refused."""
    dedup_window_ms: Annotated[int, NumberRange(0, 7 * DAY_MS)] = 600_000
    """Time for which a message with the same property DEDUP_ID is not stored again. 0 = the property is ignored."""
    group_retention_ms: Annotated[int, NumberRange(0, 36_500 * DAY_MS)] = 30 * DAY_MS
    """Time without use after which the enode drops the offsets, locks, leases and delivery mode of an undeclared group,
    topic by topic. 0 = never. PutGroup and UpdateGroup (`ortoo group update`) declare a group; its use
    does not declare it."""
    trace_endpoint: str = ""
    """http://host:port of an OTLP/gRPC receiver of spans of messages with a sampled trace context. Empty = none."""
    store: StoreSettings = field(default_factory=StoreSettings)
    """The storage engine."""

    @property
    def check_schedule(self) -> CheckSchedule:
        """The schedule of transaction checks."""
        return CheckSchedule(
            self.transaction_check_after_ms, self.transaction_check_interval_ms, self.transaction_checks_max
        )

    @property
    def store_settings(self) -> StoreSettings:
        """The settings of the storage engine, with the names of the enode and the cluster."""
        early = self.replica_listen_address and self.durability is Durability.LEADER
        mode = FlushMode.ASYNC if early else self.store.flush_mode
        return dataclasses.replace(self.store, enode=self.name, cluster=self.cluster, flush_mode=mode)

    @property
    def replica_address_list(self) -> tuple[str, ...]:
        """The addresses of the replicas of a new set, by number."""
        return tuple(one.strip() for one in self.replica_addresses.split(";") if one.strip())

    def check(self) -> None:
        """Refuse settings that cannot work. Errors: Invalid, naming the field."""
        super().check()
        check_process_name(self.cluster, "cluster")
        check_name_servers(self.namesrv_address)
        check_receiver(self.trace_endpoint, "trace_endpoint")
        check_advertised(self.advertised_address, self.listen_address, who="snodes")
        self._check_members()
        self.store_settings.check()
        if 0 < self.group_retention_ms < GROUP_RETENTION_MS_MIN:
            wrong = f"{self.group_retention_ms}; expected 0, or at least {GROUP_RETENTION_MS_MIN:,}"
            raise Invalid(wrong, field="group_retention_ms")

    def _check_members(self) -> None:
        if self.replicas not in (1, 2, 3, 5):
            allowed = "a new set has 1, 3 or 5 replicas, or 2 without automatic take-over"
            raise Invalid(f"{self.replicas}; {allowed}", field="replicas")
        if self.replica_listen_address:
            check_address(self.replica_listen_address, "replica_listen_address")
            if self.store.flush_mode is FlushMode.ASYNC:
                raise Invalid("async; with several replicas set `durability` instead", field="store.flush_mode")
        elif self.replicas > 1 or self.replica > 1 or self.role in (NodeRole.SYNC_MASTER, NodeRole.SLAVE):
            who = "a replica" if self.role is NodeRole.ASYNC_MASTER else f"a {self.role} is a replica, and"
            raise Invalid(
                f"{who} needs an address for the other replicas; give host:port", field="replica_listen_address"
            )
        for address in self.replica_address_list:
            check_address(address, "replica_addresses")
        if self.replicas > 1 and self.replica == 1 and len(self.replica_address_list) != self.replicas:
            raise Invalid(
                f"{len(self.replica_address_list)} addresses; expected the addresses of {self.replicas} replicas, in "
                "the order of their numbers",
                field="replica_addresses",
            )

    @classmethod
    def completed(cls, loaded: LoadedSettings[Self]) -> LoadedSettings[Self]:
        """Derive durability from the role, or the role from durability. A SLAVE uses less memory for its own caches."""
        for name, short in cls.HIDDEN.items():
            if loaded.origins[name] != "default":
                raise Invalid(f"is taken from {short}; set {short} instead", field=name)
        settings, origins = loaded.settings, loaded.origins
        derived: dict[str, tuple[Any, str]] = {}
        """Setting to its value, and the setting from which it is derived."""
        implied = DURABILITY_OF_ROLE.get(settings.role)
        if not settings.replica_listen_address:
            pass  # with one disk both durabilities are the same
        elif origins["role"] == "default":
            if settings.durability is Durability.REPLICAS:
                derived["role"] = (NodeRole.SYNC_MASTER, "durability")
        elif implied is not None and origins["durability"] == "default":
            derived["durability"] = (implied, "role")
        elif implied is not None and implied is not settings.durability:
            raise Invalid(
                f"{settings.durability}; {settings.role} means {implied}: give one of the two", field="durability"
            )
        if settings.role is NodeRole.SLAVE and origins["memory_share_percent"] == "default":
            derived["memory_share_percent"] = (settings.memory_share_percent - SLAVE_MEMORY_LESS_PERCENT, "role")
        changed = {name: one for name, one in derived.items() if one[0] != getattr(settings, name)}
        values = {name: value for name, (value, _) in changed.items()}
        changed_settings = dataclasses.replace(settings, **values)
        changed_origins = {name: by for name, (_, by) in changed.items()}
        return dataclasses.replace(loaded, settings=changed_settings, origins={**origins, **changed_origins})


load = EnodeSettings.load
