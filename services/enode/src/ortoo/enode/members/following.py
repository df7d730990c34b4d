"""How a member follows: find where its log and the leader's part, cut, and take frames in their order."""

from dataclasses import replace

from ortoo.enode.members.driver import (
    Action,
    Committed,
    Cut,
    CutDone,
    DeleteBelow,
    Restart,
    Send,
    Tick,
    Write,
)
from ortoo.enode.members.electing import on_leaderless_tick
from ortoo.enode.members.log_outline import Base
from ortoo.enode.members.member import Member, Outcome, promised, turned
from ortoo.enode.members.messages import Ack, Frames, Heartbeat, HeartbeatAnswer, MatchAnswer, MatchAsk, Matched, Newer
from ortoo.enode.members.roles import Follower, Leader


def on_heartbeat(member: Member, beat: Heartbeat, now_s: float) -> Outcome:
    """Follow whoever leads a promised or a higher epoch; give the lease that the answer says."""
    reign, role = member.reign, member.role
    if not member.rules.obeys(reign, beat.epoch):
        return member, (Send(beat.leader.member, Newer(reign.epoch)),)
    actions: tuple[Action, ...] = ()
    if beat.epoch > reign.epoch:
        follower = Follower(beat.leader, 0, progress_s=now_s)
        member, actions = promised(member, replace(reign, epoch=beat.epoch, leader=beat.leader), follower)
    elif isinstance(role, Leader):
        return member, ()
    elif not isinstance(role, Follower) or role.leader != beat.leader:
        member, actions = turned(member, Follower(beat.leader, 0, progress_s=now_s))
        if member.is_saved:
            member, asked = new_stream(member, now_s)
            actions = (*actions, *asked)
    member = replace(member, heard_s=now_s, lease_until_s=now_s + member.limits.lease_s)
    if not member.is_saved:
        return member, actions
    return _heard(member, beat, actions)


def _heard(member: Member, beat: Heartbeat, actions: tuple[Action, ...]) -> Outcome:
    role = member.role
    assert isinstance(role, Follower)
    is_known = (beat.incarnation, beat.stream) == (member.me.incarnation, role.stream)
    role = replace(role, lacks=not is_known or beat.appended > member.log.appended)
    member, committed = _learn_commit(replace(member, role=role), beat.committed)
    stream, flushed = (role.stream, member.log.flushed) if role.is_matched else (0, 0)
    answer = HeartbeatAnswer(beat.epoch, member.me, beat.round, stream, flushed)
    return member, (*actions, *committed, Send(beat.leader.member, answer))


def new_stream(member: Member, now_s: float) -> Outcome:
    """Ask the leader where the logs part, on a new stream."""
    role = member.role
    assert isinstance(role, Follower)
    number = member.streams_begun + 1
    follower = Follower(role.leader, number, member.log.history.last_epoch, progress_s=now_s)
    return replace(member, role=follower, streams_begun=number), (_ask(member, follower),)


def _ask(member: Member, role: Follower) -> Action:
    return Send(role.leader.member, MatchAsk(member.reign.epoch, member.me, role.stream, role.asked_epoch))


def on_match_answer(member: Member, answer: MatchAnswer, now_s: float) -> Outcome:
    """Keep what both logs have, cut what the leader has not; or ask again, further back."""
    role, log = member.role, member.log
    if not isinstance(role, Follower) or role.is_matched or role.is_cutting or answer.epoch != member.reign.epoch:
        return member, ()
    rules = member.rules
    if not rules.is_answered(member.me, role.stream, answer.follower, answer.stream) or not rules.may_write(log):
        return member, ()
    role = replace(role, progress_s=now_s)
    member = replace(member, role=role)
    base, lower = answer.base, 0
    end = rules.agreed_end(log.history, log.appended, answer.largest, answer.end)
    if end is None and (lower := log.history.largest(answer.largest)):
        asking = replace(role, asked_epoch=lower)
        return replace(member, role=asking), (_ask(member, asking),)
    if end is None and log.begin >= base.position:
        end = log.begin
    if end is None or end < base.position or log.appended == log.begin:
        return _start_again(member, base)
    if end >= log.appended:
        return _matched(member)
    assert end >= log.committed, f"the leader of epoch {answer.epoch} lacks what is committed behind {end}"
    cut = log.cut(end)
    return replace(member, log=cut, role=replace(role, is_cutting=True)), (Cut(end, cut.cuts),)


def _start_again(member: Member, base: Base) -> Outcome:
    """Begin where the leader's log begins, for this one is empty or ends before. First what is owed is saved."""
    role, log, reign = member.role, member.log, member.reign
    assert isinstance(role, Follower)
    if log.appended > log.begin and log.tail > reign.owed:
        return promised(member, replace(reign, owed=log.tail), replace(role, asked_epoch=-1))
    log = log.restarted(base)
    return replace(member, log=log, role=replace(role, is_cutting=True)), (Restart(base, log.cuts),)


def on_cut_done(member: Member, event: CutDone) -> Outcome:
    """The log is what the leader has, as far as it goes; unless another leads since, who will be asked again."""
    role = member.role
    if event.cuts != member.log.cuts:
        return member, ()
    member = replace(member, log=replace(member.log, is_cutting=False))
    return _matched(member) if isinstance(role, Follower) and role.is_cutting else (member, ())


def _matched(member: Member) -> Outcome:
    role, log = member.role, member.log
    assert isinstance(role, Follower)
    matched = Matched(member.reign.epoch, member.me, role.stream, log.appended, log.flushed)
    role = replace(role, is_matched=True, is_cutting=False)
    return replace(member, role=role), (Send(role.leader.member, matched),)


def on_frames(member: Member, frames: Frames, now_s: float) -> Outcome:
    """Write what comes next on this stream; what comes twice or too early is dropped, and sent again when asked for."""
    role, log = member.role, member.log
    if not member.rules.obeys(member.reign, frames.epoch) or not isinstance(role, Follower):
        return member, ()
    is_mine = (frames.follower, frames.stream) == (member.me, role.stream)
    if not role.is_matched or not is_mine or frames.begin != log.appended:
        return member, ()
    member = replace(
        member, log=log.extended(frames.end, frames.marks), role=replace(role, progress_s=now_s), heard_s=now_s
    )
    member, committed = _learn_commit(member, frames.committed)
    return member, (Write(frames.begin, frames.end, frames.content), *committed)


def on_follower_flushed(member: Member) -> Outcome:
    """Tell the leader how far this disk is."""
    role = member.role
    if not isinstance(role, Follower) or not role.is_matched or not member.is_saved:
        return member, ()
    ack = Ack(member.reign.epoch, member.me, role.stream, member.log.flushed)
    return member, (Send(role.leader.member, ack),)


def _learn_commit(member: Member, said: int) -> Outcome:
    role, log = member.role, member.log
    assert isinstance(role, Follower)
    position = member.rules.follower_commit(log, said, is_matched=role.is_matched)
    return (member, ()) if position <= log.committed else committed_to(member, position)


def committed_to(member: Member, position: int) -> Outcome:
    """The member with more committed; what may be deleted goes."""
    log = member.log.committed_to(position)
    actions: tuple[Action, ...] = (Committed(position),)
    if log.begin > member.log.begin:
        actions = (*actions, DeleteBelow(log.begin))
    return replace(member, log=log), actions


def on_follower_tick(member: Member, tick: Tick, now_s: float) -> Outcome:
    """Begin a new stream when nothing comes on this one; say so when the leader itself is silent."""
    role, limits = member.role, member.limits
    assert isinstance(role, Follower)
    actions: tuple[Action, ...] = ()
    is_stuck = now_s - role.progress_s >= limits.retry_s and not role.is_cutting
    if role.lacks and is_stuck and member.is_saved:
        member, actions = new_stream(member, now_s)
    after, said = on_leaderless_tick(member, tick, now_s)
    return after, (*actions, *said)
