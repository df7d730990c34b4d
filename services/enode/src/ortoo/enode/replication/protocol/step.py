"""The protocol's step function: from a replica, an event and the time to the new replica and its actions."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ortoo.enode.replication.protocol import changing, driver, electing, following, leading, messages
from ortoo.enode.replication.protocol.events import Action, Event, Flushed, HardStateSaved, Tick
from ortoo.enode.replication.protocol.replica import Replica
from ortoo.enode.replication.protocol.roles import Candidate, Follower, Leader, Voter


def step(member: Replica, event: Event, now_s: float) -> tuple[Replica, tuple[Action, ...]]:
    """Handle one event. `now_s` never goes back in a process, and advances while the machine sleeps."""
    after = replace(member)
    _HANDLERS[type(event)](after, event, now_s)
    wanted, after.pending_actions = after.pending_actions, ()
    return after, wanted


def _on_tick(member: Replica, _: Tick, now_s: float) -> None:
    if isinstance(member.role, Leader):
        leading.on_leader_tick(member, now_s)
    elif isinstance(member.role, Follower):
        following.on_follower_tick(member, now_s)
    else:
        electing.on_leaderless_tick(member, now_s)


def _on_hard_state_saved(member: Replica, event: HardStateSaved, now_s: float) -> None:
    """The newest hard state is saved: only now may it be sent."""
    if event.hard_state != member.hard_state or member.is_hard_state_saved:
        return
    member.is_hard_state_saved = True
    role = member.role
    if isinstance(role, Candidate):
        electing.on_saved_candidate(member, now_s)
    elif isinstance(role, Voter):
        electing.say_promise(member)
    elif isinstance(role, Follower) and role.requested_epoch < 0:
        following.new_stream(member, now_s)


def _on_flushed(member: Replica, event: Flushed, _: float) -> None:
    log = member.log
    if event.truncations != log.truncations or event.position <= log.flushed:
        return
    member.log = replace(log, flushed=min(event.position, log.appended))
    if isinstance(member.role, Leader):
        leading.advance(member)
    else:
        following.on_follower_flushed(member)


def _ignoring_time(handler: Callable[[Replica, Any], None]) -> Callable[[Replica, Any, float], None]:
    """Adapt a handler that does not need the time."""
    return lambda member, event, now_s: handler(member, event)


_HANDLERS: dict[type, Callable[[Replica, Any, float], None]] = {
    Tick: _on_tick,
    HardStateSaved: _on_hard_state_saved,
    Flushed: _on_flushed,
    driver.Proposed: electing.on_proposed,
    messages.RequestVote: electing.on_promise_ask,
    messages.Vote: electing.on_promise,
    messages.StaleEpoch: _ignoring_time(electing.on_newer),
    messages.LeaseReleased: _ignoring_time(electing.on_released),
    messages.TimeoutNow: electing.on_proposed,
    messages.Heartbeat: following.on_heartbeat,
    messages.LogMatchResponse: following.on_match_answer,
    messages.Frames: following.on_frames,
    driver.CutDone: _ignoring_time(following.on_cut_done),
    driver.Appended: leading.on_appended,
    messages.HeartbeatResponse: leading.on_heartbeat_answer,
    messages.LogMatchRequest: _ignoring_time(leading.on_match_ask),
    messages.LogMatched: _ignoring_time(leading.on_matched),
    messages.AppendAck: _ignoring_time(leading.on_ack),
    driver.Shipped: _ignoring_time(leading.on_shipped),
    driver.HandOver: leading.on_hand_over,
    driver.AddLearner: _ignoring_time(changing.on_add),
    driver.Remove: changing.on_remove,
}
