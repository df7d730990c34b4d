"""How a member leads: one EPOCH frame, then frames to all who follow, and what a majority has is committed."""

from dataclasses import replace

from ortoo.enode.members.changing import with_new_voters, without_strangers
from ortoo.enode.members.driver import Action, Appended, HandOver, Lead, Refused, Send, Ship, Shipped, Suggest
from ortoo.enode.members.following import committed_to
from ortoo.enode.members.identity import MemberId, Process
from ortoo.enode.members.log_outline import EpochFrame
from ortoo.enode.members.member import Member, Outcome, turned
from ortoo.enode.members.messages import (
    Ack,
    HandedOver,
    Heartbeat,
    HeartbeatAnswer,
    MatchAnswer,
    MatchAsk,
    Matched,
    Newer,
    Released,
)
from ortoo.enode.members.roles import Heard, Idle, Leader, Stream

ROUNDS_KEPT = 16


def on_appended(member: Member, event: Appended, now_s: float) -> Outcome:
    """Send it to all who follow. The first that is appended is the EPOCH frame, and with it the leader is heard of."""
    role = member.role
    member = replace(member, log=member.log.extended(event.end, event.marks))
    if not isinstance(role, Leader):
        return member, ()
    began = [one for one in event.marks if isinstance(one, EpochFrame) and one.epoch == member.reign.epoch]
    actions: tuple[Action, ...] = ()
    if began:
        member = replace(member, role=replace(role, epoch_end=began[0].end))
        member, actions = _beat(member, now_s)
    after, shipped = _ship_all(member)
    after, committed = advance(after)
    return after, (*actions, *shipped, *committed)


# streams


def on_match_ask(member: Member, ask: MatchAsk) -> Outcome:
    """Say where the logs part, and know the follower by this stream from now on."""
    role, log = member.role, member.log
    if ask.epoch < member.reign.epoch:
        return member, (Send(ask.follower.member, Newer(member.reign.epoch)),)
    if not isinstance(role, Leader) or ask.epoch != member.reign.epoch or ask.follower.member not in member.members:
        return member, ()
    known = role.stream_of(ask.follower.member)
    if known and (known.follower.incarnation, known.number) > (ask.follower.incarnation, ask.stream):
        return member, ()
    if not known or (known.follower, known.number) != (ask.follower, ask.stream):
        member = replace(member, role=_with_stream(role, Stream(ask.follower, ask.stream)))
    largest = log.history.largest(ask.last_epoch)
    end = log.history.end_of(largest, log.appended) if largest else None
    answer = MatchAnswer(ask.epoch, ask.follower, ask.stream, largest, log.begin if end is None else end, log.base)
    return member, (Send(ask.follower.member, answer),)


def on_matched(member: Member, message: Matched) -> Outcome:
    """From here on, what is sent on the stream and acknowledged counts."""
    stream = _stream_now(member, message.epoch, message.follower, message.stream)
    log = member.log
    if stream is None or stream.is_matched or not log.begin <= message.position <= log.appended:
        return member, ()
    assert isinstance(member.role, Leader)
    position = message.position
    matched = replace(stream, is_matched=True, sent=position, flushed=min(position, message.flushed))
    member = replace(member, role=_with_stream(member.role, matched))
    after, shipped = _ship_all(member)
    after, committed = advance(after)
    return after, (*shipped, *committed)


def on_shipped(member: Member, event: Shipped) -> Outcome:
    """So much was sent: what comes back for it counts, and the next part may go."""
    stream = _stream_now(member, member.reign.epoch, event.follower, event.stream)
    if stream is None:
        return member, ()
    assert isinstance(member.role, Leader)
    sent = replace(stream, sent=max(stream.sent, event.end), is_shipping=False)
    return _ship_all(replace(member, role=_with_stream(member.role, sent)))


def on_ack(member: Member, ack: Ack | HeartbeatAnswer) -> Outcome:
    """Another disk has more."""
    stream = _stream_now(member, ack.epoch, ack.follower, ack.stream)
    if stream is None or ack.flushed <= stream.flushed:
        return member, ()
    assert isinstance(member.role, Leader)
    member = replace(member, role=_with_stream(member.role, replace(stream, flushed=ack.flushed)))
    after, shipped = _ship_all(member)
    after, committed = advance(after)
    return after, (*shipped, *committed)


def on_heartbeat_answer(member: Member, answer: HeartbeatAnswer, now_s: float) -> Outcome:
    """The follower lives, and gave a lease from when the round was sent."""
    role = member.role
    if not isinstance(role, Leader) or answer.epoch != member.reign.epoch:
        return member, ()
    who = answer.follower.member
    heard = Heard(who, max(answer.round, role.heard_of(who).round), now_s)
    kept = tuple(one for one in role.heard if one.member != who)
    after, actions = on_ack(replace(member, role=replace(role, heard=(*kept, heard))), answer)
    if who in after.rules.in_force(after.log).voters or not isinstance(after.role, Leader):
        return after, actions
    after, changed = with_new_voters(after)
    return after, (*actions, *changed)


def _stream_now(member: Member, epoch: int, follower: Process, number: int) -> Stream | None:
    role = member.role
    if not isinstance(role, Leader) or epoch != member.reign.epoch:
        return None
    return role.stream_of(follower.member) if member.rules.speaks_now(role, follower, number) else None


def _with_stream(role: Leader, stream: Stream) -> Leader:
    kept = (one for one in role.streams if one.follower.member != stream.follower.member)
    return replace(role, streams=(*kept, stream))


def _ship_all(member: Member) -> Outcome:
    """Let everybody have what is new, each only so far ahead of what it acknowledges.

    Who is so late that the log begins behind it has to match again, and starts at the begin.
    """
    role, begin, appended = member.role, member.log.begin, member.log.appended
    assert isinstance(role, Leader)
    ships: list[Action] = []
    streams: list[Stream] = []
    for one in role.streams:
        limit = min(appended, member.rules.counted_position(one) + member.limits.window_bytes)
        if one.is_matched and one.sent < begin:
            streams.append(Stream(one.follower, one.number))
        elif one.is_matched and not one.is_shipping and one.sent < limit:
            ships.append(Ship(one.follower, one.number, one.sent, limit))
            streams.append(replace(one, is_shipping=True))
        else:
            streams.append(one)
    return replace(member, role=replace(role, streams=tuple(streams))), tuple(ships)


def deletable_below(member: Member, keep_bytes: int) -> int:
    """Up to where a `BeginFrame` may go: what a follower still needs stays, unless it is more than `keep_bytes`."""
    log, role = member.log, member.role
    assert isinstance(role, Leader)
    positions = [member.rules.counted_position(one) for one in role.streams]
    return min([log.committed, *(one for one in positions if one >= log.appended - keep_bytes)])


# commitment


def advance(member: Member) -> Outcome:
    """Commit what a majority has. With its EPOCH frame committed, the leader serves."""
    role, rules = member.role, member.rules
    assert isinstance(role, Leader)
    position = rules.commit_position(member.log, role, member.me.member)
    if position <= member.log.committed or not rules.commits(role, position):
        return _serve(member)
    member, actions = committed_to(member, position)
    member, served = _serve(without_strangers(member))
    return member, (*actions, *served)


def _serve(member: Member) -> Outcome:
    role = member.role
    assert isinstance(role, Leader)
    actions: tuple[Action, ...] = ()
    if not role.is_serving and member.rules.may_serve(role, member.log.committed):
        member, actions = replace(member, role=replace(role, is_serving=True)), (Lead(member.reign.epoch),)
    member, changed = with_new_voters(member)
    member, handed = _hand_over(member)
    return member, (*actions, *changed, *handed)


# the clock


def on_leader_tick(member: Member, now_s: float) -> Outcome:
    """Send heartbeats; give up when no majority answers, for then somebody else may lead already."""
    role = member.role
    assert isinstance(role, Leader)
    members = member.rules.in_force(member.log)
    if 1 + len(member.answering(members, now_s)) < members.majority:
        return turned(member, Idle())
    if role.successor is not None and now_s >= role.hand_over_until_s:
        role = replace(role, successor=None)
        member = replace(member, role=role)
    if now_s < role.next_heartbeat_s or not role.epoch_end:
        return member, ()
    return _beat(member, now_s)


def _beat(member: Member, now_s: float) -> Outcome:
    role = member.role
    assert isinstance(role, Leader)
    number = role.rounds[-1][0] + 1 if role.rounds else 1
    rounds = (*role.rounds[1 - ROUNDS_KEPT :], (number, now_s))
    after = replace(member, role=replace(role, rounds=rounds, next_heartbeat_s=now_s + member.limits.heartbeat_s))
    return after, tuple(Send(one, _beat_for(after, one, number)) for one in member.members)


def _beat_for(member: Member, to: MemberId, number: int) -> Heartbeat:
    assert isinstance(member.role, Leader)
    stream = member.role.stream_of(to)
    known = (stream.follower.incarnation, stream.number) if stream and stream.is_matched else (0, 0)
    return Heartbeat(member.reign.epoch, member.me, number, member.log.committed, member.log.appended, *known)


# handing over


def on_hand_over(member: Member, event: HandOver, now_s: float) -> Outcome:
    """Append nothing more; when everything is committed and the successor has it, let it lead."""
    role = member.role
    if not isinstance(role, Leader) or event.successor not in member.rules.in_force(member.log).voters:
        return member, ()
    if event.successor == member.me.member:
        return member, ()
    if event.successor not in member.answering(member.log.members, now_s):
        reason = f"member {event.successor.number} does not answer: hand over to one that follows"
        return member, (Refused(reason),)
    until_s = now_s + member.limits.silence_s
    return _hand_over(replace(member, role=replace(role, successor=event.successor, hand_over_until_s=until_s)))


def _hand_over(member: Member) -> Outcome:
    role, log = member.role, member.log
    assert isinstance(role, Leader)
    if role.successor is None or log.committed < log.appended:
        return member, ()
    stream = role.stream_of(role.successor)
    if stream is None or member.rules.counted_position(stream) < log.appended:
        return member, ()
    epoch = member.reign.epoch
    after, deposed = turned(member, Idle())
    released = tuple(Send(one, Released(epoch, member.me)) for one in member.members)
    told = Send(role.successor, HandedOver(epoch + 1, role.successor))
    return after, (*deposed, *released, told, Suggest(role.successor, epoch))
