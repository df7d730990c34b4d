"""The protocol's step function: computes the next replica and its actions from a replica, an event and the time."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ortoo.enode.replication.protocol import (
    configuration_changes,
    election,
    events,
    follower,
    leader,
    messages,
)
from ortoo.enode.replication.protocol.events import Action, Event, Flushed, HardStateSaved, StorageChanged, Tick
from ortoo.enode.replication.protocol.replica import Replica
from ortoo.enode.replication.protocol.roles import Candidate, Follower, Leader, Voter


def step(replica: Replica, event: Event, now_s: float) -> tuple[Replica, tuple[Action, ...]]:
    """Handle one event. `now_s` never goes back in a process, and advances while the machine sleeps."""
    after = replace(replica)
    _HANDLERS[type(event)](after, event, now_s)
    wanted, after.pending_actions = after.pending_actions, ()
    return after, wanted


def _on_tick(replica: Replica, _: Tick, now_s: float) -> None:
    if isinstance(replica.role, Leader):
        leader.on_leader_tick(replica, now_s)
    elif isinstance(replica.role, Follower):
        follower.on_follower_tick(replica, now_s)
    else:
        election.on_leaderless_tick(replica, now_s)


def _on_hard_state_saved(replica: Replica, event: HardStateSaved, now_s: float) -> None:
    """The newest hard state is saved, so messages with it may be sent now."""
    if event.hard_state != replica.hard_state or replica.is_hard_state_saved:
        return
    replica.is_hard_state_saved = True
    role = replica.role
    if isinstance(role, Candidate):
        election.on_candidate_saved(replica, now_s)
    elif isinstance(role, Voter):
        election.send_vote(replica)
    elif isinstance(role, Follower) and role.requested_epoch < 0:
        follower.open_stream(replica, now_s)


def _on_storage_changed(replica: Replica, event: StorageChanged, now_s: float) -> None:
    """Note whether the disk has room. Followers tell the leader, which needs it to choose a successor."""
    if replica.can_store != event.can_store:
        replica.can_store, replica.cannot_store_since_s = event.can_store, now_s


def _on_flushed(replica: Replica, event: Flushed, _: float) -> None:
    log = replica.log
    if event.truncations != log.truncations or event.position <= log.flushed:
        return
    replica.log = replace(log, flushed=min(event.position, log.appended))
    if isinstance(replica.role, Leader):
        leader.advance_commit(replica)
    else:
        follower.on_follower_flushed(replica)


def _ignoring_time(handler: Callable[[Replica, Any], None]) -> Callable[[Replica, Any, float], None]:
    """Adapt a handler that does not need the time."""
    return lambda replica, event, now_s: handler(replica, event)


_HANDLERS: dict[type, Callable[[Replica, Any, float], None]] = {
    Tick: _on_tick,
    HardStateSaved: _on_hard_state_saved,
    Flushed: _on_flushed,
    StorageChanged: _on_storage_changed,
    events.LeaderProposed: election.on_leader_proposed,
    messages.RequestVote: election.on_request_vote,
    messages.Vote: election.on_vote,
    messages.StaleEpoch: _ignoring_time(election.on_stale_epoch),
    messages.LeaseReleased: _ignoring_time(election.on_lease_released),
    messages.TimeoutNow: election.on_leader_proposed,
    messages.Heartbeat: follower.on_heartbeat,
    messages.LogMatchResponse: follower.on_log_match_response,
    messages.Frames: follower.on_frames,
    events.Truncated: _ignoring_time(follower.on_truncated),
    events.LogAppended: leader.on_log_appended,
    messages.HeartbeatResponse: _ignoring_time(leader.on_heartbeat_response),
    messages.LogMatchRequest: _ignoring_time(leader.on_log_match_request),
    messages.LogMatched: _ignoring_time(leader.on_log_matched),
    messages.AppendAck: _ignoring_time(leader.on_append_ack),
    events.FramesSent: _ignoring_time(leader.on_frames_sent),
    events.TransferLeadership: leader.on_transfer_leadership,
    events.AddLearner: _ignoring_time(configuration_changes.on_add_learner),
    events.RemoveReplica: configuration_changes.on_remove_replica,
}
