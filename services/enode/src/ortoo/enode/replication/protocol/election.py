"""Elections. Any process may propose a leader at any time; only votes of a majority of disks elect one."""

from dataclasses import replace

from ortoo.enode.replication.protocol.events import (
    AppendEpoch,
    LeaderProposed,
    ReportLeaderSilent,
    RequestElection,
    Send,
)
from ortoo.enode.replication.protocol.messages import LeaseReleased, RequestVote, StaleEpoch, TimeoutNow, Vote
from ortoo.enode.replication.protocol.replica import Replica
from ortoo.enode.replication.protocol.roles import Candidate, Follower, Idle, Leader, Voter


def on_leader_proposed(replica: Replica, event: LeaderProposed | TimeoutNow, now_s: float) -> None:
    """Stand for election if this replica may. It votes for itself first, like any other voter."""
    identity, rules, log = replica.identity, replica.rules, replica.log
    is_mine = event.leader == identity.replica and rules.is_voter(rules.configuration_of(log), identity)
    stands_already = isinstance(replica.role, Candidate | Leader) and event.epoch == replica.hard_state.epoch
    is_able = rules.is_electable(log, replica.hard_state) and rules.may_write(log)
    is_able = is_able and rules.may_stand(event.epoch, replica.released_epoch)
    if not is_mine or stands_already or not is_able:
        return
    if rules.may_vote(replica.hard_state, event.epoch, identity) and _may_vote_now(replica, now_s):
        replica.change_hard_state(replace(replica.hard_state, epoch=event.epoch, leader=identity), Candidate())


def on_request_vote(replica: Replica, request: RequestVote, now_s: float) -> None:
    """Save a vote, which is sent when it is on disk; or repeat an earlier vote."""
    hard_state = replica.hard_state
    if not replica.rules.may_vote(hard_state, request.epoch, request.candidate):
        if request.epoch < hard_state.epoch:
            replica.add_actions(Send(request.candidate.replica, StaleEpoch(hard_state.epoch)))
    elif request.epoch == hard_state.epoch and request.candidate == hard_state.leader:
        if replica.is_hard_state_saved and not isinstance(replica.role, Candidate | Leader | Follower):
            replica.role = Voter()
            send_vote(replica)
    elif _may_vote_now(replica, now_s):
        replica.change_hard_state(replace(hard_state, epoch=request.epoch, leader=request.candidate), Voter())


def _may_vote_now(replica: Replica, now_s: float) -> bool:
    """Whether this replica may vote now. A leader may, because its vote for another replica ends its reads."""
    return isinstance(replica.role, Leader) or replica.rules.has_lease_expired(now_s, replica.lease_until_s)


def on_candidate_saved(replica: Replica, now_s: float) -> None:
    """Count the candidate's own vote, which is on disk now, and request the votes of the other voters."""
    _request_votes(replica)
    on_vote(replica, Vote(replica.hard_state.epoch, replica.identity, replica.log.tail, is_electable=True), now_s)


def _request_votes(replica: Replica) -> None:
    request = RequestVote(replica.hard_state.epoch, replica.identity)
    voters = replica.rules.configuration_of(replica.log).voters
    replica.add_actions(*(Send(one, request) for one in voters if one != replica.identity.replica))


def send_vote(replica: Replica) -> None:
    """Send the vote.

    Invariant: the vote is on disk before it is sent, so a restart does not vote a second time in the epoch.
    """
    hard_state, rules, log = replica.hard_state, replica.rules, replica.log
    tail, is_electable = rules.claimed_tail(log, hard_state), rules.is_electable(log, hard_state)
    replica.add_actions(Send(hard_state.leader.replica, Vote(hard_state.epoch, replica.identity, tail, is_electable)))


def on_vote(replica: Replica, vote: Vote, now_s: float) -> None:
    """Count a vote; become leader with a majority.

    A voter whose log is ahead may have committed frames that this replica lacks. The vote of such a voter does not
    count. If the voter is electable, it is proposed as leader.
    """
    role, rules, log = replica.role, replica.rules, replica.log
    if not isinstance(role, Candidate) or vote.epoch != replica.hard_state.epoch or not replica.is_hard_state_saved:
        return
    configuration = rules.configuration_of(log)
    if not rules.is_voter(configuration, vote.voter):
        return
    if vote.voter != replica.identity and rules.is_log_ahead(vote.tail, log.tail):
        if vote.is_electable:
            replica.change_role(Idle())
            replica.add_actions(RequestElection(vote.voter.replica, vote.epoch))
        return
    kept = tuple(one for one in role.votes if one.voter.replica != vote.voter.replica)
    votes = (*kept, vote)
    if rules.is_majority(configuration, len(votes)):
        replica.role = Leader(since_s=now_s, previous_rounds=replica.round_count)
        replica.add_actions(AppendEpoch(vote.epoch))
    else:
        replica.role = Candidate(votes)


def on_stale_epoch(replica: Replica, message: StaleEpoch) -> None:
    """Request an election above the epoch of `message`, in which a replica voted that cannot follow this leader."""
    if message.epoch <= replica.hard_state.epoch or not isinstance(replica.role, Candidate | Leader):
        return
    if isinstance(replica.role, Candidate):
        replica.change_role(Idle())
    replica.add_actions(RequestElection(replica.identity.replica, message.epoch))


def on_lease_released(replica: Replica, message: LeaseReleased) -> None:
    """End the lease that the leader's heartbeats renewed, because that leader no longer serves reads."""
    if message.leader == replica.hard_state.leader and message.epoch == replica.hard_state.epoch:
        replica.lease_until_s = 0.0


def on_leaderless_tick(replica: Replica, now_s: float) -> None:
    """Stand for election if this replica is the sole voter; otherwise report that no leader is heard."""
    limits = replica.limits
    is_alone = replica.rules.configuration_of(replica.log).voters == (replica.identity.replica,)
    if is_alone and not isinstance(replica.role, Follower | Candidate):
        on_leader_proposed(replica, LeaderProposed(replica.hard_state.epoch + 1, replica.identity.replica), now_s)
    elif now_s - replica.leader_heard_s >= limits.leader_timeout_s:
        if isinstance(replica.role, Candidate) and replica.is_hard_state_saved:
            _request_votes(replica)
        replica.leader_heard_s = now_s - limits.leader_timeout_s + limits.retry_s
        replica.add_actions(ReportLeaderSilent())
