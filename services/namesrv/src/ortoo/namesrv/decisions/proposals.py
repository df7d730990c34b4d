"""Whom to propose as leader of an enode, and when. Pure: reports in, a proposal out.

A proposal decides nothing: a majority of the members' disks does. So what is said here may be late, doubled or wrong,
and costs time at worst. What it must do is name somebody who can win, soon, and not disturb who leads.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from ortoo.common.errors import Conflict, NotFound
from ortoo.namesrv.decisions.members import FOLLOWS_ONLY, MemberId, MemberReport, MemberSet, Proposal, majority

PATIENCE_S = 1.5
"""How long a proposed member has to become the leader; what others said before counts no more after it."""
EARLIER_MAX = 64
"""So many earlier proposals are remembered: more than an enode has members."""
PATIENCE_DOUBLES = 2
"""It doubles with each proposal that failed since somebody led, so often at most: a slow disk promises late."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What one name server knows of an enode's proposals."""

    proposal: Proposal | None = None
    """The last one, by its epoch, whatever the database says now."""
    stored_epoch: int = 0
    """What the database has: a new proposal replaces exactly that. A restored database has an older one."""
    since_s: float = 0.0
    """When this name server heard of the proposal."""
    earlier: tuple[Proposal, ...] = ()
    """Those that this name server heard of before."""
    set_id: str = ""
    """Of which set of members the enode is."""
    before_set: int = 0
    """Proposals up to this epoch were of the set that was the enode before."""

    @property
    def epoch(self) -> int:
        """Of the last proposal; 0 before the first."""
        return self.proposal.epoch if self.proposal else 0

    def with_stored(self, stored: Proposal | None, now_s: float) -> "Standing":
        """What is known after a look into the database."""
        epoch = stored.epoch if stored else 0
        if stored is None or epoch <= self.epoch:
            return replace(self, stored_epoch=epoch)
        earlier = self._all[-EARLIER_MAX:]
        return replace(self, proposal=stored, stored_epoch=epoch, since_s=now_s, earlier=earlier)

    def with_set(self, set_id: str) -> "Standing":
        """What is known when a set says that it is the enode: what another one failed at is no turn of this one's."""
        is_another = self.set_id not in ("", set_id)
        return replace(self, set_id=set_id, before_set=self.epoch if is_another else self.before_set)

    def patient_until_s(self, members: MemberSet) -> float:
        """Until when who was proposed last may become the leader."""
        failed = max(0, len(self.turns(members)) - 1)
        return self.since_s + PATIENCE_S * (1 << min(failed, PATIENCE_DOUBLES))

    @property
    def _all(self) -> tuple[Proposal, ...]:
        return (*self.earlier, self.proposal) if self.proposal else self.earlier

    def turns(self, members: MemberSet) -> list[Proposal]:
        """All proposals since somebody led. Who has never seen a leader cannot tell whether the first one won."""
        own = [one for one in self._all if one.epoch > self.before_set]
        return [one for one in own[members.led_by is None :] if one.epoch > members.led_epoch]


def wanted(members: MemberSet, standing: Standing) -> Proposal | None:
    """Whom to propose now, and under which epoch; None while there is nothing to propose."""
    latest = members.configuration()
    if latest is None or len(latest.voters) < 2:
        return None  # a sole voter leads by itself
    alive = _alive_voters(members, _named_by_any(members, latest.voters))
    said_after_s = _said_after_s(members, alive, standing)
    fresh = {one for one in alive if members.reports[one].at_s >= said_after_s}
    leader = _suggested(members, alive, fresh, standing) or _missed(members, alive, fresh, standing)
    return Proposal(next_epoch(members, standing), leader) if leader else None


def next_epoch(members: MemberSet, standing: Standing) -> int:
    """Above all that was proposed, stored, promised or asked for, as far as is known here."""
    reported = [max(one.report.epoch, one.report.suggested_above) for one in members.reports.values()]
    return max([standing.epoch, standing.stored_epoch, *reported]) + 1


def _alive_voters(members: MemberSet, voters: Collection[MemberId]) -> dict[MemberId, MemberReport]:
    return {one.report.member: one.report for one in members.alive() if one.report.member in voters}


def _named_by_any(members: MemberSet, latest: Collection[MemberId]) -> set[MemberId]:
    """The voters by the log of any of the `latest` ones, for each stands by its own: the last word may reach nobody."""
    logs = [one.report for one in members.alive() if one.report.member in latest and one.report.is_electable]
    return {*latest, *(voter for one in logs for voter in one.voters)}


def _can_lead(report: MemberReport, there: Collection[MemberId]) -> bool:
    """Whether it may be proposed, and by its own log those that are there could be its majority."""
    is_able = report.is_electable and report.role != FOLLOWS_ONLY and report.member in report.voters
    return is_able and _is_majority(report, there)


def _is_majority(report: MemberReport, some: Collection[MemberId]) -> bool:
    """Whether they are more than half of the voters that a member's log names."""
    return sum(one in some for one in report.voters) >= majority(report.voters)


def _said_after_s(members: MemberSet, alive: Mapping[MemberId, MemberReport], standing: Standing) -> float:
    """What was said before does not count: whoever was proposed last can still win."""
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
    """Whom a leader that hands over, or a candidate that steps back, asks for; nobody when that was answered.

    Who asks for itself, because others have promised that epoch already, lets whom they promised it to have its time;
    and in vain when that one has led.
    """

    def is_open(one: MemberReport) -> bool:
        above, asks_for_itself = one.suggested_above, one.suggested == one.member
        waits = above <= members.led_epoch or (above == standing.epoch and one.member not in fresh)
        return one.suggested is not None and above >= standing.epoch and not (asks_for_itself and waits)

    asked = max(filter(is_open, alive.values()), key=lambda one: one.suggested_above, default=None)
    if asked is None or asked.suggested is None:
        return None
    if any(one.epoch > asked.suggested_above for one in alive.values()):
        return None  # somebody stands already, and has promises: a leader that hands over tells its successor itself
    named = alive.get(asked.suggested)
    return named.member if named is not None and _can_lead(named, alive) else None


def _missed(
    members: MemberSet,
    alive: Mapping[MemberId, MemberReport],
    fresh: set[MemberId],
    standing: Standing,
) -> MemberId | None:
    """Who has the most, when a majority of its voters hears no leader. A leader that is gone hears none either.

    One that only reports no more may be cut off from here alone: it is not gone while another voter hears it. One that
    still says it leads may be frozen since: it is not proposed before it has noticed.
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
        return None  # whoever misses it by an old log, which names fewer voters, would only disturb

    def is_able(one: MemberReport) -> bool:
        # Of two, nobody can tell whether the other one is dead: only who led leads again by itself.
        is_other_of_two = len(one.voters) == 2 and proposed in one.voters and one.member != proposed
        if one.is_leading or is_other_of_two:
            return False
        return _can_lead(one, alive) and _is_majority(one, missing)

    # Whoever failed may be heard here and by no majority, and what it has more than the others may never be reached: it
    # has its next turn after all others. So has a leader that lost its majority, for its reign was a turn: should it be
    # reached all the same, and have more, the one that stands steps back and asks for it. Who hears that leader still
    # may be cut off with it, and stands for nothing as yet.
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
    """An operator's choice. Errors: NotFound; Conflict, which says why that member cannot lead now."""
    latest = members.configuration()
    if latest is None:
        raise NotFound(f"no member of enode {members.enode!r} reports; start them first", field="enode")
    chosen = [one for one in latest.voters if one.number == number and disk in ("", one.disk)]
    if not chosen:
        known = ", ".join(str(one.number) for one in latest.voters)
        raise NotFound(f"enode {members.enode!r} has no voter {number}; give one of {known}", field="member")
    alive = _alive_voters(members, latest.voters)
    report = next((alive[one] for one in chosen if one in alive), None)
    if report is None:
        raise Conflict(f"member {number} does not report: start it first", field="member")
    leader = members.leader()
    silent = sum(one.is_leader_silent for one in alive.values())
    if leader is not None and silent < majority(latest.voters):
        raise Conflict(f"member {leader.member.number} leads: hand over instead", field="member")
    if not report.is_electable:
        raise Conflict(
            f"member {number} has not all of its log again, so it cannot lead: wait until it has followed a leader, or "
            "elect another one",
            field="member",
        )
    ahead = [one for one in alive.values() if one.tail > report.tail]
    best = max((one for one in ahead if one.is_electable), key=lambda one: one.tail, default=None)
    if best is not None:
        raise Conflict(
            f"member {number} ends at {report.tail.position} in epoch {report.tail.epoch}, and member "
            f"{best.member.number} at {best.tail.position} in epoch {best.tail.epoch}: what that one alone has may "
            f"have been acknowledged; elect member {best.member.number}",
            field="member",
        )
    # A damaged disk that once had more agrees to nobody who has less, and cannot lead itself.
    if len(alive) - len(ahead) < majority(latest.voters):
        away = ", ".join(str(one.number) for one in latest.voters if one not in alive)
        advice = f"start one of {away}" if away else "ortoo-enode elect --lose makes one disk a set of its own"
        raise Conflict(
            f"{len(alive) - len(ahead)} of {len(latest.voters)} voters can agree to member {number}, and "
            f"{majority(latest.voters)} have to: {advice}",
            field="member",
        )
    return Proposal(next_epoch(members, standing), report.member)
