"""What may be chosen about an enode, by file, environment (`ORTOO_ENODE_...`) and command line."""

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
from ortoo.common.process.settings import Loaded, Range
from ortoo.enode.deferred.checks import CheckSchedule
from ortoo.enode.log.settings import DAY_MS, RETENTION, FlushMode, StoreSettings

GROUP_RETENTION_MS_MIN = 120_000
"""Snodes say every half minute who pops."""
SLAVE_MEMORY_LESS_PERCENT = 10
"""A member that follows serves no readers, so its memory is better left to the page cache."""
IMPORTANT = (
    "name",
    "cluster",
    "listen_address",
    "advertised_address",
    "namesrv_address",
    "data_dir",
    "role",
    "member",
    "durability",
    "store.flush_mode",
)
LIMITS = ("group_retention_ms", "delay_max_ms", "dedup_window_ms")
"""Settings of what serves clients that change while it does."""


class Durability(enum.StrEnum):
    """When a send is acknowledged in an enode of several members. Everything else waits for a majority's disks."""

    REPLICAS = "replicas"
    """When it is on a majority of the members' disks."""
    LEADER = "leader"
    """When it is on the leader's disk: a take-over may lose it."""


class NodeRole(enum.StrEnum):
    """RocketMQ's roles, with its names."""

    ASYNC_MASTER = "ASYNC_MASTER"
    """May lead, and then acknowledges sends when its own disk has them."""
    SYNC_MASTER = "SYNC_MASTER"
    """May lead, and then acknowledges sends when a majority of disks has them."""
    SLAVE = "SLAVE"
    """Follows, and leads only when an operator elects it."""


DURABILITY_OF = {NodeRole.ASYNC_MASTER: Durability.LEADER, NodeRole.SYNC_MASTER: Durability.REPLICAS}
"""What a role says about acknowledgements, when it is chosen by name."""


@dataclass(frozen=True)
class Settings(InnerSettings):
    """The settings of one enode."""

    ENVIRON_PREFIX = "ORTOO_ENODE_"
    LIVE = ("log_level", "namesrv_address", *LIMITS, *(f"store.{name}" for name in RETENTION))
    HIDDEN = {"store.enode": "name", "store.cluster": "cluster"}  # noqa: RUF012  # a constant

    name: str = "enode-0"
    """Its name in the cluster; the store keeps it, so it must not change."""
    cluster: str = "default"
    """The cluster's name; a store made for another cluster is refused."""
    listen_address: str = "127.0.0.1:8091"
    """host:port to serve on; port 0 takes any free one."""
    advertised_address: str = ""
    """host:port where snodes reach this enode. Empty = the listen address."""
    namesrv_address: str = "127.0.0.1:8071"
    """host:port of the name server, several of one cluster separated by `;`; or the http:// URL of such a list."""
    data_dir: Path = Path("ortoo-data/enode")
    """Folder of the store."""
    role: NodeRole = NodeRole.ASYNC_MASTER
    """Of a member: ASYNC_MASTER (durability `leader`), SYNC_MASTER (`replicas`), SLAVE (only an operator elects it)."""
    durability: Durability = Durability.REPLICAS
    """When a member that leads acknowledges a send: `replicas`, when it is on a majority of the members' disks, or
    `leader`, when it is on its own, so that a take-over may lose it. All members should have the same."""
    member: Annotated[int, Range(1, 99)] = 1
    """Which member of the enode this process is, 1 or more; it is kept in the folder and must not change."""
    members: Annotated[int, Range(1, 5)] = 1
    """With how many members the set begins: 1, 3 or 5, or 2 by hand. It asks nothing of a set that has begun."""
    member_listen_address: str = ""
    """host:port where the other members reach this one; empty = the enode has one member, and nobody asks others."""
    member_addresses: str = ""
    """Where the members are when the set begins, by number: host:port, separated by `;`."""
    memory_share_percent: Annotated[int, Range(1, 90)] = 40
    """How much of the memory the store's caches may take at most; a SLAVE takes 10 less unless it is set."""
    heartbeat_interval_s: Annotated[float, Range(0.05, 3_600)] = 5.0
    """How often the enode announces itself."""
    health_interval_s: Annotated[float, Range(0.01, 3_600)] = 0.5
    """How often health is taken from the store."""
    transaction_check_after_ms: Annotated[int, Range(1, DAY_MS)] = 6_000
    """How long a transaction may stay open before its producers are asked, unless it says otherwise."""
    transaction_check_interval_ms: Annotated[int, Range(1, DAY_MS)] = 30_000
    """How long until they are asked again; doubles from time to time, up to 120 times this."""
    transaction_checks_max: Annotated[int, Range(1, DAY_MS)] = 15
    """After so many checks without a verdict a transaction is parked."""
    delay_max_ms: Annotated[int, Range(0, 366 * DAY_MS)] = 366 * DAY_MS
    """How far ahead messages may be delayed; at most 366 days, which is the default. Others are refused."""
    dedup_window_ms: Annotated[int, Range(0, 7 * DAY_MS)] = 600_000
    """For how long a message with the property DEDUP_ID is not stored again; 0 = the property means nothing."""
    group_retention_ms: Annotated[int, Range(0, 36_500 * DAY_MS)] = 30 * DAY_MS
    """Offsets, locks and modes of a group that nobody declared and nobody has used for so long are dropped, topic by
    topic. 0 = never. A group is declared by PutGroup or UpdateGroup (`ortoo group update`), and not by its use."""
    trace_endpoint: str = ""
    """http://host:port of an OTLP/gRPC receiver of spans of messages with a sampled trace context. Empty = none."""
    store: StoreSettings = field(default_factory=StoreSettings)
    """The storage engine."""

    @property
    def check_schedule(self) -> CheckSchedule:
        """When the producers of open transactions are asked."""
        return CheckSchedule(
            self.transaction_check_after_ms, self.transaction_check_interval_ms, self.transaction_checks_max
        )

    @property
    def store_settings(self) -> StoreSettings:
        """Those of the storage engine, which also knows whose store it is."""
        early = self.member_listen_address and self.durability is Durability.LEADER
        mode = FlushMode.ASYNC if early else self.store.flush_mode
        return dataclasses.replace(self.store, enode=self.name, cluster=self.cluster, flush_mode=mode)

    @property
    def member_address_list(self) -> tuple[str, ...]:
        """Where the members are when the set begins, by number."""
        return tuple(one.strip() for one in self.member_addresses.split(";") if one.strip())

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
        if self.members not in (1, 2, 3, 5):
            raise Invalid(f"{self.members}; a set begins with 1, 3 or 5 members, or 2 by hand", field="members")
        if self.member_listen_address:
            check_address(self.member_listen_address, "member_listen_address")
            if self.store.flush_mode is FlushMode.ASYNC:
                raise Invalid("async; a member acknowledges as `durability` says", field="store.flush_mode")
        elif self.members > 1 or self.member > 1 or self.role in (NodeRole.SYNC_MASTER, NodeRole.SLAVE):
            who = "a member" if self.role is NodeRole.ASYNC_MASTER else f"a {self.role} is a member, and"
            raise Invalid(f"{who} needs one for the others; give host:port", field="member_listen_address")
        for address in self.member_address_list:
            check_address(address, "member_addresses")
        if self.members > 1 and self.member == 1 and len(self.member_address_list) != self.members:
            raise Invalid(
                f"{len(self.member_address_list)} addresses; expected those of all {self.members} members, by number",
                field="member_addresses",
            )

    @classmethod
    def completed(cls, loaded: Loaded[Self]) -> Loaded[Self]:
        """What a role says of durability and the other way round; a SLAVE leaves more memory to the page cache."""
        for name, short in cls.HIDDEN.items():
            if loaded.origins[name] != "default":
                raise Invalid(f"is taken from {short}; set {short} instead", field=name)
        chosen, origins = loaded.settings, loaded.origins
        follows: dict[str, tuple[Any, str]] = {}
        """Setting to its value, and the setting that it follows from."""
        said = DURABILITY_OF.get(chosen.role)
        if not chosen.member_listen_address:
            pass  # with one disk both mean the same
        elif origins["role"] == "default":
            if chosen.durability is Durability.REPLICAS:
                follows["role"] = (NodeRole.SYNC_MASTER, "durability")
        elif said is not None and origins["durability"] == "default":
            follows["durability"] = (said, "role")
        elif said is not None and said is not chosen.durability:
            raise Invalid(f"{chosen.durability}; {chosen.role} means {said}: give one of the two", field="durability")
        if chosen.role is NodeRole.SLAVE and origins["memory_share_percent"] == "default":
            follows["memory_share_percent"] = (chosen.memory_share_percent - SLAVE_MEMORY_LESS_PERCENT, "role")
        changed = {name: one for name, one in follows.items() if one[0] != getattr(chosen, name)}
        values = {name: value for name, (value, _) in changed.items()}
        return Loaded(
            dataclasses.replace(chosen, **values), {**origins, **{name: by for name, (_, by) in changed.items()}}
        )


load = Settings.load
