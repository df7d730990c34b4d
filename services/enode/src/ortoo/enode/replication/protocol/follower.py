"""The follower: it finds where its log and the leader's diverge, truncates, and appends frames in order."""

from dataclasses import replace

from ortoo.enode.replication.protocol.events import Committed, Contradicted, Cut, CutDone, DeleteBelow, Restart, Send, Write
from ortoo.enode.replication.protocol.election import on_leaderless_tick
from ortoo.enode.replication.protocol.log_summary import Base
from ortoo.enode.replication.protocol.replica import Member
from ortoo.enode.replication.protocol.messages import Ack, Frames, Heartbeat, HeartbeatAnswer, MatchAnswer, MatchAsk, Matched, Newer
from ortoo.enode.replication.protocol.roles import Follower, Leader


def on_heartbeat(member: Member, beat: Heartbeat, now_s: float) -> None:
    """Follow the leader of the current or a higher epoch, and grant it the lease that the answer confirms."""
    reign, role = member.reign, member.role
    if not member.rules.obeys(reign, beat.epoch):
        member.want(Send(beat.leader.member, Newer(reign.epoch)))
        return
    if beat.epoch > reign.epoch:
        follower = Follower(beat.leader, 0, progress_s=now_s)
        member.promise(replace(reign, epoch=beat.epoch, leader=beat.leader), follower)
    elif isinstance(role, Leader):
        return
    elif not isinstance(role, Follower) or role.leader != beat.leader:
        member.turn(Follower(beat.leader, 0, progress_s=now_s))
        if member.is_saved:
            new_stream(member, now_s)
    member.heard_s, member.lease_until_s = now_s, now_s + member.limits.lease_s
    if member.is_saved:
        _heard(member, beat)


def _heard(member: Member, beat: Heartbeat) -> None:
    is_known = (beat.incarnation, beat.stream) == (member.me.incarnation, member.following.stream)
    role = member.role = replace(member.following, lacks=not is_known or beat.appended > member.log.appended)
    _learn_commit(member, beat.committed)
    stream, flushed = (role.stream, member.log.flushed) if role.is_matched else (0, 0)
    member.want(Send(beat.leader.member, HeartbeatAnswer(beat.epoch, member.me, beat.round, stream, flushed)))


def new_stream(member: Member, now_s: float) -> None:
    """Begin a new stream by asking the leader where the logs diverge."""
    member.streams_begun += 1
    last_epoch = member.log.history.last_epoch
    member.role = Follower(member.following.leader, member.streams_begun, last_epoch, progress_s=now_s)
    _ask(member)


def _ask(member: Member) -> None:
    role = member.following
    member.want(Send(role.leader.member, MatchAsk(member.reign.epoch, member.me, role.stream, role.asked_epoch)))


def on_match_answer(member: Member, answer: MatchAnswer, now_s: float) -> None:
    """Keep the common part of both logs and truncate the rest, or ask again with a lower epoch."""
    role, log, rules = member.role, member.log, member.rules
    if not isinstance(role, Follower) or role.is_matched or role.is_cutting or answer.epoch != member.reign.epoch:
        return
    if not rules.is_answered(member.me, role.stream, answer.follower, answer.stream) or not rules.may_write(log):
        return
    role = member.role = replace(role, progress_s=now_s)
    base = answer.base
    end = rules.agreed_end(log.history, log.appended, answer.largest, answer.end)
    if end is None and (lower := log.history.largest(answer.largest)):
        member.role = replace(role, asked_epoch=lower)
        _ask(member)
        return
    if end is None and log.begin >= base.position:
        end = log.begin
    if end is None or end < base.position or log.appended == log.begin:
        _start_again(member, base)
    elif end >= log.appended:
        _match(member)
    elif end < (committed := min(log.appended, max(log.committed, member.known_committed))):
        member.want(Contradicted(role.leader, end, committed))
    else:
        member.log, member.role = log.cut(end), replace(role, is_cutting=True)
        member.want(Cut(end, member.log.cuts))


def _start_again(member: Member, base: Base) -> None:
    """Begin at the leader's base, because this log is empty or ends before it. First its end is saved as `owed`."""
    role, log, reign = member.following, member.log, member.reign
    if log.appended > log.begin and log.tail > reign.owed:
        member.promise(replace(reign, owed=log.tail), replace(role, asked_epoch=-1))
    else:
        member.log, member.role = log.restarted(base), replace(role, is_cutting=True)
        member.want(Restart(base, member.log.cuts))


def on_cut_done(member: Member, event: CutDone) -> None:
    """The truncated log matches the leader's; if another leader came meanwhile, ask that one now."""
    if event.cuts != member.log.cuts:
        return
    member.log = replace(member.log, is_cutting=False)
    role = member.role
    if isinstance(role, Follower) and role.is_cutting:
        _match(member)
    elif isinstance(role, Follower) and role.asked_epoch >= 0:
        _ask(member)


def _match(member: Member) -> None:
    role, log = member.following, member.log
    member.role = replace(role, is_matched=True, is_cutting=False)
    matched = Matched(member.reign.epoch, member.me, role.stream, log.appended, log.flushed)
    member.want(Send(role.leader.member, matched))


def on_frames(member: Member, frames: Frames, now_s: float) -> None:
    """Write the next frames of this stream; duplicates and frames that come too early are dropped."""
    role, log = member.role, member.log
    if not member.rules.obeys(member.reign, frames.epoch) or not isinstance(role, Follower):
        return
    is_mine = (frames.follower, frames.stream) == (member.me, role.stream)
    if not role.is_matched or not is_mine or frames.begin != log.appended:
        return
    member.log = log.extended(frames.end, frames.marks)
    member.role, member.heard_s = replace(role, progress_s=now_s), now_s
    member.want(Write(frames.begin, frames.end, frames.content))
    _learn_commit(member, frames.committed)


def on_follower_flushed(member: Member) -> None:
    """Acknowledge the flushed position to the leader."""
    role = member.role
    if isinstance(role, Follower) and role.is_matched and member.is_saved:
        ack = Ack(member.reign.epoch, member.me, role.stream, member.log.flushed)
        member.want(Send(role.leader.member, ack))


def _learn_commit(member: Member, said: int) -> None:
    position = member.rules.follower_commit(member.log, said, is_matched=member.following.is_matched)
    if position > member.log.committed:
        commit(member, position)


def commit(member: Member, position: int) -> None:
    """Raise the committed position, and delete segments that a committed frame allows to delete."""
    begin = member.log.begin
    member.log = member.log.committed_to(position)
    member.want(Committed(position))
    if member.log.begin > begin:
        member.want(DeleteBelow(member.log.begin))


def on_follower_tick(member: Member, now_s: float) -> None:
    """Begin a new stream if this one makes no progress; report a silent leader."""
    role = member.following
    is_stuck = now_s - role.progress_s >= member.limits.retry_s and not role.is_cutting
    if role.lacks and is_stuck and member.is_saved:
        new_stream(member, now_s)
    on_leaderless_tick(member, now_s)
