"""The leader: it appends one EPOCH frame, replicates frames to followers, and commits frames of a majority."""

from dataclasses import replace

from ortoo.enode.replication.protocol.configuration_changes import drop_removed_replicas, promote_learners
from ortoo.enode.replication.protocol.events import LogAppended, TransferLeadership, BecomeLeader, RejectRequest, Send, SendFrames, FramesSent, RequestElection
from ortoo.enode.replication.protocol.follower import commit
from ortoo.enode.replication.protocol.identity import ReplicaId, Incarnation
from ortoo.enode.replication.protocol.log_summary import EpochFrame
from ortoo.enode.replication.protocol.replica import Replica
from ortoo.enode.replication.protocol.messages import (
    AppendAck,
    TimeoutNow,
    Heartbeat,
    HeartbeatResponse,
    LogMatchResponse,
    LogMatchRequest,
    LogMatched,
    StaleEpoch,
    LeaseReleased,
)
from ortoo.enode.replication.protocol.roles import LastResponse, Idle, Leader, FollowerStream

ROUNDS_REMEMBERED = 16


def on_log_appended(member: Replica, event: LogAppended, now_s: float) -> None:
    """Replicate appended frames. The first is the EPOCH frame, with which the leader's heartbeats begin."""
    role, epoch = member.role, member.hard_state.epoch
    member.log = member.log.appended_with(event.end, event.protocol_frames)
    if not isinstance(role, Leader):
        return
    epoch_frames = [one for one in event.protocol_frames if isinstance(one, EpochFrame) and one.epoch == epoch]
    if epoch_frames:
        member.role = replace(role, epoch_end=epoch_frames[0].end)
        _send_heartbeats(member, now_s)
    _send_frames(member)
    advance_commit(member)


# streams


def on_log_match_request(member: Replica, request: LogMatchRequest) -> None:
    """Answer where the logs diverge, and use this stream for the follower from now on."""
    role, log = member.role, member.log
    if request.epoch < member.hard_state.epoch:
        member.add_actions(Send(request.follower.member, StaleEpoch(member.hard_state.epoch)))
    if not isinstance(role, Leader) or request.epoch != member.hard_state.epoch or request.follower.member not in member.peers:
        return
    known = role.stream_to(request.follower.member)
    if known and (known.follower.incarnation, known.number) > (request.follower.incarnation, request.stream):
        return
    if not known or (known.follower, known.number) != (request.follower, request.stream):
        _put_stream(member, FollowerStream(request.follower, request.stream))
    largest = log.history.largest_epoch_up_to(request.last_epoch)
    end = log.history.end_of_epoch(largest, log.appended) if largest else None
    response = LogMatchResponse(request.epoch, request.follower, request.stream, largest, log.begin if end is None else end, log.base)
    member.add_actions(Send(request.follower.member, response))


def on_log_matched(member: Replica, message: LogMatched) -> None:
    """The logs match: acknowledgements on this stream count from now on."""
    stream = _current_stream(member, message.epoch, message.follower, message.stream)
    log, position = member.log, message.position
    if stream is None or stream.is_matched or not log.begin <= position <= log.appended:
        return
    _put_stream(member, replace(stream, is_matched=True, sent=position, flushed=min(position, message.flushed)))
    if rounds := member.leader_role.rounds:  # the follower ignores a heartbeat before its vote is on disk
        to = message.follower.member
        member.add_actions(Send(to, _heartbeat_for(member, to, rounds[-1][0])))
    _send_frames(member)
    advance_commit(member)


def on_frames_sent(member: Replica, event: FramesSent) -> None:
    """Frames up to `end` were sent: acknowledgements up to there count, and the next part may be sent."""
    stream = _current_stream(member, member.hard_state.epoch, event.follower, event.stream)
    if stream is not None:
        _put_stream(member, replace(stream, sent=max(stream.sent, event.end), is_shipping=False))
        _send_frames(member)


def on_append_ack(member: Replica, ack: AppendAck | HeartbeatResponse) -> None:
    """Raise the flushed position of a follower."""
    stream = _current_stream(member, ack.epoch, ack.follower, ack.stream)
    if stream is not None and ack.flushed > stream.flushed:
        _put_stream(member, replace(stream, flushed=ack.flushed))
        _send_frames(member)
        advance_commit(member)


def on_heartbeat_response(member: Replica, response: HeartbeatResponse, now_s: float) -> None:
    """Note that the follower answers; its lease runs from the time when the round was sent."""
    role = member.role
    if not isinstance(role, Leader) or response.epoch != member.hard_state.epoch or response.round <= role.previous_rounds:
        return
    replica_id = response.follower.member
    last_response = LastResponse(replica_id, max(response.round, role.last_response_of(replica_id).round), now_s)
    kept = tuple(one for one in role.responses if one.replica != replica_id)
    member.role = replace(role, heard=(*kept, last_response))
    on_append_ack(member, response)
    if isinstance(member.role, Leader):
        advance_commit(member)


def _current_stream(member: Replica, epoch: int, follower: Incarnation, number: int) -> FollowerStream | None:
    role = member.role
    if not isinstance(role, Leader) or epoch != member.hard_state.epoch:
        return None
    return role.stream_to(follower.member) if member.rules.is_current_stream(role, follower, number) else None


def _put_stream(member: Replica, stream: FollowerStream) -> None:
    """Replace the state of a follower's stream."""
    kept = (one for one in member.leader_role.streams if one.follower.member != stream.follower.member)
    member.role = replace(member.leader_role, streams=(*kept, stream))


def _send_frames(member: Replica) -> None:
    """Send new frames to all followers, each up to a window beyond its acknowledged position.

    A follower behind the begin of the log has to match again, and starts at the begin.
    """
    role, begin, appended = member.leader_role, member.log.begin, member.log.appended
    streams: list[FollowerStream] = []
    for one in role.streams:
        limit = min(appended, member.rules.acknowledged_position(one) + member.limits.window_bytes)
        if one.is_matched and one.sent < begin:
            streams.append(FollowerStream(one.follower, one.number))
        elif one.is_matched and not one.is_sending and one.sent < limit:
            member.add_actions(SendFrames(one.follower, one.number, one.sent, limit))
            streams.append(replace(one, is_shipping=True))
        else:
            streams.append(one)
    member.role = replace(role, streams=tuple(streams))


def deletable_below(member: Replica, keep_bytes: int) -> int:
    """The position up to which segments may be deleted: a follower's next frames stay, up to `keep_bytes`."""
    log = member.log
    positions = [member.rules.acknowledged_position(one) for one in member.leader_role.streams]
    return min([log.committed, *(one for one in positions if one >= log.appended - keep_bytes)])


# commitment


def advance_commit(member: Replica) -> None:
    """Commit frames that a majority has. The leader serves once its EPOCH frame is committed and a majority answered.

    Before that it must not answer reads: they would be refused, and the caller's retry would take longer than this.
    """
    rules = member.rules
    position = rules.commit_position(member.log, member.leader_role, member.identity.member)
    if position > member.log.committed and rules.may_commit(member.leader_role, position):
        commit(member, position)
        drop_removed_replicas(member)
    is_late = not member.leader_role.is_serving and rules.may_serve(member.leader_role, member.log.committed)
    if is_late and member.has_heartbeat_quorum:
        member.role = replace(member.leader_role, is_serving=True)
        member.add_actions(BecomeLeader(member.hard_state.epoch))
    promote_learners(member)
    _transfer_if_ready(member)


# the clock


def on_leader_tick(member: Replica, now_s: float) -> None:
    """Send heartbeats; step down if no majority answers, because another replica may lead already."""
    role, configuration = member.leader_role, member.rules.configuration_of(member.log)
    if 1 + len(member.responding_voters(configuration, now_s)) < configuration.majority:
        member.change_role(Idle())
        return
    if role.successor is not None and now_s >= role.transfer_deadline_s:
        member.role = replace(role, successor=None)
    if now_s >= role.next_heartbeat_s and role.epoch_end:
        _send_heartbeats(member, now_s)


def _send_heartbeats(member: Replica, now_s: float) -> None:
    role = member.leader_role
    number = member.round_count = member.round_count + 1
    rounds = (*role.rounds[1 - ROUNDS_REMEMBERED :], (number, now_s))
    member.role = replace(role, rounds=rounds, next_heartbeat_s=now_s + member.limits.heartbeat_interval_s)
    member.add_actions(*(Send(one, _heartbeat_for(member, one, number)) for one in member.peers))


def _heartbeat_for(member: Replica, to: ReplicaId, number: int) -> Heartbeat:
    stream = member.leader_role.stream_to(to)
    known = (stream.follower.incarnation, stream.number) if stream and stream.is_matched else (0, 0)
    return Heartbeat(member.hard_state.epoch, member.identity, number, member.log.committed, member.log.appended, *known)


# transfer of leadership


def on_transfer_leadership(member: Replica, event: TransferLeadership, now_s: float) -> None:
    """Stop appending; when everything is committed and the successor has it, transfer leadership."""
    role, successor = member.role, event.successor
    if not isinstance(role, Leader) or successor not in member.rules.configuration_of(member.log).voters:
        return
    if successor == member.identity.member:
        return
    if successor in member.responding_voters(member.log.configuration, now_s):
        member.role = replace(role, successor=successor, hand_over_until_s=now_s + member.limits.leader_timeout_s)
        _transfer_if_ready(member)
    else:
        member.add_actions(RejectRequest(f"replica {successor.number} does not answer: choose one that follows"))


def _transfer_if_ready(member: Replica) -> None:
    successor, log, epoch = member.leader_role.successor, member.log, member.hard_state.epoch
    if successor is None or log.committed < log.appended:
        return
    stream = member.leader_role.stream_to(successor)
    if stream is None or member.rules.acknowledged_position(stream) < log.appended:
        return
    if rounds := member.leader_role.rounds:
        member.leader_heard_s = rounds[-1][1]  # it reports a missing leader no earlier than its followers do
    member.change_role(Idle())
    member.add_actions(*(Send(one, LeaseReleased(epoch, member.identity)) for one in member.peers))
    member.add_actions(Send(successor, TimeoutNow(epoch + 1, successor)), RequestElection(successor, epoch))
