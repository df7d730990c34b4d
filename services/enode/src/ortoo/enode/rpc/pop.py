"""PopQueues, SettlePopped, RetryMessages and ReplayStored."""

from collections.abc import Sequence

from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import Invalid
from ortoo.common.errors.status import failure_of
from ortoo.common.groups.pop import (
    AwaitRequest,
    Finish,
    LeasePart,
    LeaseVerdict,
    PoppedBatch,
    PopRequest,
    PopRules,
    Redeliver,
    Renew,
    ReplayRequest,
    RetryRequest,
)
from ortoo.common.grpc.errors import Context
from ortoo.common.grpc.messages import read, write
from ortoo.enode.rpc.handlers import EnodeHandlers, check_number
from ortoo.v1 import enode_pop_pb2 as pb

MESSAGES_MAX = 4_096
DELIVERIES_MAX = 10_000
BYTES_MAX = 3 << 20
"""About the largest answer of a pop: one more message of the largest size still fits."""
WAIT_MS_MAX = 120_000
INVISIBLE_MS_MAX = 86_400_000
MESSAGES_SETTLED_MAX = 65_536
"""The number of messages in one settling request."""


class PopHandlers(EnodeHandlers):
    """The methods for leased messages, nacks by offset, and replays."""

    async def PopQueues(self, request: pb.PopQueuesRequest, context: Context) -> pb.PopQueuesResponse:
        """Lease messages to a consumer, or peek at them. If the request has a wait time, wait for the first message."""
        await self.topics.wait_for(request.topic_id, max(request.queue_ids, default=0))
        pop = self.pops.peek if request.peek else self.pops.pop
        popped = await pop(_pop_request(request))
        if request.peek:
            await self.store.engine.appender.wait_committed()
        response = write(pb.PopQueuesResponse, popped, batches=())
        for one in popped.batches:
            _fill_batch(response.batches.add(), one)
        return response

    async def await_messages(self, request: pb.AwaitMessagesRequest) -> bool:
        """Wait until a pop may return messages; returns whether it may."""
        await self.topics.wait_for(request.topic_id, max(request.queue_ids, default=0))
        check_group_name(request.group)
        _check_queues(request.queue_ids)
        rules = read(PopRules, request.rules)
        waiting = read(AwaitRequest, request, rules=rules, wait_ms=min(request.wait_ms, WAIT_MS_MAX))
        return await self.pops.waits.wait(waiting)

    async def DescribeDeliveries(
        self, request: pb.DescribeDeliveriesRequest, context: Context
    ) -> pb.DescribeDeliveriesResponse:
        """Describe the delivery state of one queue's messages in a group."""
        await self.topics.wait_for(request.topic_id, request.queue_id)
        check_group_name(request.group)
        check_number("limit", request.limit, DELIVERIES_MAX)
        first = request.from_offset if request.HasField("from_offset") else -1
        place = (request.topic_id, request.group, request.queue_id)
        failure = self.retry_copies.ordered_failure(place)
        found = self.pops.describe(*place, first, request.to_offset, request.limit, failure)
        # The lines are ahead of the log. If a change that the answer shows cannot be stored, the caller gets an error.
        await self.store.engine.appender.wait_committed()
        return write(pb.DescribeDeliveriesResponse, found)

    async def SettlePopped(self, request: pb.SettlePoppedRequest, context: Context) -> pb.SettlePoppedResponse:
        """Apply a verdict to leased messages."""
        await self.topics.wait_for(request.topic_id)
        if letters_id := request.redeliver.rules.dead_letter_topic_id:
            await self.topics.wait_for(letters_id)
        check_group_name(request.group)
        parts = [_part(part) for part in request.parts]
        check_number("parts", sum(count for part in parts for _, count in part.ranges), MESSAGES_SETTLED_MAX)
        stale = await self.pops.settle(request.topic_id, request.group, parts, _verdict(request))
        return pb.SettlePoppedResponse(
            stale=[
                write(
                    pb.StaleOffset,
                    one,
                    lease_number=one.number,
                    failure=failure_of(one.error) if one.error is not None else None,
                )
                for one in stale
            ]
        )

    async def RetryMessages(self, request: pb.RetryMessagesRequest, context: Context) -> pb.RetryMessagesResponse:
        """Nack messages by offset: copy them to the group's retry topic."""
        await self.topics.wait_for(request.topic_id, request.queue_id)
        await self.topics.wait_for(request.retry_topic_id)
        await self.topics.wait_for(request.rules.dead_letter_topic_id)
        check_group_name(request.group)
        check_number("offsets", len(request.offsets), MESSAGES_MAX)
        retry_request = read(
            RetryRequest,
            request,
            rules=read(PopRules, request.rules),
            counts=not request.uncounted,
            consumer=request.client_id,
        )
        return pb.RetryMessagesResponse(message_ids=await self.retry_copies.retry(retry_request))

    async def ReplayStored(self, request: pb.ReplayStoredRequest, context: Context) -> pb.ReplayStoredResponse:
        """Replay dead letters."""
        await self.topics.wait_for(request.target_topic_id)
        check_group_name(request.group)
        ranges = tuple((one.first_offset, one.count) for one in request.ranges)
        check_number("ranges", sum(count for _, count in ranges), MESSAGES_SETTLED_MAX)
        sent = await self.retry_copies.replay(read(ReplayRequest, request, ranges=ranges))
        return pb.ReplayStoredResponse(ranges=[pb.OffsetRange(first_offset=one, count=count) for one, count in sent])


def _pop_request(request: pb.PopQueuesRequest) -> PopRequest:
    """Check and decode a pop request. Errors: Invalid."""
    check_number("messages_max", request.messages_max, MESSAGES_MAX)
    if not request.peek:
        check_group_name(request.group)
        check_number("invisible_ms", request.invisible_ms, INVISIBLE_MS_MAX)
    _check_queues(request.queue_ids)
    return read(
        PopRequest,
        request,
        bytes_max=min(request.bytes_max or BYTES_MAX, BYTES_MAX),
        wait_ms=min(request.wait_ms, WAIT_MS_MAX),
        consumer=request.client_id,
        rules=read(PopRules, request.rules),
    )


def _check_queues(queue_ids: Sequence[int]) -> None:
    if not queue_ids:
        raise Invalid("no queue is named; give at least one queue id", field="queue_ids")


def _part(part: pb.LeasePart) -> LeasePart:
    ranges = tuple((one.first_offset, one.count) for one in part.ranges)
    return LeasePart(
        part.queue_id,
        part.lease_number,
        ranges,
        is_exact=not part.ignore_stale,
        unexpired_only=part.unexpired_only,
        any_lease=part.any_lease,
    )


def _verdict(request: pb.SettlePoppedRequest) -> LeaseVerdict:
    kind = request.WhichOneof("verdict")
    if kind == "finish":
        return Finish(request.finish.filtered)
    if kind == "renew_invisible_ms":
        check_number("renew_invisible_ms", request.renew_invisible_ms, INVISIBLE_MS_MAX)
        return Renew(request.renew_invisible_ms)
    if kind == "redeliver":
        nack = request.redeliver
        delays_ms = tuple(nack.delays_ms) or (0,)
        rules = read(PopRules, nack.rules)
        return Redeliver(delays_ms, not nack.uncounted, nack.client_id, nack.error, nack.park, rules, nack.attempt)
    raise Invalid("missing verdict; give finish, renew_invisible_ms or give_back", field="verdict")


def _fill_batch(written: pb.PoppedBatch, popped: PoppedBatch) -> None:
    """Encode a batch, without its producer's id and sequence, in place: a message made of parts copies each of them."""
    batch, sealed = written.batch, popped.batch
    batch.records, batch.records_crc32c = sealed.records, sealed.records_crc32c
    batch.count, batch.body_inflated_bytes = sealed.count, sealed.body_inflated_bytes
    written.queue_id, written.lease_number, written.stored_at_ms = popped.queue_id, popped.number, popped.stored_at_ms
    written.offsets.extend(popped.offsets)
    written.attempts.extend(_attempts(popped.attempts))


def _attempts(attempts: Sequence[int]) -> Sequence[int]:
    """The attempt numbers on the wire; an empty list means 1 for each message."""
    return () if attempts.count(1) == len(attempts) else attempts
