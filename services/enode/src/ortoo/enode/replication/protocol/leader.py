"""The leader: it appends one EPOCH frame, replicates frames to followers, and commits frames of a majority."""

from dataclasses import replace

from ortoo.enode.replication.protocol.configuration_changes import forget_strangers, make_new_voters
from ortoo.enode.replication.protocol.events import Appended, HandOver, Lead, Refused, Send, Ship, Shipped, Suggest
from ortoo.enode.replication.protocol.follower import commit
from ortoo.enode.replication.protocol.identity import MemberId, Process
from ortoo.enode.replication.protocol.log_summary import EpochFrame
from ortoo.enode.replication.protocol.replica import Member
from ortoo.enode.replication.protocol.messages import (
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
from ortoo.enode.replication.protocol.roles import Heard, Idle, Leader, Stream

ROUNDS_KEPT = 16


def on_appended(member: Member, event: Appended, now_s: float) -> None:
    """Replicate appended frames. The first is the EPOCH frame, with which the leader's heartbeats begin."""
    role, epoch = member.role, member.reign.epoch
    member.log = member.log.extended(event.end, event.marks)
    if not isinstance(role, Leader):
        return
    began = [one for one in event.marks if isinstance(one, EpochFrame) and one.epoch == epoch]
    if began:
        member.role = replace(role, epoch_end=began[0].end)
        _beat(member, now_s)
    _ship_all(member)
    advance(member)


# streams


def on_match_ask(member: Member, ask: MatchAsk) -> None:
    """Answer where the logs diverge, and use this stream for the follower from now on."""
    role, log = member.role, member.log
    if ask.epoch < member.reign.epoch:
        member.want(Send(ask.follower.member, Newer(member.reign.epoch)))
    if not isinstance(role, Leader) or ask.epoch != member.reign.epoch or ask.follower.member not in member.members:
        return
    known = role.stream_of(ask.follower.member)
    if known and (known.follower.incarnation, known.number) > (ask.follower.incarnation, ask.stream):
        return
    if not known or (known.follower, known.number) != (ask.follower, ask.stream):
        _know(member, Stream(ask.follower, ask.stream))
    largest = log.history.largest(ask.last_epoch)
    end = log.history.end_of(largest, log.appended) if largest else None
    answer = MatchAnswer(ask.epoch, ask.follower, ask.stream, largest, log.begin if end is None else end, log.base)
    member.want(Send(ask.follower.member, answer))


def on_matched(member: Member, message: Matched) -> None:
    """The logs match: acknowledgements on this stream count from now on."""
    stream = _stream_now(member, message.epoch, message.follower, message.stream)
    log, position = member.log, message.position
    if stream is None or stream.is_matched or not log.begin <= position <= log.appended:
        return
    _know(member, replace(stream, is_matched=True, sent=position, flushed=min(position, message.flushed)))
    if rounds := member.leading.rounds:  # the follower ignores a heartbeat before its vote is on disk
        to = message.follower.member
        member.want(Send(to, _beat_for(member, to, rounds[-1][0])))
    _ship_all(member)
    advance(member)


def on_shipped(member: Member, event: Shipped) -> None:
    """Frames up to `end` were sent: acknowledgements up to there count, and the next part may be sent."""
    stream = _stream_now(member, member.reign.epoch, event.follower, event.stream)
    if stream is not None:
        _know(member, replace(stream, sent=max(stream.sent, event.end), is_shipping=False))
        _ship_all(member)


def on_ack(member: Member, ack: Ack | HeartbeatAnswer) -> None:
    """Raise the flushed position of a follower."""
    stream = _stream_now(member, ack.epoch, ack.follower, ack.stream)
    if stream is not None and ack.flushed > stream.flushed:
        _know(member, replace(stream, flushed=ack.flushed))
        _ship_all(member)
        advance(member)


def on_heartbeat_answer(member: Member, answer: HeartbeatAnswer, now_s: float) -> None:
    """Note that the follower answers; its lease runs from the time when the round was sent."""
    role = member.role
    if not isinstance(role, Leader) or answer.epoch != member.reign.epoch or answer.round <= role.rounds_before:
        return
    who = answer.follower.member
    heard = Heard(who, max(answer.round, role.heard_of(who).round), now_s)
    kept = tuple(one for one in role.heard if one.member != who)
    member.role = replace(role, heard=(*kept, heard))
    on_ack(member, answer)
    if isinstance(member.role, Leader):
        advance(member)


def _stream_now(member: Member, epoch: int, follower: Process, number: int) -> Stream | None:
    role = member.role
    if not isinstance(role, Leader) or epoch != member.reign.epoch:
        return None
    return role.stream_of(follower.member) if member.rules.speaks_now(role, follower, number) else None


def _know(member: Member, stream: Stream) -> None:
    """Replace the state of a follower's stream."""
    kept = (one for one in member.leading.streams if one.follower.member != stream.follower.member)
    member.role = replace(member.leading, streams=(*kept, stream))


def _ship_all(member: Member) -> None:
    """Send new frames to all followers, each up to a window beyond its acknowledged position.

    A follower behind the begin of the log has to match again, and starts at the begin.
    """
    role, begin, appended = member.leading, member.log.begin, member.log.appended
    streams: list[Stream] = []
    for one in role.streams:
        limit = min(appended, member.rules.counted_position(one) + member.limits.window_bytes)
        if one.is_matched and one.sent < begin:
            streams.append(Stream(one.follower, one.number))
        elif one.is_matched and not one.is_shipping and one.sent < limit:
            member.want(Ship(one.follower, one.number, one.sent, limit))
            streams.append(replace(one, is_shipping=True))
        else:
            streams.append(one)
    member.role = replace(role, streams=tuple(streams))


def deletable_below(member: Member, keep_bytes: int) -> int:
    """The position up to which segments may be deleted: a follower's next frames stay, up to `keep_bytes`."""
    log = member.log
    positions = [member.rules.counted_position(one) for one in member.leading.streams]
    return min([log.committed, *(one for one in positions if one >= log.appended - keep_bytes)])


# commitment


def advance(member: Member) -> None:
    """Commit frames that a majority has. The leader serves once its EPOCH frame is committed and a majority answered.

    Before that it must not answer reads: they would be refused, and the caller's retry would take longer than this.
    """
    rules = member.rules
    position = rules.commit_position(member.log, member.leading, member.me.member)
    if position > member.log.committed and rules.commits(member.leading, position):
        commit(member, position)
        forget_strangers(member)
    is_late = not member.leading.is_serving and rules.may_serve(member.leading, member.log.committed)
    if is_late and member.is_heard:
        member.role = replace(member.leading, is_serving=True)
        member.want(Lead(member.reign.epoch))
    make_new_voters(member)
    _hand_over(member)


# the clock


def on_leader_tick(member: Member, now_s: float) -> None:
    """Send heartbeats; step down if no majority answers, because another replica may lead already."""
    role, members = member.leading, member.rules.in_force(member.log)
    if 1 + len(member.answering(members, now_s)) < members.majority:
        member.turn(Idle())
        return
    if role.successor is not None and now_s >= role.hand_over_until_s:
        member.role = replace(role, successor=None)
    if now_s >= role.next_heartbeat_s and role.epoch_end:
        _beat(member, now_s)


def _beat(member: Member, now_s: float) -> None:
    role = member.leading
    number = member.rounds_begun = member.rounds_begun + 1
    rounds = (*role.rounds[1 - ROUNDS_KEPT :], (number, now_s))
    member.role = replace(role, rounds=rounds, next_heartbeat_s=now_s + member.limits.heartbeat_s)
    member.want(*(Send(one, _beat_for(member, one, number)) for one in member.members))


def _beat_for(member: Member, to: MemberId, number: int) -> Heartbeat:
    stream = member.leading.stream_of(to)
    known = (stream.follower.incarnation, stream.number) if stream and stream.is_matched else (0, 0)
    return Heartbeat(member.reign.epoch, member.me, number, member.log.committed, member.log.appended, *known)


# transfer of leadership


def on_hand_over(member: Member, event: HandOver, now_s: float) -> None:
    """Stop appending; when everything is committed and the successor has it, transfer leadership."""
    role, successor = member.role, event.successor
    if not isinstance(role, Leader) or successor not in member.rules.in_force(member.log).voters:
        return
    if successor == member.me.member:
        return
    if successor in member.answering(member.log.members, now_s):
        member.role = replace(role, successor=successor, hand_over_until_s=now_s + member.limits.silence_s)
        _hand_over(member)
    else:
        member.want(Refused(f"replica {successor.number} does not answer: choose one that follows"))


def _hand_over(member: Member) -> None:
    successor, log, epoch = member.leading.successor, member.log, member.reign.epoch
    if successor is None or log.committed < log.appended:
        return
    stream = member.leading.stream_of(successor)
    if stream is None or member.rules.counted_position(stream) < log.appended:
        return
    if rounds := member.leading.rounds:
        member.heard_s = rounds[-1][1]  # it reports a missing leader no earlier than its followers do
    member.turn(Idle())
    member.want(*(Send(one, Released(epoch, member.me)) for one in member.members))
    member.want(Send(successor, HandedOver(epoch + 1, successor)), Suggest(successor, epoch))
