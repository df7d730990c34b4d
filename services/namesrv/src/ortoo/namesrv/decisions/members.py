"""What the members of enodes report about themselves, and what an enode looks like by that. Pure: `now_s` is monotonic.

Every member reports to every name server, so each of them knows all of this by itself and nothing of it is stored.
"""

import enum
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ortoo.common.cluster.names import check_process_name
from ortoo.common.errors import Conflict, Fenced, Invalid, Overloaded
from ortoo.namesrv.decisions.texts import check_address, check_text

MEMBERS_MAX = 64
"""Processes that may report as members of one enode, disks included that wait to be added."""
SETS_MAX = 1_000
RANDOM_PARTS = 1 << 32
"""An incarnation is a count of starts times this, and a random part; a smaller number is a bare count."""
FOLLOWS_ONLY = "SLAVE"
"""The role of a member that no name server proposes."""


class MemberId(NamedTuple):
    """A member of an enode: its number, and the disk that it had when it was admitted."""

    number: int
    disk: str


class LogTail(NamedTuple):
    """Where a log ends. The greater one is the more recent: the later epoch, and within it the longer log."""

    epoch: int
    position: int


class Proposal(NamedTuple):
    """Who is to lead, and in which epoch."""

    epoch: int
    leader: MemberId


class MemberState(enum.IntEnum):
    """What a member is; the numbers are those of the wire."""

    UNSPECIFIED = 0
    LEADING = 1
    FOLLOWING = 2
    LEARNING = 3
    AWAY = 4
    WAITING = 5


@dataclass(frozen=True, slots=True)
class MemberReport:
    """What a member says of itself and its log."""

    enode: str
    set_id: str
    """Empty for an empty disk, which waits to be added."""
    member: MemberId
    incarnation: int
    address: str
    member_address: str
    epoch: int = 0
    is_leading: bool = False
    tail: LogTail = LogTail(0, 0)
    is_electable: bool = False
    is_leader_silent: bool = False
    suggested: MemberId | None = None
    suggested_above: int = 0
    voters: tuple[MemberId, ...] = ()
    learners: tuple[MemberId, ...] = ()
    committed: int = 0
    role: str = ""
    is_leaving: bool = False
    made_from: str = ""
    """The id of the store or the set that an operator made this set of."""


@dataclass(frozen=True, slots=True)
class Reported:
    """A report, and when it came."""

    report: MemberReport
    at_s: float


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """A member as it is to be shown; of one that never reported here only its id and state are known."""

    member: MemberId
    state: MemberState
    reported: Reported | None = None


class EnodeMember(NamedTuple):
    """A member as routes tell it: no more than what changes seldom."""

    number: int
    disk: str
    state: MemberState
    address: str


@dataclass(slots=True)
class MemberSet:
    """The members of one enode, by what they report. One that is away is remembered for what it said last."""

    enode: str
    set_id: str = ""
    reports: dict[MemberId, Reported] = field(default_factory=dict)
    living: set[MemberId] = field(default_factory=set)
    led_by: tuple[MemberId, int] | None = None
    """The member that was last seen leading, in which start of its process."""
    led_epoch: int = 0
    """In which epoch it led."""
    take_overs: int = 0
    """How often another member led than before, since this name server looks."""
    last: MemberReport | None = None
    """The last word about who votes, also of those who are gone."""

    def alive(self) -> list[Reported]:
        """The last reports of those who are there and have the log, by member."""
        return [self.reports[one] for one in sorted(self.living) if self.reports[one].report.set_id]

    def leader(self) -> MemberReport | None:
        """Who leads, as it says itself; of two that say so, the one in the later epoch."""
        leading = [one.report for one in self.alive() if one.report.is_leading]
        return max(leading, key=lambda one: one.epoch, default=None)

    def configuration(self) -> MemberReport | None:
        """The report whose log has the last word about who votes and who learns; None while nobody there names any.

        A damaged disk tells how far it once was, while the log that names its voters may end long before.
        """
        named = [one.report for one in self.alive() if one.report.voters]
        return max(named, key=lambda one: (one.is_electable, one.tail), default=None)

    def statuses(self) -> list[MemberStatus]:
        """All members, by number, and the empty disks that wait to be added.

        One that is of the set already waits as well, as long as no log names it: the leader let it in, and was asked
        for something else then, or is gone.
        """
        latest, leader = self.configuration() or self.last, self.leader()
        voters, learners = (latest.voters, latest.learners) if latest else ((), ())
        known = {*voters, *learners}
        waiting = {one for one in self.living - known if not self.reports[one].report.voters}

        def state(member: MemberId) -> MemberState:
            if member in waiting:
                return MemberState.WAITING
            if member not in self.living:
                return MemberState.AWAY
            if leader is not None and member == leader.member:
                return MemberState.LEADING
            return MemberState.FOLLOWING if member in voters else MemberState.LEARNING

        return [MemberStatus(one, state(one), self.reports.get(one)) for one in sorted(known | waiting)]

    def route(self) -> tuple[EnodeMember, ...]:
        """All members as routes tell them."""
        return tuple(
            EnodeMember(*one.member, one.state, one.reported.report.address if one.reported else "")
            for one in self.statuses()
        )

    def missing(self) -> list[MemberId]:
        """Voters that are not there."""
        latest = self.configuration()
        return [one for one in latest.voters if one not in self.living] if latest else []


class Members:
    """The members of all enodes."""

    def __init__(self, lease_s: float) -> None:
        """Begin with nobody; a report holds for `lease_s`."""
        self.lease_s = lease_s
        self.sets: dict[str, MemberSet] = {}

    def put(self, report: MemberReport, now_s: float) -> MemberSet:
        """Take over what a member says. Errors: Invalid, Conflict (another set has the name), Fenced, Overloaded."""
        _check(report)
        known = self.sets.get(report.enode)
        if known is None:
            if len(self.sets) >= SETS_MAX:
                raise Overloaded(f"{SETS_MAX} enodes have members here, which is the most; stop some")
            known = self.sets[report.enode] = MemberSet(report.enode)
        self._check_set(known, report, now_s)
        before = known.reports.get(report.member)
        if before is None and len(known.reports) >= MEMBERS_MAX:
            raise Overloaded(f"{MEMBERS_MAX} processes report as members of {report.enode!r}; stop some")
        is_copy = before is not None and report.member in known.living and self._is_copy(before, report, now_s)
        if before is not None and not is_copy and _is_older(report.incarnation, before.report.incarnation):
            raise Fenced(
                f"a later start of member {report.member.number} of enode {report.enode!r} has reported, at "
                f"{before.report.address}; stop one of the two. If there is only one, its disk was put back from an "
                "older copy, and has forgotten what it acknowledged and promised: stop it, empty its folder, and admit "
                "it as a new replica",
                field="incarnation",
            )
        if before is not None and is_copy:
            raise Conflict(
                f"two processes have copies of the disk of member {report.member.number} of enode {report.enode!r}, at "
                f"{before.report.member_address} and at {report.member_address}; stop one of them, and empty its disk",
                field="member_address",
                retry_after_ms=max(1, math.ceil((before.at_s + self.lease_s - now_s) * 1000)),
            )
        known.set_id = report.set_id or known.set_id
        known.reports[report.member] = Reported(report, now_s)
        known.last = known.configuration() or known.last
        (known.living.discard if report.is_leaving else known.living.add)(report.member)
        _note_leader(known)
        return known

    def expire(self, now_s: float) -> list[MemberSet]:
        """End the reports whose time is over; the sets of those who are gone with that."""
        changed = []
        for one in self.sets.values():
            gone = {member for member in one.living if one.reports[member].at_s + self.lease_s <= now_s}
            if gone:
                one.living -= gone
                changed.append(one)
            latest = one.configuration()
            named = {*latest.voters, *latest.learners} if latest else one.reports.keys()
            for member in [m for m in one.reports if m not in one.living and m not in named]:
                del one.reports[member]
        return changed

    def _is_copy(self, before: Reported, report: MemberReport, now_s: float) -> bool:
        """Whether the same start of a disk that has a log speaks from two places."""
        same = _is_same_start(before.report.incarnation, report.incarnation)
        same = same and report.set_id == before.report.set_id != ""
        return same and before.report.member_address != report.member_address and before.at_s + self.lease_s > now_s

    def _check_set(self, known: MemberSet, report: MemberReport, now_s: float) -> None:
        """One set has the name as long as one of its members is there; then another may have it."""
        if not report.set_id or known.set_id in ("", report.set_id):
            return
        others = [one for one in known.alive() if one.at_s + self.lease_s > now_s]
        if others:
            raise Conflict(
                f"enode {report.enode!r} is the set of members {known.set_id}, of which member "
                f"{others[0].report.member.number} is alive at {others[0].report.address}, and this member is of "
                f"{report.set_id}; give this enode another name, or stop the other and retry",
                field="set_id",
                retry_after_ms=max(1, math.ceil((max(one.at_s for one in others) + self.lease_s - now_s) * 1000)),
            )
        self.sets[known.enode].reports.clear()
        known.living.clear()
        known.last = None
        known.led_by, known.led_epoch = None, 0


def _is_same_start(one: int, other: int) -> bool:
    """Whether two numbers are of one start of a disk, or of starts of two copies of it, which count alike."""
    return one == other or (min(one, other) >= RANDOM_PARTS and one // RANDOM_PARTS == other // RANDOM_PARTS)


def _is_older(incarnation: int, known: int) -> bool:
    """Whether a start is not behind a known one. A disk that was put back counts the known ones once more."""
    return incarnation < known or (incarnation != known and _is_same_start(incarnation, known))


def _note_leader(known: MemberSet) -> None:
    leader = known.leader()
    if leader is None or leader.epoch < known.led_epoch:
        return
    led_by = (leader.member, leader.incarnation)
    if known.led_by is not None and known.led_by[0] != leader.member:
        known.take_overs += 1
    known.led_by, known.led_epoch = led_by, leader.epoch


def majority(voters: Collection[MemberId]) -> int:
    """More than half."""
    return len(voters) // 2 + 1


def _check(report: MemberReport) -> None:
    check_process_name(report.enode, "enode")
    if report.set_id:
        check_text(report.set_id, "set_id", "the id that the set got when it began")
    for name in ("address", "member_address"):
        check_address(getattr(report, name), name)
    _check_ids("member", [report.member])
    for name in ("voters", "learners"):
        ids: tuple[MemberId, ...] = getattr(report, name)
        if len(ids) > MEMBERS_MAX:
            raise Invalid(f"{len(ids)} members; expected at most {MEMBERS_MAX}", field=name)
        _check_ids(name, ids)
    if report.suggested is not None:
        _check_ids("suggested", [report.suggested])


def _check_ids(name: str, ids: Iterable[MemberId]) -> None:
    for one in ids:
        if one.number < 1:
            raise Invalid(f"{one.number}; give the member's number, 1 or more", field=f"{name}.number")
        check_text(one.disk, f"{name}.disk", "the id that the disk got when its folder was claimed")
