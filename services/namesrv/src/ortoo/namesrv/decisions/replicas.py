"""The reports of enodes' replicas, and the state of an enode that follows from them. Pure: `now_s` is monotonic.

Every replica reports to every name server, so that each name server has all reports and stores none.
"""

import enum
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ortoo.common.cluster.names import check_process_name
from ortoo.common.errors import Conflict, Fenced, Invalid, Overloaded
from ortoo.namesrv.decisions.text_checks import check_address, check_text

REPLICAS_MAX = 64
"""The maximum number of replicas of one enode that may report, including empty disks that wait to be added."""
REPLICA_SETS_MAX = 1_000
RANDOM_PARTS = 1 << 32
"""An incarnation is a count of starts times this, plus a random part; a smaller number is only a count."""
FOLLOWER_ROLES = "SLAVE"
"""The role of a replica that no name server proposes."""


class ReplicaId(NamedTuple):
    """The id of a replica: its number, and the disk that it had when it was added."""

    number: int
    disk: str


class LogTail(NamedTuple):
    """The end of a log, ordered by age: first by epoch, then by position."""

    epoch: int
    position: int


class Proposal(NamedTuple):
    """A proposed leader and its epoch."""

    epoch: int
    leader: ReplicaId


class ReplicaState(enum.IntEnum):
    """The state of a replica; the numbers are used on the wire."""

    UNSPECIFIED = 0
    LEADING = 1
    FOLLOWING = 2
    LEARNING = 3
    AWAY = 4
    WAITING = 5


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """A replica's report about itself and its log."""

    enode: str
    set_id: str
    """Empty for an empty disk that waits to be added."""
    replica: ReplicaId
    incarnation: int
    address: str
    replica_address: str
    epoch: int = 0
    is_leading: bool = False
    tail: LogTail = LogTail(0, 0)
    is_electable: bool = False
    is_leader_silent: bool = False
    suggested_leader: ReplicaId | None = None
    suggested_above_epoch: int = 0
    voters: tuple[ReplicaId, ...] = ()
    learners: tuple[ReplicaId, ...] = ()
    committed: int = 0
    role: str = ""
    is_leaving: bool = False
    made_from: str = ""
    """The id of the store or the set that an operator made this set of."""


@dataclass(frozen=True, slots=True)
class ReceivedReport:
    """A report and the time of its arrival."""

    report: ReplicaReport
    received_at_s: float


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """A replica, its state, and its last report; the report is None if this name server has not received one."""

    replica: ReplicaId
    state: ReplicaState
    reported: ReceivedReport | None = None


class EnodeReplica(NamedTuple):
    """A replica of an enode in the routes, with only those properties that seldom change."""

    number: int
    disk: str
    state: ReplicaState
    address: str


@dataclass(slots=True)
class ReplicaSet:
    """The replicas of one enode, as they report. The last report of an unreachable replica is kept."""

    enode: str
    set_id: str = ""
    reports: dict[ReplicaId, ReceivedReport] = field(default_factory=dict)
    live_replicas: set[ReplicaId] = field(default_factory=set)
    last_leader: tuple[ReplicaId, int] | None = None
    """The last leader, and the incarnation of its process."""
    last_leader_epoch: int = 0
    """The epoch of the last leader."""
    leader_changes: int = 0
    """The number of leader changes since this name server started."""
    last: ReplicaReport | None = None
    """The last known configuration of voters and learners, also of replicas that no longer report."""

    def live_reports(self) -> list[ReceivedReport]:
        """The last reports of live replicas that belong to the set, sorted by replica id."""
        return [self.reports[one] for one in sorted(self.live_replicas) if self.reports[one].report.set_id]

    def leader(self) -> ReplicaReport | None:
        """The report of the leader; None if no replica reports as leader, and the later epoch if two do."""
        leading = [one.report for one in self.live_reports() if one.report.is_leading]
        return max(leading, key=lambda one: one.epoch, default=None)

    def configuration(self) -> ReplicaReport | None:
        """The report with the most recent configuration of voters and learners; None if no report has a configuration.

        Reports of electable replicas count first: a damaged disk reports the largest end that its log ever had, while
        its configuration may be older.
        """
        named = [one.report for one in self.live_reports() if one.report.voters]
        return max(named, key=lambda one: (one.is_electable, one.tail), default=None)

    def statuses(self) -> list[ReplicaStatus]:
        """All replicas sorted by id, and the empty disks that wait to be added.

        A disk of the set that no log names also waits to be added. Its addition was interrupted by another change or by
        the end of the leader.
        """
        latest, leader = self.configuration() or self.last, self.leader()
        voters, learners = (latest.voters, latest.learners) if latest else ((), ())
        known = {*voters, *learners}
        waiting = {one for one in self.live_replicas - known if not self.reports[one].report.voters}

        def state(member: ReplicaId) -> ReplicaState:
            if member in waiting:
                return ReplicaState.WAITING
            if member not in self.live_replicas:
                return ReplicaState.AWAY
            if leader is not None and member == leader.replica:
                return ReplicaState.LEADING
            return ReplicaState.FOLLOWING if member in voters else ReplicaState.LEARNING

        return [ReplicaStatus(one, state(one), self.reports.get(one)) for one in sorted(known | waiting)]

    def route_entries(self) -> tuple[EnodeReplica, ...]:
        """All replicas in the form of the routes."""
        return tuple(
            EnodeReplica(*one.replica, one.state, one.reported.report.address if one.reported else "")
            for one in self.statuses()
        )

    def missing_voters(self) -> list[ReplicaId]:
        """The voters that do not report now."""
        latest = self.configuration()
        return [one for one in latest.voters if one not in self.live_replicas] if latest else []


class ReplicaSets:
    """The replicas of all enodes."""

    def __init__(self, lease_s: float) -> None:
        """Start without reports; a report is valid for `lease_s`."""
        self.lease_s = lease_s
        self.sets: dict[str, ReplicaSet] = {}

    def update(self, report: ReplicaReport, now_s: float) -> ReplicaSet:
        """Store a replica's report; returns its replica set.

        Errors: Invalid, Conflict (another set has the enode's name), Fenced, Overloaded.
        """
        _check_report(report)
        known = self.sets.get(report.enode)
        if known is None:
            if len(self.sets) >= REPLICA_SETS_MAX:
                raise Overloaded(f"{REPLICA_SETS_MAX} enodes have replicas here, the maximum; stop some")
            known = self.sets[report.enode] = ReplicaSet(report.enode)
        self._check_set(known, report, now_s)
        before = known.reports.get(report.replica)
        if before is None and len(known.reports) >= REPLICAS_MAX:
            raise Overloaded(f"{REPLICAS_MAX} processes report as replicas of {report.enode!r}; stop some")
        is_copy = (
            before is not None and report.replica in known.live_replicas and self._is_duplicate(before, report, now_s)
        )
        if before is not None and not is_copy and _is_older(report.incarnation, before.report.incarnation):
            raise _outdated_start(report, before.report)
        if before is not None and is_copy:
            raise Conflict(
                f"two processes have copies of the disk of replica {report.replica.number} of {report.enode!r}, "
                f"at {before.report.replica_address} and {report.replica_address}. Stop one of them, and empty its "
                "disk",
                field="replica_address",
                retry_after_ms=left_ms(before.received_at_s + self.lease_s, now_s),
            )
        known.set_id = report.set_id or known.set_id
        known.reports[report.replica] = ReceivedReport(report, now_s)
        known.last = known.configuration() or known.last
        (known.live_replicas.discard if report.is_leaving else known.live_replicas.add)(report.replica)
        _record_leader(known)
        return known

    def expire(self, now_s: float) -> list[ReplicaSet]:
        """Mark replicas whose report is too old as not live; returns the sets of these replicas."""
        changed = []
        for one in self.sets.values():
            gone = {member for member in one.live_replicas if one.reports[member].received_at_s + self.lease_s <= now_s}
            if gone:
                one.live_replicas -= gone
                changed.append(one)
            latest = one.configuration()
            named = {*latest.voters, *latest.learners} if latest else one.reports.keys()
            for member in [m for m in one.reports if m not in one.live_replicas and m not in named]:
                del one.reports[member]
        return changed

    def _is_duplicate(self, previous: ReceivedReport, report: ReplicaReport, now_s: float) -> bool:
        """Whether the same incarnation of a disk with a log reports from two addresses."""
        same = _is_same_start(previous.report.incarnation, report.incarnation)
        same = same and report.set_id == previous.report.set_id != ""
        return (
            same
            and previous.report.replica_address != report.replica_address
            and previous.received_at_s + self.lease_s > now_s
        )

    def _check_set(self, known: ReplicaSet, report: ReplicaReport, now_s: float) -> None:
        """Refuse another replica set of the enode while a replica of the known set is alive."""
        if not report.set_id or known.set_id in ("", report.set_id):
            return
        others = [one for one in known.live_reports() if one.received_at_s + self.lease_s > now_s]
        if others:
            raise Conflict(
                f"enode {report.enode!r} belongs to replica set {known.set_id}, whose replica "
                f"{others[0].report.replica.number} is alive at {others[0].report.address}, and this replica belongs "
                f"to set {report.set_id}. Give this enode another name, or stop the other replicas and retry",
                field="set_id",
                retry_after_ms=left_ms(max(one.received_at_s for one in others) + self.lease_s, now_s),
            )
        self.sets[known.enode].reports.clear()
        known.live_replicas.clear()
        known.last = None
        known.last_leader, known.last_leader_epoch = None, 0


def _is_same_start(one: int, other: int) -> bool:
    """Whether two incarnations have the same start of a disk, or the same start number on two copies of a disk."""
    return one == other or (min(one, other) >= RANDOM_PARTS and one // RANDOM_PARTS == other // RANDOM_PARTS)


def _is_older(incarnation: int, known: int) -> bool:
    """Whether a start is not later than a known one. A disk restored from a copy repeats the counts of known starts."""
    return incarnation < known or (incarnation != known and _is_same_start(incarnation, known))


def _outdated_start(report: ReplicaReport, later: ReplicaReport) -> Fenced:
    """The refusal of a start that is not later than a known one.

    An earlier version could report the number of a start that was not durable, and use it again at the next start.
    """
    remedy = "If there is only one process, its disk was restored from an older copy. It"
    if _is_same_start(report.incarnation, later.incarnation):
        remedy = (
            "If there is only one process, and its disk was not restored from an older copy, keep the disk and restart "
            "the process once. An earlier version may have used the number of this start twice. A disk that was "
            "restored from an older copy"
        )
    return Fenced(
        f"a later start of replica {report.replica.number} of enode {report.enode!r} has reported, at {later.address}; "
        f"stop one of the two processes. {remedy} lacks acknowledged messages and votes. Stop that process, empty its "
        "folder, and add it as a new replica",
        field="incarnation",
    )


def _record_leader(known: ReplicaSet) -> None:
    leader = known.leader()
    if leader is None or leader.epoch < known.last_leader_epoch:
        return
    led_by = (leader.replica, leader.incarnation)
    if known.last_leader is not None and known.last_leader[0] != leader.replica:
        known.leader_changes += 1
    known.last_leader, known.last_leader_epoch = led_by, leader.epoch


def left_ms(until_s: float, now_s: float) -> int:
    """The remaining time of a lease or a report; at least 1 ms, so that callers do not retry too early."""
    return max(1, math.ceil((until_s - now_s) * 1000))


def majority(voters: Collection[ReplicaId]) -> int:
    """The number of votes that make a majority of `voters`."""
    return len(voters) // 2 + 1


def _check_report(report: ReplicaReport) -> None:
    check_process_name(report.enode, "enode")
    if report.set_id:
        check_text(report.set_id, "set_id", "the id that the set got when it was created")
    for name in ("address", "replica_address"):
        check_address(getattr(report, name), name)
    _check_ids("replica", [report.replica])
    for name in ("voters", "learners"):
        ids: tuple[ReplicaId, ...] = getattr(report, name)
        if len(ids) > REPLICAS_MAX:
            raise Invalid(f"{len(ids)} replicas; expected at most {REPLICAS_MAX}", field=name)
        _check_ids(name, ids)
    if report.suggested_leader is not None:
        _check_ids("suggested_leader", [report.suggested_leader])


def _check_ids(name: str, ids: Iterable[ReplicaId]) -> None:
    for one in ids:
        if one.number < 1:
            raise Invalid(f"{one.number}; give the replica's number, 1 or more", field=f"{name}.number")
        check_text(one.disk, f"{name}.disk", "the id that the disk got when its folder was first used")
