"""Decides which replica of an enode to propose as leader, and when. Pure: reports in, a proposal out.

A proposal is only a request: a majority of the replicas' disks elects the leader. A late, duplicate or wrong proposal
only costs time. A proposal should soon name a replica that can win, and must not disturb a current leader.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from ortoo.common.errors import Conflict, NotFound
from ortoo.namesrv.decisions.replicas import FOLLOWER_ROLES, Proposal, ReplicaId, ReplicaReport, ReplicaSet, majority

PROPOSAL_TIMEOUT_S = 1.5
"""The time that a proposed replica has to become leader. Reports from before its end are not counted after it."""
EARLIER_PROPOSALS_MAX = 64
"""The number of earlier proposals that are remembered; more than an enode has replicas."""
TIMEOUT_DOUBLINGS_MAX = 2
"""The patience doubles with each failed proposal, at most this often: a replica with a slow disk votes late."""


@dataclass(frozen=True, slots=True)
class ProposalState:
    """The proposals of a leader for one enode, as far as this name server knows them."""

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
    previous_set_id: int = 0
    """Proposals up to this epoch belong to the enode's previous replica set."""

    @property
    def epoch(self) -> int:
        """The epoch of the last proposal; 0 before the first."""
        return self.proposal.epoch if self.proposal else 0

    def with_stored(self, stored: Proposal | None, now_s: float) -> "ProposalState":
        """A copy after a read of the database, which has the proposal `stored`."""
        epoch = stored.epoch if stored else 0
        if stored is None or epoch <= self.epoch:
            return replace(self, stored_epoch=epoch)
        earlier = self._all_proposals[-EARLIER_PROPOSALS_MAX:]
        return replace(self, proposal=stored, stored_epoch=epoch, since_s=now_s, earlier=earlier)

    def with_set(self, set_id: str) -> "ProposalState":
        """A copy after a report of the replica set `set_id`; failed proposals for an earlier set no longer count."""
        is_another = self.set_id not in ("", set_id)
        return replace(self, set_id=set_id, previous_set_id=self.epoch if is_another else self.previous_set_id)

    def deadline_s(self, members: ReplicaSet) -> float:
        """The time at which the last proposal has failed, unless the proposed replica is leader by then."""
        failed = max(0, len(self.proposals_since_leader(members)) - 1)
        return self.since_s + PROPOSAL_TIMEOUT_S * (1 << min(failed, TIMEOUT_DOUBLINGS_MAX))

    @property
    def _all_proposals(self) -> tuple[Proposal, ...]:
        return (*self.earlier, self.proposal) if self.proposal else self.earlier

    def proposals_since_leader(self, members: ReplicaSet) -> list[Proposal]:
        """All proposals that were made after the last known leader was elected.

        If no leader is known, the first proposal is left out, because its replica may have become leader.
        """
        own = [one for one in self._all_proposals if one.epoch > self.previous_set_id]
        return [one for one in own[members.last_leader is None :] if one.epoch > members.last_leader_epoch]


def next_proposal(members: ReplicaSet, state: ProposalState) -> Proposal | None:
    """The replica to propose as leader now, with a new epoch; None if no proposal is needed."""
    latest = members.configuration()
    if latest is None or len(latest.voters) < 2:
        return None  # a sole voter becomes leader without a proposal
    alive = _alive_voters(members, _voters_by_any(members, latest.voters))
    said_after_s = _reported_since_s(members, alive, state)
    fresh = {one for one in alive if members.reports[one].received_at_s >= said_after_s}
    leader = _suggested_leader(members, alive, fresh, state) or _replacement_leader(members, alive, fresh, state)
    return Proposal(next_epoch(members, state), leader) if leader else None


def next_epoch(members: ReplicaSet, state: ProposalState) -> int:
    """An epoch above all epochs that were proposed, stored, or reported by a replica."""
    reported = [max(one.report.epoch, one.report.suggested_above_epoch) for one in members.reports.values()]
    return max([state.epoch, state.stored_epoch, *reported]) + 1


def _alive_voters(members: ReplicaSet, voters: Collection[ReplicaId]) -> dict[ReplicaId, ReplicaReport]:
    return {one.report.replica: one.report for one in members.live_reports() if one.report.replica in voters}


def _voters_by_any(members: ReplicaSet, latest: Collection[ReplicaId]) -> set[ReplicaId]:
    """The voters that the log of any `latest` voter names. A new configuration may have reached only some logs."""
    logs = [one.report for one in members.live_reports() if one.report.replica in latest and one.report.is_electable]
    return {*latest, *(voter for one in logs for voter in one.voters)}


def _is_eligible(report: ReplicaReport, alive: Collection[ReplicaId]) -> bool:
    """Whether the replica may be proposed, and a majority of the voters in its log is `alive`."""
    is_able = report.is_electable and report.role != FOLLOWER_ROLES and report.replica in report.voters
    return is_able and _is_majority(report, alive)


def _is_majority(report: ReplicaReport, some: Collection[ReplicaId]) -> bool:
    """Whether `some` are more than half of the voters that a replica's log names."""
    return sum(one in some for one in report.voters) >= majority(report.voters)


def _reported_since_s(members: ReplicaSet, alive: Mapping[ReplicaId, ReplicaReport], state: ProposalState) -> float:
    """The time from which reports count. Earlier reports do not, while the last proposed replica can still win."""
    proposal = state.proposal
    if proposal is None or proposal.leader not in alive or any(o.epoch > proposal.epoch for o in alive.values()):
        return float("-inf")
    return state.deadline_s(members)


def _suggested_leader(
    members: ReplicaSet,
    alive: Mapping[ReplicaId, ReplicaReport],
    fresh: Collection[ReplicaId],
    state: ProposalState,
) -> ReplicaId | None:
    """The successor that a leader or a candidate requests; None if there is no open request.

    A replica may request itself because others have voted in that epoch for another replica. Then that replica first
    gets its time, and if it has become leader, the request is ignored.
    """

    def is_open(one: ReplicaReport) -> bool:
        above, asks_for_itself = one.suggested_above_epoch, one.suggested_leader == one.replica
        waits = above <= members.last_leader_epoch or (above == state.epoch and one.replica not in fresh)
        return one.suggested_leader is not None and above >= state.epoch and not (asks_for_itself and waits)

    asked = max(filter(is_open, alive.values()), key=lambda one: one.suggested_above_epoch, default=None)
    if asked is None or asked.suggested_leader is None:
        return None
    if any(one.epoch > asked.suggested_above_epoch for one in alive.values()):
        return None  # a candidate has votes already; a leader notifies its successor directly
    named = alive.get(asked.suggested_leader)
    return named.replica if named is not None and _is_eligible(named, alive) else None


def _replacement_leader(
    members: ReplicaSet,
    alive: Mapping[ReplicaId, ReplicaReport],
    fresh: set[ReplicaId],
    state: ProposalState,
) -> ReplicaId | None:
    """The replica with the longest log, if a majority of its voters receives no heartbeats of a leader.

    A stopped leader counts as receiving none. A leader without reports may be unreachable only from here, so it counts
    as running while another voter receives its heartbeats. A replica that still reports as leader may have been frozen
    since, and is not proposed until it has noticed.
    """
    proposed = state.proposal.leader if state.proposal else None
    missing = {one for one in fresh if alive[one].is_leader_silent}
    if members.last_leader is not None and missing:
        former, incarnation = members.last_leader
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

    def is_able(one: ReplicaReport) -> bool:
        # With two replicas, neither knows whether the other one is dead: only the last leader is proposed
        # automatically.
        is_other_of_two = len(one.voters) == 2 and proposed in one.voters and one.replica != proposed
        if one.is_leading or is_other_of_two:
            return False
        return _is_eligible(one, alive) and _is_majority(one, missing)

    # A replica whose proposal failed may be reachable from here but not by a majority, and its additional frames may
    # never be reachable. Its next turn comes after all others. The same holds for a leader that lost its majority,
    # whose term counts as a turn. If it is reachable after all and has a longer log, the candidate withdraws and
    # requests it. Replicas that still receive its heartbeats may be cut off with it, and come last.
    turns, first = {one.leader: one.epoch for one in state.proposals_since_leader(members)}, set(alive)
    if members.last_leader is not None:
        former, incarnation = members.last_leader
        if former in alive and alive[former].incarnation == incarnation:
            turns.setdefault(former, members.last_leader_epoch)
            first = missing
    last = proposed if state.epoch > members.last_leader_epoch else None

    def weight(one: ReplicaReport) -> tuple[object, ...]:
        return -turns.get(one.replica, 0), one.replica in first, one.tail, one.replica != last, -one.replica.number

    best = max(filter(is_able, alive.values()), key=weight, default=None)
    return best.replica if best is not None else None


def operator_choice(members: ReplicaSet, state: ProposalState, number: int, disk: str = "") -> Proposal:
    """The proposal of the replica that an operator chose as leader, with a new epoch.

    Errors: NotFound for an unknown replica, Conflict with the reason why the replica cannot lead now.
    """
    latest = members.configuration()
    if latest is None:
        raise NotFound(f"no replica of enode {members.enode!r} reports; start its replicas first", field="enode")
    chosen = [one for one in latest.voters if one.number == number and disk in ("", one.disk)]
    if not chosen:
        known = ", ".join(str(one.number) for one in latest.voters)
        raise NotFound(f"enode {members.enode!r} has no voter {number}; give one of {known}", field="replica")
    alive = _alive_voters(members, latest.voters)
    report = next((alive[one] for one in chosen if one in alive), None)
    if report is None:
        raise Conflict(f"replica {number} does not report; start the replica first", field="replica")
    leader = members.leader()
    silent = sum(one.is_leader_silent for one in alive.values())
    if leader is not None and silent < majority(latest.voters):
        raise Conflict(f"replica {leader.replica.number} is the leader: transfer leadership instead", field="replica")
    if not report.is_electable:
        raise Conflict(
            f"replica {number} cannot become leader: its log is not complete yet. Wait until it has received the rest "
            "from a leader, or elect another one",
            field="replica",
        )
    ahead = [one for one in alive.values() if one.tail > report.tail]
    best = max((one for one in ahead if one.is_electable), key=lambda one: one.tail, default=None)
    if best is not None:
        raise Conflict(
            f"the log of replica {number} ends at {report.tail.position} in epoch {report.tail.epoch}, that of "
            f"replica {best.replica.number} at {best.tail.position} in epoch {best.tail.epoch}. Frames that only "
            f"replica {best.replica.number} has may have been acknowledged; elect replica {best.replica.number}",
            field="replica",
        )
    # A replica with a damaged disk whose log was longer once does not vote for a shorter log, and cannot become leader.
    if len(alive) - len(ahead) < majority(latest.voters):
        away = ", ".join(str(one.number) for one in latest.voters if one not in alive)
        advice = f"start one of {away}" if away else "ortoo-enode elect --lose makes one disk a set of its own"
        raise Conflict(
            f"{len(alive) - len(ahead)} of {len(latest.voters)} voters can vote for replica {number}, and "
            f"{majority(latest.voters)} are needed: {advice}",
            field="replica",
        )
    return Proposal(next_epoch(members, state), report.replica)
