"""The protocol's step function: from a replica, an event and the time to the new replica and its actions."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ortoo.enode.replication.protocol import changing, driver, electing, following, leading, messages
from ortoo.enode.replication.protocol.events import Action, Event, Flushed, ReignSaved, Tick
from ortoo.enode.replication.protocol.replica import Member
from ortoo.enode.replication.protocol.roles import Candidate, Follower, Leader, Voter


def step(member: Member, event: Event, now_s: float) -> tuple[Member, tuple[Action, ...]]:
    """Handle one event. `now_s` never goes back in a process, and advances while the machine sleeps."""
    after = replace(member)
    _HANDLERS[type(event)](after, event, now_s)
    wanted, after.wanted = after.wanted, ()
    return after, wanted


def _on_tick(member: Member, _: Tick, now_s: float) -> None:
    if isinstance(member.role, Leader):
        leading.on_leader_tick(member, now_s)
    elif isinstance(member.role, Follower):
        following.on_follower_tick(member, now_s)
    else:
        electing.on_leaderless_tick(member, now_s)


def _on_reign_saved(member: Member, event: ReignSaved, now_s: float) -> None:
    """The newest hard state is saved: only now may it be sent."""
    if event.reign != member.reign or member.is_saved:
        return
    member.is_saved = True
    role = member.role
    if isinstance(role, Candidate):
        electing.on_saved_candidate(member, now_s)
    elif isinstance(role, Voter):
        electing.say_promise(member)
    elif isinstance(role, Follower) and role.asked_epoch < 0:
        following.new_stream(member, now_s)


def _on_flushed(member: Member, event: Flushed, _: float) -> None:
    log = member.log
    if event.cuts != log.cuts or event.position <= log.flushed:
        return
    member.log = replace(log, flushed=min(event.position, log.appended))
    if isinstance(member.role, Leader):
        leading.advance(member)
    else:
        following.on_follower_flushed(member)


def _timeless(handler: Callable[[Member, Any], None]) -> Callable[[Member, Any, float], None]:
    """Adapt a handler that does not need the time."""
    return lambda member, event, now_s: handler(member, event)


_HANDLERS: dict[type, Callable[[Member, Any, float], None]] = {
    Tick: _on_tick,
    ReignSaved: _on_reign_saved,
    Flushed: _on_flushed,
    driver.Proposed: electing.on_proposed,
    messages.PromiseAsk: electing.on_promise_ask,
    messages.Promise: electing.on_promise,
    messages.Newer: _timeless(electing.on_newer),
    messages.Released: _timeless(electing.on_released),
    messages.HandedOver: electing.on_proposed,
    messages.Heartbeat: following.on_heartbeat,
    messages.MatchAnswer: following.on_match_answer,
    messages.Frames: following.on_frames,
    driver.CutDone: _timeless(following.on_cut_done),
    driver.Appended: leading.on_appended,
    messages.HeartbeatAnswer: leading.on_heartbeat_answer,
    messages.MatchAsk: _timeless(leading.on_match_ask),
    messages.Matched: _timeless(leading.on_matched),
    messages.Ack: _timeless(leading.on_ack),
    driver.Shipped: _timeless(leading.on_shipped),
    driver.HandOver: leading.on_hand_over,
    driver.AddLearner: _timeless(changing.on_add),
    driver.Remove: changing.on_remove,
}
