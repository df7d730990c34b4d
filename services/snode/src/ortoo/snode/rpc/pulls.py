"""The calls of ConsumerService for consumers that pull: pulls, locks, offsets, nacks."""

from collections.abc import Iterable
from dataclasses import dataclass

from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import Invalid, OrtooError
from ortoo.common.filters.message_filter import compile_filter
from ortoo.common.groups.failure_rule import ATTEMPTS_LIMIT
from ortoo.common.groups.retry_policy import DELAY_MS_MAX
from ortoo.common.groups.sinks import SinkIdentity
from ortoo.common.grpc.errors import Context
from ortoo.common.grpc.messages import read, write
from ortoo.snode.clients import ClientComponents
from ortoo.snode.clients.locks import LOCK_LIFETIME_MS
from ortoo.snode.clients.session import ClientSession
from ortoo.snode.clients.sessions import TEXT_LENGTH_MAX, check_owner
from ortoo.snode.cluster.group_names import check_consumer_group
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.cluster.wire import decode_queue, encode_queue
from ortoo.snode.membership.group_members import assignable_client_ids, strategy_of
from ortoo.snode.pop import PopComponents
from ortoo.snode.pop.dead_letters import PARK_LEVEL, NackMessagesRequest
from ortoo.snode.pull import PullComponents
from ortoo.snode.pull.offsets import GroupOffset
from ortoo.snode.pull.processor import PullRequest, QueuePullResult
from ortoo.snode.rpc.conversion import encode_failure, encode_member
from ortoo.snode.rpc.streams import LongCalls
from ortoo.v1 import consumer_pb2
from ortoo.v1 import pull_pb2 as pb
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceServicer

OFFSETS_MAX = 1_024
ERROR_LENGTH_MAX = 1_024
"""Maximum of stored characters of an error."""


@dataclass(kw_only=True, eq=False)
class PullConsumerHandlers(ConsumerServiceServicer):
    """The calls of ConsumerService for pulls."""

    pull: PullComponents
    clients: ClientComponents
    pop: PopComponents
    long_calls: LongCalls

    async def Pull(self, request: pb.PullRequest, context: Context) -> pb.PullResponse:
        """Read messages of one queue from an offset on."""
        message_filter = compile_filter(request.tag_expression, request.sql_expression)
        with self.long_calls.track():
            return _encode_pull_result(
                await self.clients.locked_pulls.pull(read(PullRequest, request, message_filter=message_filter))
            )

    async def QueryMembers(
        self, request: pb.QueryMembersRequest, context: Context
    ) -> consumer_pb2.QueryMembersResponse:
        """The current group members of a group."""
        check_group_name(request.group, "group")
        members = await self.clients.sessions.follow(request.group)
        return write(
            consumer_pb2.QueryMembersResponse,
            members,
            client_ids=assignable_client_ids(members.members),
            members=[encode_member(members.members[one]) for one in sorted(members.members)],
            strategy=strategy_of(members.members),
        )

    async def LockQueues(self, request: pb.LockQueuesRequest, context: Context) -> pb.LockQueuesResponse:
        """Take or renew the locks of queues."""
        session, queues = await self._session(request), _decode_queues(request)
        results = await self.clients.locks.take(request.group, request.client_id, session, queues)
        response = pb.LockQueuesResponse(lifetime_ms=LOCK_LIFETIME_MS)
        for requested, answer in results:
            queue, failure = encode_queue(requested), encode_failure(answer.error)
            if answer.generation:
                response.granted.append(write(pb.GrantedLock, answer, queue=queue))
            else:
                response.refused.append(write(pb.RefusedLock, answer, queue=queue, failure=failure))
        return response

    async def UnlockQueues(self, request: pb.UnlockQueuesRequest, context: Context) -> pb.UnlockQueuesResponse:
        """Release the locks of queues."""
        session, queues = await self._session(request), _decode_queues(request)
        released = await self.clients.locks.release(request.group, request.client_id, session, queues)
        return pb.UnlockQueuesResponse(released=map(encode_queue, released))

    async def CommitOffsets(
        self, request: pb.CommitConsumerOffsetsRequest, context: Context
    ) -> pb.CommitConsumerOffsetsResponse:
        """Commit offsets of a group."""
        offsets = [read(GroupOffset, one) for one in request.offsets]
        sink = read(SinkIdentity, request.sink) if request.HasField("sink") else None
        refused = await self.pull.processor.commit_offsets(request.group, offsets, sink)
        if not refused:
            self.clients.locked_pulls.on_committed(request.group, offsets)
        return pb.CommitConsumerOffsetsResponse(refused=_encode_refused(refused))

    async def QueryOffsets(
        self, request: pb.QueryConsumerOffsetsRequest, context: Context
    ) -> pb.QueryConsumerOffsetsResponse:
        """The committed offsets of a group."""
        found = await self.pull.processor.query_offsets(request.group, _decode_queues(request), request.topic)
        return pb.QueryConsumerOffsetsResponse(
            offsets=[write(pb.ConsumerOffset, one) for one in found if one.error is None],
            refused=_encode_refused(one for one in found if one.error is not None),
        )

    async def SearchOffset(self, request: pb.SearchOffsetRequest, context: Context) -> pb.SearchOffsetResponse:
        """The first offset in a queue that was stored at or after a time."""
        offset = await self.pull.processor.find_offset(decode_queue(request.queue), request.time_ms)
        return pb.SearchOffsetResponse(offset=offset)

    async def MeasureQueues(self, request: pb.MeasureQueuesRequest, context: Context) -> pb.MeasureQueuesResponse:
        """The stored bytes of queues from an offset on."""
        starts: dict[Queue, tuple[int, int]] = {}
        for one in request.queues:
            if one.from_offset < 0 or one.bytes_max < 0:
                raise Invalid(
                    f"from_offset {one.from_offset}, bytes_max {one.bytes_max}; give 0 or more", field="queues"
                )
            starts[decode_queue(one.queue)] = one.from_offset, one.bytes_max
        if len(starts) < len(request.queues):
            raise Invalid("a queue is named twice; name each queue once", field="queues")
        response = pb.MeasureQueuesResponse()
        for queue, found in (await self.pull.processor.measure_queues(starts)).items():
            if isinstance(found, OrtooError):
                response.refused.append(pb.RefusedOffset(queue=encode_queue(queue), failure=encode_failure(found)))
            else:
                response.sizes.append(write(pb.QueueSize, found, queue=encode_queue(queue)))
        return response

    async def NackMessages(self, request: pb.NackMessagesRequest, context: Context) -> pb.NackMessagesResponse:
        """Nack messages that could not be processed."""
        check_consumer_group(request.group)
        if not 1 <= len(request.offsets) <= OFFSETS_MAX or min(request.offsets) < 0:
            raise Invalid(f"{len(request.offsets)} offsets; give 1 to {OFFSETS_MAX}, each 0 or more", field="offsets")
        if request.delay_level < PARK_LEVEL:
            raise Invalid(f"{request.delay_level}; give -1 to park, 0 or a level from 1 to 18", field="delay_level")
        if request.attempts_max > ATTEMPTS_LIMIT:
            raise Invalid(f"{request.attempts_max}; give at most {ATTEMPTS_LIMIT}", field="attempts_max")
        if request.delay_ms > DELAY_MS_MAX:
            raise Invalid(f"{request.delay_ms}; give at most {DELAY_MS_MAX} ms", field="delay_ms")
        if len(request.client_id) > TEXT_LENGTH_MAX:
            raise Invalid(f"{len(request.client_id)} characters; give at most {TEXT_LENGTH_MAX}", field="client_id")
        nack = read(
            NackMessagesRequest,
            request,
            offsets=list(request.offsets),
            consumer=request.client_id,
            error=request.error[:ERROR_LENGTH_MAX],
            counts=not request.uncounted,
        )
        return write(pb.NackMessagesResponse, await self.pop.nack_processor.nack(nack))

    async def _session(self, request: pb.LockQueuesRequest | pb.UnlockQueuesRequest) -> ClientSession | None:
        """The session of the locks. Errors: NotFound, Forbidden."""
        if request.session_id:
            return self.clients.sessions.get(request.session_id)
        check_owner((await self.clients.sessions.follow(request.group)).members, request.client_id)
        return None


def _decode_queues(
    request: pb.LockQueuesRequest | pb.UnlockQueuesRequest | pb.QueryConsumerOffsetsRequest,
) -> list[Queue]:
    return list(map(decode_queue, request.queues))


def _encode_refused(offsets: Iterable[GroupOffset]) -> list[pb.RefusedOffset]:
    """Offsets that could not be stored or read, with the reason."""
    return [write(pb.RefusedOffset, one, failure=encode_failure(one.error)) for one in offsets]


def _encode_pull_result(result: QueuePullResult) -> pb.PullResponse:
    status = pb.PULL_STATUS_FOUND
    if result.is_offset_illegal:
        status = pb.PULL_STATUS_OFFSET_ILLEGAL
    elif not result.parts:
        status = pb.PULL_STATUS_NO_MATCH if result.has_skipped else pb.PULL_STATUS_NO_NEW
    parts = [part for part in result.parts if part.batch is not None]
    return write(
        pb.PullResponse,
        result,
        status=status,
        begin_offset=max(0, result.begin_offset),
        batches=[write(pb.PulledBatch, part, topic_id=result.topic_id) for part in parts],
    )
