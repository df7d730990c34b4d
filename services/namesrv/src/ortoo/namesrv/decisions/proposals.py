"""Decides which replica of an enode to propose as leader, and when. Pure: reports in, a proposal out.

A proposal is only a request: a majority of the replicas' disks elects the leader. A late, duplicate or wrong proposal
only costs time. A proposal should soon name a replica that can win, and must not disturb a current leader.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from ortoo.common.errors import Conflict, NotFound
from ortoo.namesrv.decisions.replicas import FOLLOWS_ONLY, MemberId, MemberReport, MemberSet, Proposal, majority

PATIENCE_S = 1.5
"""The time that a proposed replica has to become leader. Reports from before its end are not counted after it."""
EARLIER_MAX = 64
"""The number of earlier proposals that are remembered; more than an enode has replicas."""
PATIENCE_DOUBLES = 2
"""The patience doubles with each failed proposal, at most this often: a replica with a slow disk votes late."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One name server's knowledge of an enode's proposals."""

    proposal: Proposal | None = None
    """The last proposal, by epoch; it may be newer than the one in the database."""
    stored_epoch: int = 0
    """The epoch in the database, which a new proposal replaces. After a restore it is older than `proposal`."""
    since_s: float = 0.0
    """When this name server read the proposal."""
    earlier: tuple[Proposal, ...] = ()
    """Proposals that this name server read before."""
    set_id: str = ""
    """The id of the enode's replica set."""
    before_set: int = 0
    """Proposals up to this epoch belong to the enode's previous replica set."""

    @property
    def epoch(self) -> int:
        """The epoch of the last proposal; 0 before the first."""
        return self.proposal.epoch if self.proposal else 0

    def with_stored(self, stored: Proposal | None, now_s: float) -> "Standing":
        """The state after the database was read."""
        epoch = stored.epoch if stored else 0
        if stored is None or epoch <= self.epoch:
            return replace(self, stored_epoch=epoch)
        earlier = self._all[-EARLIER_MAX:]
        return replace(self, proposal=stored, stored_epoch=epoch, since_s=now_s, earlier=earlier)

    def with_set(self, set_id: str) -> "Standing":
        """The state when a set reports as the enode; failed proposals of another set do not count for this one."""
        is_another = self.set_id not in ("", set_id)
        return replace(self, set_id=set_id, before_set=self.epoch if is_another else self.before_set)

    def patient_until_s(self, members: MemberSet) -> float:
        """The time until which the last proposed replica may become leader."""
        failed = max(0, len(self.turns(members)) - 1)
        return self.since_s + PATIENCE_S * (1 << min(failed, PATIENCE_DOUBLES))

    @property
    def _all(self) -> tuple[Proposal, ...]:
        return (*self.earlier, self.proposal) if self.proposal else self.earlier

    def turns(self, members: MemberSet) -> list[Proposal]:
        """All proposals since the last known leader. Without one, the first may have won and is left out."""
        own = [one for one in self._all if one.epoch > self.before_set]
        return [one for one in own[members.led_by is None :] if one.epoch > members.led_epoch]


def wanted(members: MemberSet, standing: Standing) -> Proposal | None:
    """The replica to propose now, and its epoch; None if no proposal is needed."""
    latest = members.configuration()
    if latest is None or len(latest.voters) < 2:
        return None  # a sole voter becomes leader without a proposal
    alive = _alive_voters(members, _named_by_any(members, latest.voters))
    said_after_s = _said_after_s(members, alive, standing)
    fresh = {one for one in alive if members.reports[one].at_s >= said_after_s}
    leader = _suggested(members, alive, fresh, standing) or _missed(members, alive, fresh, standing)
    return Proposal(next_epoch(members, standing), leader) if leader else None


def next_epoch(members: MemberSet, standing: Standing) -> int:
    """An epoch above all known ones: proposed, stored, voted for, or requested."""
    reported = [max(one.report.epoch, one.report.suggested_above) for one in members.reports.values()]
    return max([standing.epoch, standing.stored_epoch, *reported]) + 1


def _alive_voters(members: MemberSet, voters: Collection[MemberId]) -> dict[MemberId, MemberReport]:
    return {one.report.member: one.report for one in members.alive() if one.report.member in voters}


def _named_by_any(members: MemberSet, latest: Collection[MemberId]) -> set[MemberId]:
    """The voters named by the log of any `latest` voter; a configuration may have reached only some of the logs."""
    logs = [one.report for one in members.alive() if one.report.member in latest and one.report.is_electable]
    return {*latest, *(voter for one in logs for voter in one.voters)}


def _can_lead(report: MemberReport, there: Collection[MemberId]) -> bool:
    """Whether the replica may be proposed, and its log names a majority that is `there`."""
    is_able = report.is_electable and report.role != FOLLOWS_ONLY and report.member in report.voters
    return is_able and _is_majority(report, there)


def _is_majority(report: MemberReport, some: Collection[MemberId]) -> bool:
    """Whether `some` are more than half of the voters that a replica's log names."""
    return sum(one in some for one in report.voters) >= majority(report.voters)


def _said_after_s(members: MemberSet, alive: Mapping[MemberId, MemberReport], standing: Standing) -> float:
    """Older reports do not count, since the last proposed replica can still win."""
    proposal = standing.proposal
    if proposal is None or proposal.leader not in alive or any(o.epoch > proposal.epoch for o in alive.values()):
        return float("-inf")
    return standing.patient_until_s(members)


def _suggested(
    members: MemberSet,
    alive: Mapping[MemberId, MemberReport],
    fresh: Collection[MemberId],
    standing: Standing,
) -> MemberId | None:
    """The successor that a leader or a candidate requests; None if the request was answered.

    A replica may request itself because others have voted in that epoch for another replica. Then that replica first
    gets its time, and if it has become leader, the request is ignored.
    """

    def is_open(one: MemberReport) -> bool:
        above, asks_for_itself = one.suggested_above, one.suggested == one.member
        waits = above <= members.led_epoch or (above == standing.epoch and one.member not in fresh)
        return one.suggested is not None and above >= standing.epoch and not (asks_for_itself and waits)

    asked = max(filter(is_open, alive.values()), key=lambda one: one.suggested_above, default=None)
    if asked is None or asked.suggested is None:
        return None
    if any(one.epoch > asked.suggested_above for one in alive.values()):
        return None  # a candidate has votes already; a leader notifies its successor directly
    named = alive.get(asked.suggested)
    return named.member if named is not None and _can_lead(named, alive) else None


def _missed(
    members: MemberSet,
    alive: Mapping[MemberId, MemberReport],
    fresh: set[MemberId],
    standing: Standing,
) -> MemberId | None:
    """The replica with the longest log, if a majority of its voters receives no heartbeats of a leader.

    A stopped leader counts as receiving none. A leader without reports may be unreachable only from here, so it counts
    as running while another voter receives its heartbeats. A replica that still reports as leader may have been frozen
    since, and is not proposed until it has noticed.
    """
    proposed = standing.proposal.leader if standing.proposal else None
    missing = {one for one in fresh if alive[one].is_leader_silent}
    if members.led_by is not None and missing:
        former, incarnation = members.led_by
        now, said = alive.get(former), members.reports.get(former)
        if now is not None:
            is_gone = now.incarnation != incarnation and not now.is_leading
        else:
            is_gone = missing == fresh or (said is not None and said.report.is_leaving)
        if is_gone:
            missing.add(former)
    leader = members.leader()
    if leader is not None and _is_majority(leader, alive.keys() - missing):
        return None  # replicas that miss it have an old log with fewer voters, and would only disturb it

    def is_able(one: MemberReport) -> bool:
        # With two replicas, neither knows whether the other one is dead: only the last leader is proposed
        # automatically.
        is_other_of_two = len(one.voters) == 2 and proposed in one.voters and one.member != proposed
        if one.is_leading or is_other_of_two:
            return False
        return _can_lead(one, alive) and _is_majority(one, missing)

    # A replica whose proposal failed may be reachable from here but not by a majority, and its additional frames may
    # never be reachable. Its next turn comes after all others. The same holds for a leader that lost its majority,
    # whose term counts as a turn. If it is reachable after all and has a longer log, the candidate withdraws and
    # requests it. Replicas that still receive its heartbeats may be cut off with it, and come last.
    turns, first = {one.leader: one.epoch for one in standing.turns(members)}, set(alive)
    if members.led_by is not None:
        former, incarnation = members.led_by
        if former in alive and alive[former].incarnation == incarnation:
            turns.setdefault(former, members.led_epoch)
            first = missing
    last = proposed if standing.epoch > members.led_epoch else None

    def weight(one: MemberReport) -> tuple[object, ...]:
        return -turns.get(one.member, 0), one.member in first, one.tail, one.member != last, -one.member.number

    best = max(filter(is_able, alive.values()), key=weight, default=None)
    return best.member if best is not None else None


def elected(members: MemberSet, standing: Standing, number: int, disk: str = "") -> Proposal:
    """An operator's choice. Errors: NotFound, and Conflict with the reason why that replica cannot lead now."""
    latest = members.configuration()
    if latest is None:
        raise NotFound(f"no replica of enode {members.enode!r} reports; start its replicas first", field="enode")
    chosen = [one for one in latest.voters if one.number == number and disk in ("", one.disk)]
    if not chosen:
        known = ", ".join(str(one.number) for one in latest.voters)
        raise NotFound(f"enode {members.enode!r} has no voter {number}; give one of {known}", field="member")
    alive = _alive_voters(members, latest.voters)
    report = next((alive[one] for one in chosen if one in alive), None)
    if report is None:
        raise Conflict(f"replica {number} does not report: start it first", field="member")
    leader = members.leader()
    silent = sum(one.is_leader_silent for one in alive.values())
    if leader is not None and silent < majority(latest.voters):
        raise Conflict(f"replica {leader.member.number} is the leader: transfer leadership instead", field="member")
    if not report.is_electable:
        raise Conflict(
            f"replica {number} does not have its complete log again, so it cannot become leader: wait until it has "
            "followed a leader, or elect another one",
            field="member",
        )
    ahead = [one for one in alive.values() if one.tail > report.tail]
    best = max((one for one in ahead if one.is_electable), key=lambda one: one.tail, default=None)
    if best is not None:
        raise Conflict(
            f"replica {number} ends at {report.tail.position} in epoch {report.tail.epoch}, and replica "
            f"{best.member.number} at {best.tail.position} in epoch {best.tail.epoch}. Frames that only the latter has "
            f"may have been acknowledged; elect replica {best.member.number}",
            field="member",
        )
    # A replica with a damaged disk whose log was longer once does not vote for a shorter log, and cannot become leader.
    if len(alive) - len(ahead) < majority(latest.voters):
        away = ", ".join(str(one.number) for one in latest.voters if one not in alive)
        advice = f"start one of {away}" if away else "ortoo-enode elect --lose makes one disk a set of its own"
        raise Conflict(
            f"{len(alive) - len(ahead)} of {len(latest.voters)} voters can vote for replica {number}, and "
            f"{majority(latest.voters)} are needed: {advice}",
            field="member",
        )
    return Proposal(next_epoch(members, standing), report.member)
