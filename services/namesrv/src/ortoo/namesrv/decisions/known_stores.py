"""The registered store of each enode: which other store may replace it, and the end of its log.

The registered store outlives the lease of its enode, so that an enode with an empty folder is refused. That enode would
assign the offsets and message ids of its former store again.

An enode without other replicas also reports the end of its log, which reveals an older copy of its folder. Only durable
positions are reported. A power failure removes only what was not durable, so the log is never shorter than reported.
"""

import dataclasses
from dataclasses import dataclass

from ortoo.common.cluster.refused import LOG_FIELD, STORE_FIELD
from ortoo.common.errors import Conflict, Invalid
from ortoo.namesrv.decisions.replicas import ReplicaId, ReplicaReport

LOG_END_INTERVAL_S = 10.0
"""Minimum time between two writes of an enode's log end, unless a new start reports. A copy of a folder that lacks less
may be accepted."""
END = 1 << 63
"""Larger than each number of a start and each position."""


@dataclass(frozen=True, slots=True)
class EnodeLog:
    """The log of an enode without other replicas, as one start of its process reports it."""

    start: int
    """The number of the start, another one for each start, also of a copied folder."""
    opened_end: int
    """The end of the log when this start opened it."""
    durable_end: int
    """The durable end of the log at the time of the report."""

    def check(self) -> None:
        """Refuse positions that no log has. Errors: Invalid."""
        if not 0 < self.start < END or not self.opened_end <= self.durable_end < END:
            raise Invalid(
                f"start {self.start}, opened_end {self.opened_end} and durable_end {self.durable_end}; expected a "
                "start of 1 or more, and ends in this order, each below 2^63",
                field="log",
            )

    def check_end(self, enode: str, last_start: int, last_end: int) -> None:
        """Refuse a start whose log ended before `last_end`, which the start `last_start` has reported.

        Errors: Conflict, which names the remedies.
        """
        if self.start == last_start or self.opened_end >= last_end:
            return
        raise Conflict(
            f"the log of enode {enode!r} was durable up to position {last_end}, and this process found its end at "
            f"position {self.opened_end}. Its folder is an older copy, or its disk lost messages that were "
            "acknowledged. Mount the newest volume. If the end of the log is permanently lost, stop the process, run "
            "`ortoo-enode elect DIR --lose --apply`, and start it again",
            field=LOG_FIELD,
        )


@dataclass(frozen=True, slots=True)
class KnownStore:
    """The store that an enode has registered; it stays registered when the enode's processes end."""

    enode: str
    store_id: str
    """The id of its store, or of its replica set; empty = the enode is forgotten, and no store is registered."""
    replicas: tuple[ReplicaId, ...] = ()
    """The last known replicas of the set, including learners; empty for an enode without replicas."""
    version: int = 0
    """The number of changes, so that an older copy of the database is ignored."""
    accepted: str = ""
    """The id of another store that an operator has permitted to replace the registered one."""
    log_start: int = 0
    """The start that last reported the log, if the enode has no other replicas; 0 = none has."""
    log_end: int = 0
    """A durable end of the log that this start has reported."""

    @property
    def is_forgotten(self) -> bool:
        """Whether an operator has forgotten the enode."""
        return not self.store_id

    def forgotten(self) -> "KnownStore":
        """A copy with the next version and without a registered store, so that every store needs a permission."""
        return KnownStore(self.enode, "", version=self.version + 1)

    def changed(self, store_id: str, replicas: tuple[ReplicaId, ...]) -> "KnownStore":
        """A copy for a newly registered store, with the next version.

        If `store_id` differs from the registered store, the permission for another store ends, and so does the
        knowledge of the log.
        """
        version = self.version + 1
        if store_id != self.store_id:
            return KnownStore(self.enode, store_id, replicas, version)
        return dataclasses.replace(self, replicas=replicas, version=version)

    def with_log(self, log: EnodeLog) -> "KnownStore":
        """A copy with the log as reported, with the next version."""
        return dataclasses.replace(self, version=self.version + 1, log_start=log.start, log_end=log.durable_end)

    def accepting(self, store_id: str) -> "KnownStore":
        """A copy that permits the store `store_id` as well, with the next version.

        If `store_id` is the registered store, the copy permits no other store.
        """
        accepted = store_id if store_id != self.store_id else ""
        return dataclasses.replace(self, version=self.version + 1, accepted=accepted)


def may_come(known: KnownStore | None, store_id: str, made_from: str) -> bool:
    """Whether an enode may use a store: the registered or permitted one, or one that was made from either."""
    return known is None or not ({known.store_id, known.accepted} - {""}).isdisjoint((store_id, made_from))


def check_store(known: KnownStore | None, enode: str, store_id: str, made_from: str) -> None:
    """Refuse a store that an enode may not use. Errors: Conflict, which names the command that permits the store."""
    if known is None or may_come(known, store_id, made_from):
        return
    if known.is_forgotten:
        raise Conflict(
            f"enode {enode!r} was forgotten by an operator, and its topics have no queues on it any more. If it is to "
            f"return with its store {store_id}, permit it with `ortoo enode accept-store {enode} {store_id}`; then it "
            "offers its topics for adoption",
            field=STORE_FIELD,
        )
    raise Conflict(
        f"enode {enode!r} has registered store {known.store_id}, and this process has store {store_id}. Check whether "
        "its volume is mounted and its data_dir is the right one. If the former store is permanently lost, `ortoo "
        f"enode accept-store {enode} {store_id}` lets the enode continue with the new store",
        field=STORE_FIELD,
    )


def check_lineage(known: KnownStore | None, report: ReplicaReport) -> None:
    """Refuse a report from another replica set with the registered set's id. Errors: Conflict.

    Replicas change one at a time, so two consecutive configurations of a set have replicas in common. A set with none
    of the registered replicas is therefore another set.
    """
    if known is None or not known.replicas or report.set_id != known.store_id or not report.voters:
        return
    if report.replica in known.replicas or not set(known.replicas).isdisjoint(report.voters):
        return
    numbers = ", ".join(f"{one.number} (disk {one.disk})" for one in known.replicas)
    raise Conflict(
        f"set {report.set_id} of enode {report.enode!r} has the replicas {numbers}; replica {report.replica.number} "
        f"(disk {report.replica.disk}) is none of them, and its log names none of them. This replica created another "
        "set with the same id. Stop the replica, empty its folder, and add it as a new replica",
        field="set_id",
    )
