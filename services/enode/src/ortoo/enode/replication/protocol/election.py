"""Elections. Any process may propose a leader at any time; only votes of a majority of disks elect one."""

from dataclasses import replace

from ortoo.enode.replication.protocol.events import AppendEpoch, ReportLeaderSilent, LeaderProposed, Send, RequestElection
from ortoo.enode.replication.protocol.replica import Replica
from ortoo.enode.replication.protocol.messages import TimeoutNow, StaleEpoch, Vote, RequestVote, LeaseReleased
from ortoo.enode.replication.protocol.roles import Candidate, Follower, Idle, Leader, Voter


def on_leader_proposed(member: Replica, event: LeaderProposed | TimeoutNow, now_s: float) -> None:
    """Stand for election if this replica may. It votes for itself first, like any other voter."""
    identity, rules, log = member.identity, member.rules, member.log
    is_mine = event.leader == identity.member and rules.is_voter(rules.configuration_of(log), identity)
    stands_already = isinstance(member.role, Candidate | Leader) and event.epoch == member.hard_state.epoch
    is_able = rules.is_electable(log, member.hard_state) and rules.may_write(log)
    if not is_mine or stands_already or not is_able:
        return
    if rules.may_vote(member.hard_state, event.epoch, identity) and _may_vote_now(member, now_s):
        member.change_hard_state(replace(member.hard_state, epoch=event.epoch, leader=identity), Candidate())


def on_request_vote(member: Replica, request: RequestVote, now_s: float) -> None:
    """Vote, saving the vote before it is sent; or repeat an earlier vote."""
    hard_state = member.hard_state
    if not member.rules.may_vote(hard_state, request.epoch, request.candidate):
        if request.epoch < hard_state.epoch:
            member.add_actions(Send(request.candidate.member, StaleEpoch(hard_state.epoch)))
    elif request.epoch == hard_state.epoch and request.candidate == hard_state.leader:
        if member.is_hard_state_saved and not isinstance(member.role, Candidate | Leader | Follower):
            member.role = Voter()
            send_vote(member)
    elif _may_vote_now(member, now_s):
        member.change_hard_state(replace(hard_state, epoch=request.epoch, leader=request.candidate), Voter())


def _may_vote_now(member: Replica, now_s: float) -> bool:
    """Whether a vote may be given now. A leader may: by its vote for another it stops reading."""
    return isinstance(member.role, Leader) or member.rules.has_lease_expired(now_s, member.lease_until_s)


def on_candidate_saved(member: Replica, now_s: float) -> None:
    """The candidate's own vote is on disk: count it, and request the others' votes."""
    _request_votes(member)
    on_vote(member, Vote(member.hard_state.epoch, member.identity, member.log.tail, is_electable=True), now_s)


def _request_votes(member: Replica) -> None:
    request = RequestVote(member.hard_state.epoch, member.identity)
    voters = member.rules.configuration_of(member.log).voters
    member.add_actions(*(Send(one, request) for one in voters if one != member.identity.member))


def send_vote(member: Replica) -> None:
    """Send the vote, which is on disk."""
    hard_state, rules, log = member.hard_state, member.rules, member.log
    tail, is_electable = rules.claimed_tail(log, hard_state), rules.is_electable(log, hard_state)
    member.add_actions(Send(hard_state.leader.member, Vote(hard_state.epoch, member.identity, tail, is_electable)))


def on_vote(member: Replica, vote: Vote, now_s: float) -> None:
    """Count a vote; become leader with a majority.

    A voter whose log is ahead may have committed frames that this replica lacks. Its vote does not count, and it is
    proposed as leader if it is electable.
    """
    role, rules, log = member.role, member.rules, member.log
    if not isinstance(role, Candidate) or vote.epoch != member.hard_state.epoch or not member.is_hard_state_saved:
        return
    configuration = rules.configuration_of(log)
    if not rules.is_voter(configuration, vote.voter):
        return
    if vote.voter != member.identity and rules.is_log_ahead(vote.tail, log.tail):
        if vote.is_electable:
            member.change_role(Idle())
            member.add_actions(RequestElection(vote.voter.member, vote.epoch))
        return
    kept = tuple(one for one in role.votes if one.voter.member != vote.voter.member)
    votes = (*kept, vote)
    if rules.is_majority(configuration, len(votes)):
        member.role = Leader(since_s=now_s, previous_rounds=member.round_count)
        member.add_actions(AppendEpoch(vote.epoch))
    else:
        member.role = Candidate(votes)


def on_stale_epoch(member: Replica, message: StaleEpoch) -> None:
    """A replica voted in a higher epoch and cannot follow this leader: request an election above that epoch."""
    if message.epoch <= member.hard_state.epoch or not isinstance(member.role, Candidate | Leader):
        return
    if isinstance(member.role, Candidate):
        member.change_role(Idle())
    member.add_actions(RequestElection(member.identity.member, message.epoch))


def on_lease_released(member: Replica, message: LeaseReleased) -> None:
    """End the lease: the leader whose heartbeats it came from no longer reads."""
    if message.leader == member.hard_state.leader and message.epoch == member.hard_state.epoch:
        member.lease_until_s = 0.0


def on_leaderless_tick(member: Replica, now_s: float) -> None:
    """A sole voter stands for election; any other replica reports that it hears no leader."""
    limits = member.limits
    is_alone = member.rules.configuration_of(member.log).voters == (member.identity.member,)
    if is_alone and not isinstance(member.role, Follower | Candidate):
        on_leader_proposed(member, LeaderProposed(member.hard_state.epoch + 1, member.identity.member), now_s)
    elif now_s - member.leader_heard_s >= limits.leader_timeout_s:
        if isinstance(member.role, Candidate) and member.is_hard_state_saved:
            _request_votes(member)
        member.leader_heard_s = now_s - limits.leader_timeout_s + limits.retry_s
        member.add_actions(ReportLeaderSilent())
