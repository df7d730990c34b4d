"""The follower: it finds where its log diverges from the leader's, truncates its log, and appends frames in order."""

from dataclasses import replace

from ortoo.enode.replication.protocol.election import on_leaderless_tick
from ortoo.enode.replication.protocol.events import (
    ApplyCommitted,
    Contradicted,
    DeleteBelow,
    Reset,
    Send,
    Truncate,
    Truncated,
    WriteFrames,
)
from ortoo.enode.replication.protocol.log_summary import LogBase
from ortoo.enode.replication.protocol.messages import (
    AppendAck,
    Frames,
    Heartbeat,
    HeartbeatResponse,
    LogMatched,
    LogMatchRequest,
    LogMatchResponse,
    StaleEpoch,
)
from ortoo.enode.replication.protocol.replica import Replica
from ortoo.enode.replication.protocol.roles import Follower, Leader


def on_heartbeat(replica: Replica, heartbeat: Heartbeat, now_s: float) -> None:
    """Follow the leader of the current or a higher epoch, and grant it the lease that the answer confirms."""
    hard_state, role = replica.hard_state, replica.role
    if not replica.rules.accepts_epoch(hard_state, heartbeat.epoch):
        replica.add_actions(Send(heartbeat.leader.replica, StaleEpoch(hard_state.epoch)))
        return
    if heartbeat.epoch > hard_state.epoch:
        follower = Follower(heartbeat.leader, 0, last_progress_s=now_s)
        replica.change_hard_state(replace(hard_state, epoch=heartbeat.epoch, leader=heartbeat.leader), follower)
    elif isinstance(role, Leader):
        return
    elif not isinstance(role, Follower) or role.leader != heartbeat.leader:
        replica.change_role(Follower(heartbeat.leader, 0, last_progress_s=now_s))
        if replica.is_hard_state_saved:
            open_stream(replica, now_s)
    replica.leader_heard_s, replica.lease_until_s = now_s, now_s + replica.limits.lease_s
    if replica.is_hard_state_saved:
        _answer_heartbeat(replica, heartbeat)


def _answer_heartbeat(replica: Replica, heartbeat: Heartbeat) -> None:
    is_known = (heartbeat.incarnation, heartbeat.stream) == (replica.identity.incarnation, replica.follower_role.stream)
    role = replica.role = replace(
        replica.follower_role, is_behind=not is_known or heartbeat.appended > replica.log.appended
    )
    _learn_commit(replica, heartbeat.committed)
    stream, flushed = (role.stream, replica.log.flushed) if role.is_matched else (0, 0)
    replica.add_actions(
        Send(
            heartbeat.leader.replica,
            HeartbeatResponse(
                heartbeat.epoch,
                replica.identity,
                heartbeat.round,
                stream,
                flushed,
                cannot_store=not replica.can_store,
                cannot_lead=replica.follows_only or not replica.rules.is_electable(replica.log, replica.hard_state),
            ),
        )
    )


def open_stream(replica: Replica, now_s: float) -> None:
    """Begin a new stream by asking the leader where the logs diverge."""
    replica.stream_count += 1
    last_epoch = replica.log.history.last_epoch
    replica.role = Follower(replica.follower_role.leader, replica.stream_count, last_epoch, last_progress_s=now_s)
    _request_match(replica)


def _request_match(replica: Replica) -> None:
    role = replica.follower_role
    replica.add_actions(
        Send(
            role.leader.replica,
            LogMatchRequest(replica.hard_state.epoch, replica.identity, role.stream, role.requested_epoch),
        )
    )


def on_log_match_response(replica: Replica, response: LogMatchResponse, now_s: float) -> None:
    """Keep the common part of both logs and truncate the rest, or ask again with a lower epoch."""
    role, log, rules = replica.role, replica.log, replica.rules
    if (
        not isinstance(role, Follower)
        or role.is_matched
        or role.is_truncating
        or response.epoch != replica.hard_state.epoch
    ):
        return
    if not rules.is_current_response(
        replica.identity, role.stream, response.follower, response.stream
    ) or not rules.may_write(log):
        return
    role = replica.role = replace(role, last_progress_s=now_s)
    base = response.base
    end = rules.matching_end(log.history, log.appended, response.largest, response.end)
    if end is None and (lower := log.history.largest_epoch_up_to(response.largest)):
        replica.role = replace(role, requested_epoch=lower)
        _request_match(replica)
        return
    if end is None and log.begin >= base.position:
        end = log.begin
    if end is None or end < base.position or log.appended == log.begin:
        _reset_log(replica, base)
    elif end >= log.appended:
        _set_matched(replica)
    elif end < (committed := min(log.appended, max(log.committed, replica.known_committed))):
        replica.add_actions(Contradicted(role.leader, end, committed))
    else:
        replica.log, replica.role = log.truncated(end), replace(role, is_truncating=True)
        replica.add_actions(Truncate(end, replica.log.truncations))


def _reset_log(replica: Replica, base: LogBase) -> None:
    """Empty this log and begin at the leader's base, because this log is empty or ends before that base.

    Before that, the end of this log is saved as `unsynced_tail`.
    """
    role, log, hard_state = replica.follower_role, replica.log, replica.hard_state
    if log.appended > log.begin and log.tail > hard_state.unsynced_tail:
        replica.change_hard_state(replace(hard_state, unsynced_tail=log.tail), replace(role, requested_epoch=-1))
    else:
        replica.log, replica.role = log.reset_to(base), replace(role, is_truncating=True)
        replica.add_actions(Reset(base, replica.log.truncations))


def on_truncated(replica: Replica, event: Truncated) -> None:
    """Handle a durable truncation: the log matches the leader's log. If the leader has changed, ask the new leader."""
    if event.truncations != replica.log.truncations:
        return
    replica.log = replace(replica.log, is_truncating=False)
    role = replica.role
    if isinstance(role, Follower) and role.is_truncating:
        _set_matched(replica)
    elif isinstance(role, Follower) and role.requested_epoch >= 0:
        _request_match(replica)


def _set_matched(replica: Replica) -> None:
    role, log = replica.follower_role, replica.log
    replica.role = replace(role, is_matched=True, is_truncating=False)
    matched = LogMatched(replica.hard_state.epoch, replica.identity, role.stream, log.appended, log.flushed)
    replica.add_actions(Send(role.leader.replica, matched))


def on_frames(replica: Replica, frames: Frames, now_s: float) -> None:
    """Write the next frames of this stream; duplicates and frames that come too early are dropped."""
    role, log = replica.role, replica.log
    if not replica.rules.accepts_epoch(replica.hard_state, frames.epoch) or not isinstance(role, Follower):
        return
    is_mine = (frames.follower, frames.stream) == (replica.identity, role.stream)
    if not role.is_matched or not is_mine or frames.begin != log.appended:
        return
    replica.log = log.appended_with(frames.end, frames.protocol_frames)
    replica.role, replica.leader_heard_s = replace(role, last_progress_s=now_s), now_s
    replica.add_actions(WriteFrames(frames.begin, frames.end, frames.content))
    _learn_commit(replica, frames.committed)


def on_follower_flushed(replica: Replica) -> None:
    """Acknowledge the flushed position to the leader."""
    role = replica.role
    if isinstance(role, Follower) and role.is_matched and replica.is_hard_state_saved:
        ack = AppendAck(replica.hard_state.epoch, replica.identity, role.stream, replica.log.flushed)
        replica.add_actions(Send(role.leader.replica, ack))


def _learn_commit(replica: Replica, leader_commit: int) -> None:
    position = replica.rules.follower_commit_position(
        replica.log, leader_commit, is_matched=replica.follower_role.is_matched
    )
    if position > replica.log.committed:
        commit(replica, position)


def commit(replica: Replica, position: int) -> None:
    """Raise the committed position, and delete segments that a committed frame allows to delete."""
    begin = replica.log.begin
    replica.log = replica.log.committed_to(position)
    replica.add_actions(ApplyCommitted(position))
    if replica.log.begin > begin:
        replica.add_actions(DeleteBelow(replica.log.begin))


def on_follower_tick(replica: Replica, now_s: float) -> None:
    """Begin a new stream if the current stream makes no progress; report a silent leader."""
    role = replica.follower_role
    is_stuck = now_s - role.last_progress_s >= replica.limits.retry_s and not role.is_truncating
    if role.is_behind and is_stuck and replica.is_hard_state_saved:
        open_stream(replica, now_s)
    on_leaderless_tick(replica, now_s)
