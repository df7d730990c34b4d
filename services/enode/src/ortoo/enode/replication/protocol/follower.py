"""The follower: it finds where its log and the leader's diverge, truncates, and appends frames in order."""

from dataclasses import replace

from ortoo.enode.replication.protocol.events import ApplyCommitted, Contradicted, Truncate, Truncated, DeleteBelow, Reset, Send, WriteFrames
from ortoo.enode.replication.protocol.election import on_leaderless_tick
from ortoo.enode.replication.protocol.log_summary import LogBase
from ortoo.enode.replication.protocol.replica import Replica
from ortoo.enode.replication.protocol.messages import AppendAck, Frames, Heartbeat, HeartbeatResponse, LogMatchResponse, LogMatchRequest, LogMatched, StaleEpoch
from ortoo.enode.replication.protocol.roles import Follower, Leader


def on_heartbeat(member: Replica, heartbeat: Heartbeat, now_s: float) -> None:
    """Follow the leader of the current or a higher epoch, and grant it the lease that the answer confirms."""
    hard_state, role = member.hard_state, member.role
    if not member.rules.accepts_epoch(hard_state, heartbeat.epoch):
        member.add_actions(Send(heartbeat.leader.member, StaleEpoch(hard_state.epoch)))
        return
    if heartbeat.epoch > hard_state.epoch:
        follower = Follower(heartbeat.leader, 0, last_progress_s=now_s)
        member.change_hard_state(replace(hard_state, epoch=heartbeat.epoch, leader=heartbeat.leader), follower)
    elif isinstance(role, Leader):
        return
    elif not isinstance(role, Follower) or role.leader != heartbeat.leader:
        member.change_role(Follower(heartbeat.leader, 0, last_progress_s=now_s))
        if member.is_hard_state_saved:
            open_stream(member, now_s)
    member.leader_heard_s, member.lease_until_s = now_s, now_s + member.limits.lease_s
    if member.is_hard_state_saved:
        _answer_heartbeat(member, heartbeat)


def _answer_heartbeat(member: Replica, heartbeat: Heartbeat) -> None:
    is_known = (heartbeat.incarnation, heartbeat.stream) == (member.identity.incarnation, member.follower_role.stream)
    role = member.role = replace(member.follower_role, lacks=not is_known or heartbeat.appended > member.log.appended)
    _learn_commit(member, heartbeat.committed)
    stream, flushed = (role.stream, member.log.flushed) if role.is_matched else (0, 0)
    member.add_actions(Send(heartbeat.leader.member, HeartbeatResponse(heartbeat.epoch, member.identity, heartbeat.round, stream, flushed)))


def open_stream(member: Replica, now_s: float) -> None:
    """Begin a new stream by asking the leader where the logs diverge."""
    member.stream_count += 1
    last_epoch = member.log.history.last_epoch
    member.role = Follower(member.follower_role.leader, member.stream_count, last_epoch, last_progress_s=now_s)
    _request_match(member)


def _request_match(member: Replica) -> None:
    role = member.follower_role
    member.add_actions(Send(role.leader.member, LogMatchRequest(member.hard_state.epoch, member.identity, role.stream, role.requested_epoch)))


def on_log_match_response(member: Replica, response: LogMatchResponse, now_s: float) -> None:
    """Keep the common part of both logs and truncate the rest, or ask again with a lower epoch."""
    role, log, rules = member.role, member.log, member.rules
    if not isinstance(role, Follower) or role.is_matched or role.is_truncating or response.epoch != member.hard_state.epoch:
        return
    if not rules.is_current_response(member.identity, role.stream, response.follower, response.stream) or not rules.may_write(log):
        return
    role = member.role = replace(role, progress_s=now_s)
    base = response.base
    end = rules.matching_end(log.history, log.appended, response.largest, response.end)
    if end is None and (lower := log.history.largest_epoch_up_to(response.largest)):
        member.role = replace(role, asked_epoch=lower)
        _request_match(member)
        return
    if end is None and log.begin >= base.position:
        end = log.begin
    if end is None or end < base.position or log.appended == log.begin:
        _reset_log(member, base)
    elif end >= log.appended:
        _set_matched(member)
    elif end < (committed := min(log.appended, max(log.committed, member.known_committed))):
        member.add_actions(Contradicted(role.leader, end, committed))
    else:
        member.log, member.role = log.truncated(end), replace(role, is_cutting=True)
        member.add_actions(Truncate(end, member.log.truncations))


def _reset_log(member: Replica, base: LogBase) -> None:
    """Begin at the leader's base, because this log is empty or ends before it. First its end is saved as `owed`."""
    role, log, hard_state = member.follower_role, member.log, member.hard_state
    if log.appended > log.begin and log.tail > hard_state.unsynced_tail:
        member.change_hard_state(replace(hard_state, owed=log.tail), replace(role, asked_epoch=-1))
    else:
        member.log, member.role = log.reset_to(base), replace(role, is_cutting=True)
        member.add_actions(Reset(base, member.log.truncations))


def on_truncated(member: Replica, event: Truncated) -> None:
    """The truncated log matches the leader's; if another leader came meanwhile, ask that one now."""
    if event.truncations != member.log.truncations:
        return
    member.log = replace(member.log, is_cutting=False)
    role = member.role
    if isinstance(role, Follower) and role.is_truncating:
        _set_matched(member)
    elif isinstance(role, Follower) and role.requested_epoch >= 0:
        _request_match(member)


def _set_matched(member: Replica) -> None:
    role, log = member.follower_role, member.log
    member.role = replace(role, is_matched=True, is_cutting=False)
    matched = LogMatched(member.hard_state.epoch, member.identity, role.stream, log.appended, log.flushed)
    member.add_actions(Send(role.leader.member, matched))


def on_frames(member: Replica, frames: Frames, now_s: float) -> None:
    """Write the next frames of this stream; duplicates and frames that come too early are dropped."""
    role, log = member.role, member.log
    if not member.rules.accepts_epoch(member.hard_state, frames.epoch) or not isinstance(role, Follower):
        return
    is_mine = (frames.follower, frames.stream) == (member.identity, role.stream)
    if not role.is_matched or not is_mine or frames.begin != log.appended:
        return
    member.log = log.appended_with(frames.end, frames.protocol_frames)
    member.role, member.leader_heard_s = replace(role, progress_s=now_s), now_s
    member.add_actions(WriteFrames(frames.begin, frames.end, frames.content))
    _learn_commit(member, frames.committed)


def on_follower_flushed(member: Replica) -> None:
    """Acknowledge the flushed position to the leader."""
    role = member.role
    if isinstance(role, Follower) and role.is_matched and member.is_hard_state_saved:
        ack = AppendAck(member.hard_state.epoch, member.identity, role.stream, member.log.flushed)
        member.add_actions(Send(role.leader.member, ack))


def _learn_commit(member: Replica, leader_commit: int) -> None:
    position = member.rules.follower_commit_position(member.log, leader_commit, is_matched=member.follower_role.is_matched)
    if position > member.log.committed:
        commit(member, position)


def commit(member: Replica, position: int) -> None:
    """Raise the committed position, and delete segments that a committed frame allows to delete."""
    begin = member.log.begin
    member.log = member.log.committed_to(position)
    member.add_actions(ApplyCommitted(position))
    if member.log.begin > begin:
        member.add_actions(DeleteBelow(member.log.begin))


def on_follower_tick(member: Replica, now_s: float) -> None:
    """Begin a new stream if this one makes no progress; report a silent leader."""
    role = member.follower_role
    is_stuck = now_s - role.last_progress_s >= member.limits.retry_s and not role.is_truncating
    if role.is_behind and is_stuck and member.is_hard_state_saved:
        open_stream(member, now_s)
    on_leaderless_tick(member, now_s)
