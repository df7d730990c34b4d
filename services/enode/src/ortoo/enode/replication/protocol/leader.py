"""The leader: it appends one EPOCH frame, replicates frames to followers, and commits frames that a majority has."""

from dataclasses import replace

from ortoo.enode.replication.protocol.configuration_changes import drop_removed_replicas, promote_learners
from ortoo.enode.replication.protocol.events import (
    BecomeLeader,
    FramesSent,
    LogAppended,
    RejectRequest,
    RequestElection,
    Send,
    SendFrames,
    TransferLeadership,
)
from ortoo.enode.replication.protocol.follower import commit
from ortoo.enode.replication.protocol.identity import Incarnation, ReplicaId
from ortoo.enode.replication.protocol.log_summary import EpochFrame
from ortoo.enode.replication.protocol.messages import (
    AppendAck,
    Heartbeat,
    HeartbeatResponse,
    LeaseReleased,
    LogMatched,
    LogMatchRequest,
    LogMatchResponse,
    StaleEpoch,
    TimeoutNow,
)
from ortoo.enode.replication.protocol.replica import Replica
from ortoo.enode.replication.protocol.roles import DiskStall, FollowerStream, Idle, LastResponse, Leader

ROUNDS_REMEMBERED = 16


def on_log_appended(replica: Replica, event: LogAppended, now_s: float) -> None:
    """Replicate appended frames. The first is the EPOCH frame, with which the leader's heartbeats begin."""
    role, epoch = replica.role, replica.hard_state.epoch
    replica.log = replica.log.appended_with(event.end, event.protocol_frames)
    if not isinstance(role, Leader):
        return
    epoch_frames = [one for one in event.protocol_frames if isinstance(one, EpochFrame) and one.epoch == epoch]
    if epoch_frames:
        replica.role = replace(role, epoch_end=epoch_frames[0].end)
        _send_heartbeats(replica, now_s)
    _send_frames(replica)
    advance_commit(replica)


# streams


def on_log_match_request(replica: Replica, request: LogMatchRequest) -> None:
    """Answer where the logs diverge, and use this stream for the follower from now on."""
    role, log = replica.role, replica.log
    if request.epoch < replica.hard_state.epoch:
        replica.add_actions(Send(request.follower.replica, StaleEpoch(replica.hard_state.epoch)))
    if (
        not isinstance(role, Leader)
        or request.epoch != replica.hard_state.epoch
        or request.follower.replica not in replica.peers
    ):
        return
    known = role.stream_to(request.follower.replica)
    if known and (known.follower.incarnation, known.number) > (request.follower.incarnation, request.stream):
        return
    if not known or (known.follower, known.number) != (request.follower, request.stream):
        _put_stream(replica, FollowerStream(request.follower, request.stream))
    largest = log.history.largest_epoch_up_to(request.last_epoch)
    end = log.history.end_of_epoch(largest, log.appended) if largest else None
    response = LogMatchResponse(
        request.epoch, request.follower, request.stream, largest, log.begin if end is None else end, log.base
    )
    replica.add_actions(Send(request.follower.replica, response))


def on_log_matched(replica: Replica, message: LogMatched) -> None:
    """Count acknowledgements on this stream from now on, because the logs match."""
    stream = _current_stream(replica, message.epoch, message.follower, message.stream)
    log, position = replica.log, message.position
    if stream is None or stream.is_matched or not log.begin <= position <= log.appended:
        return
    _put_stream(replica, replace(stream, is_matched=True, sent=position, flushed=min(position, message.flushed)))
    if rounds := replica.leader_role.rounds:  # the follower ignores a heartbeat before its vote is on disk
        to = message.follower.replica
        replica.add_actions(Send(to, _heartbeat_for(replica, to, rounds[-1][0])))
    _send_frames(replica)
    advance_commit(replica)


def on_frames_sent(replica: Replica, event: FramesSent) -> None:
    """Note that frames up to `end` were sent: acknowledgements up to there count, and the next part may be sent."""
    stream = _current_stream(replica, replica.hard_state.epoch, event.follower, event.stream)
    if stream is not None:
        _put_stream(replica, replace(stream, sent=max(stream.sent, event.end), is_sending=False))
        _send_frames(replica)


def on_append_ack(replica: Replica, ack: AppendAck | HeartbeatResponse) -> None:
    """Raise the flushed position of a follower."""
    stream = _current_stream(replica, ack.epoch, ack.follower, ack.stream)
    if stream is not None and ack.flushed > stream.flushed:
        _put_stream(replica, replace(stream, flushed=ack.flushed))
        _send_frames(replica)
        advance_commit(replica)


def on_heartbeat_response(replica: Replica, response: HeartbeatResponse) -> None:
    """Note the follower's answer. Its lease and its silence are counted from when the heartbeat round was sent."""
    role = replica.role
    if (
        not isinstance(role, Leader)
        or response.epoch != replica.hard_state.epoch
        or response.round <= role.previous_rounds
    ):
        return
    replica_id = response.follower.replica
    before = role.last_response_of(replica_id)
    sent_s = next((sent_s for number, sent_s in role.rounds if number == response.round), before.sent_s)
    last_response = LastResponse(
        replica_id,
        max(response.round, before.round),
        max(sent_s, before.sent_s),
        cannot_store=response.cannot_store,
        cannot_lead=response.cannot_lead,
    )
    kept = tuple(one for one in role.responses if one.replica != replica_id)
    replica.role = replace(role, responses=(*kept, last_response))
    on_append_ack(replica, response)
    if isinstance(replica.role, Leader):
        advance_commit(replica)


def _current_stream(replica: Replica, epoch: int, follower: Incarnation, number: int) -> FollowerStream | None:
    role = replica.role
    if not isinstance(role, Leader) or epoch != replica.hard_state.epoch:
        return None
    return role.stream_to(follower.replica) if replica.rules.is_current_stream(role, follower, number) else None


def _put_stream(replica: Replica, stream: FollowerStream) -> None:
    """Replace the state of a follower's stream."""
    kept = (one for one in replica.leader_role.streams if one.follower.replica != stream.follower.replica)
    replica.role = replace(replica.leader_role, streams=(*kept, stream))


def _send_frames(replica: Replica) -> None:
    """Send new frames to each follower, at most a window beyond the follower's acknowledged position.

    A follower that needs frames before the begin of the log must match again, and then starts at the begin.
    """
    role, begin, appended = replica.leader_role, replica.log.begin, replica.log.appended
    streams: list[FollowerStream] = []
    for one in role.streams:
        limit = min(appended, replica.rules.acknowledged_position(one) + replica.limits.window_bytes)
        if one.is_matched and one.sent < begin:
            streams.append(FollowerStream(one.follower, one.number))
        elif one.is_matched and not one.is_sending and one.sent < limit:
            replica.add_actions(SendFrames(one.follower, one.number, one.sent, limit))
            streams.append(replace(one, is_sending=True))
        else:
            streams.append(one)
    replica.role = replace(role, streams=tuple(streams))


def deletable_below(replica: Replica, keep_bytes: int) -> int:
    """The position below which segments may be deleted. For lagging followers, at most `keep_bytes` are kept."""
    log = replica.log
    positions = [replica.rules.acknowledged_position(one) for one in replica.leader_role.streams]
    return min([log.committed, log.flushed, *(one for one in positions if one >= log.appended - keep_bytes)])


# commitment


def advance_commit(replica: Replica) -> None:
    """Commit frames that a majority has. The leader serves once its EPOCH frame is committed and a majority answered.

    Without the answers of a majority, the leader has no read lease and would refuse reads. A retry of a refused read
    would take longer than this wait.
    """
    rules = replica.rules
    position = rules.commit_position(replica.log, replica.leader_role, replica.identity.replica)
    if position > replica.log.committed and rules.may_commit(replica.leader_role, position):
        commit(replica, position)
        drop_removed_replicas(replica)
    is_late = not replica.leader_role.is_serving and rules.may_serve(replica.leader_role, replica.log.committed)
    if is_late and replica.has_heartbeat_quorum:
        replica.role = replace(replica.leader_role, is_serving=True)
        replica.add_actions(BecomeLeader(replica.hard_state.epoch))
    promote_learners(replica)
    _transfer_if_ready(replica)


# the clock


def on_leader_tick(replica: Replica, now_s: float) -> None:
    """Send heartbeats; step down if no majority answers, because another replica may lead already."""
    role, configuration = replica.leader_role, replica.rules.configuration_of(replica.log)
    if 1 + len(replica.responding_voters(configuration, now_s)) < configuration.majority:
        replica.change_role(Idle())
        return
    if _resigns(replica, now_s):
        return
    role = replica.leader_role
    if role.successor is not None and now_s >= role.transfer_deadline_s:
        role = replica.role = replace(role, successor=None)
    if now_s >= role.next_heartbeat_s and role.epoch_end:
        _send_heartbeats(replica, now_s)


def _resigns(replica: Replica, now_s: float) -> bool:
    """Resign if the own disk hangs or is full, and a majority without this replica can store frames.

    Returns whether it resigned. The most complete replica of this majority becomes the successor. Frames that the
    successor lacks are not committed. The leader does not wait for its disk.
    """
    role, log, rules, limits = replica.leader_role, replica.log, replica.rules, replica.limits
    configuration = rules.configuration_of(log)

    others = replica.responding_voters(configuration, now_s)
    ahead = [one for one in others if rules.acknowledged_position(role.stream_to(one)) > log.flushed]
    stall = role.stall
    if len(ahead) < configuration.majority:
        stall = None
    elif stall is None or stall.flushed < log.flushed:
        stall = DiskStall(log.flushed, now_s)
    replica.role = replace(role, stall=stall)
    storing = [one for one in others if not role.last_response_of(one).cannot_store]
    able = [one for one in replica.successors(now_s) if one in storing]
    hangs = stall is not None and rules.has_stalled_disk(log, stall, now_s, limits.disk_timeout_s)
    is_full = not replica.can_store and rules.is_disk_full(replica.cannot_store_since_s, now_s, limits.disk_timeout_s)
    if len(storing) < configuration.majority or not able or not (hangs or is_full):
        return False
    _hand_over(replica, able[0])
    return True


def _send_heartbeats(replica: Replica, now_s: float) -> None:
    role = replica.leader_role
    number = replica.round_count = replica.round_count + 1
    rounds = (*role.rounds[1 - ROUNDS_REMEMBERED :], (number, now_s))
    replica.role = replace(role, rounds=rounds, next_heartbeat_s=now_s + replica.limits.heartbeat_interval_s)
    replica.add_actions(*(Send(one, _heartbeat_for(replica, one, number)) for one in replica.peers))


def _heartbeat_for(replica: Replica, to: ReplicaId, number: int) -> Heartbeat:
    stream = replica.leader_role.stream_to(to)
    known = (stream.follower.incarnation, stream.number) if stream and stream.is_matched else (0, 0)
    return Heartbeat(
        replica.hard_state.epoch, replica.identity, number, replica.log.committed, replica.log.appended, *known
    )


# transfer of leadership


def on_transfer_leadership(replica: Replica, event: TransferLeadership, now_s: float) -> None:
    """Stop appending. Leadership is transferred when everything is committed and the successor has the whole log."""
    role, successor = replica.role, event.successor
    if not isinstance(role, Leader) or successor not in replica.rules.configuration_of(replica.log).voters:
        return
    if successor == replica.identity.replica:
        return
    if successor in replica.responding_voters(replica.log.configuration, now_s):
        replica.role = replace(role, successor=successor, transfer_deadline_s=now_s + replica.limits.leader_timeout_s)
        _transfer_if_ready(replica)
    else:
        replica.add_actions(RejectRequest(f"replica {successor.number} does not answer: choose one that follows"))


def _transfer_if_ready(replica: Replica) -> None:
    successor, log = replica.leader_role.successor, replica.log
    if successor is None or log.committed < log.appended:
        return
    stream = replica.leader_role.stream_to(successor)
    if stream is None or replica.rules.acknowledged_position(stream) < log.appended:
        return
    _hand_over(replica, successor)


def _hand_over(replica: Replica, successor: ReplicaId) -> None:
    """Step down, release the leases of this epoch, and let `successor` stand for election."""
    epoch = replica.hard_state.epoch
    if rounds := replica.leader_role.rounds:
        replica.leader_heard_s = rounds[-1][1]  # it reports a missing leader no earlier than its followers do
    replica.change_role(Idle())
    replica.released_epoch = epoch
    replica.add_actions(*(Send(one, LeaseReleased(epoch, replica.identity)) for one in replica.peers))
    replica.add_actions(Send(successor, TimeoutNow(epoch + 1, successor)), RequestElection(successor, epoch))
