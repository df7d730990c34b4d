"""DeliveryService: the delivery state of each message for a group, and the reasons why a group does not consume."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from ortoo.common.arrays.opened_batch import OpenedBatch
from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import Invalid, NotFound, OrtooError, Unavailable
from ortoo.common.errors.status import rpc_errors
from ortoo.common.filters.message_filter import compile_filter
from ortoo.common.grpc.channels import Channels
from ortoo.common.grpc.errors import Context
from ortoo.common.process.clock import Clock
from ortoo.common.records.batch import encode
from ortoo.common.records.message import Message
from ortoo.common.records.message_id import message_address
from ortoo.common.records.text_rules import COPY_LIMITS
from ortoo.snode.clients.directory import ClientDirectory
from ortoo.snode.cluster import ClusterView
from ortoo.snode.cluster.routes import Queue, Topic
from ortoo.snode.cluster.wire import decode_queue
from ortoo.snode.enodes.link import DeferredMessage, LagByState
from ortoo.snode.membership.group_members import GroupMember, Subscription
from ortoo.snode.pop.dead_letters import DeadLetters
from ortoo.snode.pull.backlogs import BacklogReader
from ortoo.snode.pull.message_search import MessageSearch, SearchRequest
from ortoo.snode.pull.queue_reader import PlacedMessage
from ortoo.snode.pull.read_sizes import ANSWER_BYTES_MAX
from ortoo.snode.push.evictions import SlowEvictions
from ortoo.snode.rpc.operators.explanation.delivery_rows import encode_delivery, mark_parked
from ortoo.snode.rpc.operators.explanation.message_trace import BlockingMessage, MessageTracer
from ortoo.snode.rpc.operators.explanation.reasons import (
    ConsumptionState,
    GroupQueueState,
    SilentConsumer,
    cause_of_deferred,
    find_reasons,
)
from ortoo.v1 import client_pb2, enode_pop_pb2
from ortoo.v1 import delivery_pb2 as pb
from ortoo.v1.delivery_pb2_grpc import DeliveryServiceServicer
from ortoo.v1.enode_pb2_grpc import EnodeServiceStub

NAME = pb.DESCRIPTOR.services_by_name["DeliveryService"].full_name
LIMIT_DEFAULT, LIMIT_MAX = 100, 10_000
TIMEOUT_S = 3.0
ROW_BYTES = 8
"""Overhead of a row in an answer."""
SILENT_MS = 10_000
"""Time without an acknowledgement after which a push consumer with messages is silent."""
CONSUMERS_ASKED_MAX = 20
"""Maximum number of group members whose queues are examined."""
DEAD_LETTERS_MAX = 1_000
"""Number of the newest dead letters of each queue among which a message is searched."""


@dataclass(eq=False)
class DeliveryService(DeliveryServiceServicer):
    """The service that shows the delivery states of messages."""

    cluster: ClusterView
    channels: Channels
    clients: ClientDirectory
    search: MessageSearch
    dead_letters: DeadLetters
    backlogs: BacklogReader
    tracer: MessageTracer
    describe_client: Callable[[client_pb2.DescribeClientRequest], Awaitable[client_pb2.DescribeClientResponse]]
    evictions: SlowEvictions
    clock: Clock

    async def ListDeliveries(self, request: pb.ListDeliveriesRequest, context: Context) -> pb.ListDeliveriesResponse:
        """The delivery states of the messages of a topic for a group."""
        check_group_name(request.group, "group")
        if not 0 <= request.limit <= LIMIT_MAX:
            raise Invalid(f"{request.limit}; expected 1 to {LIMIT_MAX}, or 0 for {LIMIT_DEFAULT}", field="limit")
        topic = await self.cluster.watch.topic(request.topic)
        queues = [decode_queue(request.queue)._replace(topic=topic.name)] if request.HasField("queue") else None
        enode_request = enode_pop_pb2.DescribeDeliveriesRequest(topic_id=topic.topic_id, group=request.group)
        enode_request.to_offset, enode_request.limit = request.to_offset, request.limit or LIMIT_DEFAULT
        if request.HasField("from_offset"):
            enode_request.from_offset = request.from_offset
        described, away = await self._describe_all(queues or topic.read_queues(), enode_request)
        rows, more = self._fitting(described)
        await self._mark_parked(request.group, rows)
        return pb.ListDeliveriesResponse(deliveries=rows, unreachable_enodes=sorted(away), more=more)

    async def ExplainConsumption(
        self, request: pb.ExplainConsumptionRequest, context: Context
    ) -> pb.ExplainConsumptionResponse:
        """The reasons why a group does not consume a topic, or one message of a topic."""
        check_group_name(request.group, "group")
        topic = await self.cluster.watch.topic(request.topic)
        message: PlacedMessage | None = None
        lost: Sequence[str] = ()
        queues: Sequence[Queue] = topic.read_queues()
        enode_request = enode_pop_pb2.DescribeDeliveriesRequest(
            topic_id=topic.topic_id, group=request.group, limit=LIMIT_DEFAULT
        )
        if request.message_id:
            message, lost = await self._find_message(topic, request.message_id)
            if message is None and (deferred := await self.tracer.find_deferred(topic, request.message_id)) is not None:
                return self._explain_deferred(topic, deferred)
            if message is None and not lost:
                raise NotFound(
                    f"no message of topic {topic.name} has the id {request.message_id}: it was never stored here, or "
                    "has expired. It is not among the first delayed messages and open transactions either",
                    field="message_id",
                )
            queues = [message.queue] if message is not None else []
        if message is not None:
            enode_request.from_offset, enode_request.to_offset, enode_request.limit = (
                message.offset,
                message.offset + 1,
                1,
            )
        described, away = await self._describe_all(queues, enode_request)
        away.update(lost)
        backlogs = await self.backlogs.read(request.group, topic)
        rows = [row for queue, found in described for row in self._rows(queue, found)]
        blocking: BlockingMessage | None = None
        if message is not None:
            if any(row.state == pb.DELIVERY_STATE_ACKNOWLEDGED for row in rows):
                letters = await self.tracer.find_dead_letters(request.group, message.message_id)
                if letters is not None:
                    mark_parked(rows, letters)
                else:
                    await self._mark_parked(request.group, rows)
            await self._mark_retrying(request.group, message, rows, backlogs.retries)
            blocking = await self._find_blocking(request.group, topic, message, rows)
        group, consumers = self.cluster.directory.group(request.group), await self.clients.consumers(request.group)
        subscriptions = [one for member in consumers for one in member.subscriptions if one.topic == topic.name]
        state = ConsumptionState(
            group=request.group,
            topic=topic,
            # The offsets of a group may be on an enode that does not answer.
            is_known=group is not None or bool(away) or any(found.committed_offset >= 0 for _, found in described),
            is_enabled=group is None or group.consume_enabled,
            consumers=len(consumers),
            filters=sorted({one.tag_expression or one.sql_expression or "*" for one in subscriptions}),
            is_matched=message is None or any(_matches(one, message.message) for one in subscriptions),
            queues=[_queue_state(queue, found, backlogs.of_queue(topic, queue)) for queue, found in described],
            enodes_away=sorted(away),
            message=message,
            delivery=rows[0] if message is not None and rows else None,
            now_ms=self.clock.now_ms(),
            backlog=backlogs.of_topic(topic).merged(backlogs.retries),
            blocking=blocking,
            silent=await self._silent_consumers(request.group, topic, consumers),
            evictions=self.evictions.of_group(request.group),
        )
        causes = [pb.Reason(name=one.name, observed=one.observed, remedy=one.remedy) for one in find_reasons(state)]
        return pb.ExplainConsumptionResponse(reasons=causes, delivery=state.delivery)

    async def _find_message(self, topic: Topic, message_id: str) -> tuple[PlacedMessage | None, Sequence[str]]:
        """The message; otherwise the unreachable enodes that may have it."""
        try:
            found = await self.search.find(topic.name, SearchRequest("", message_id, 0, 0, 1))
        except Unavailable:
            address = message_address(message_id)
            return None, topic.enodes if address is None else [address.enode]
        if found.messages:
            return found.messages[0], []
        return None, found.unreachable_enodes

    def _explain_deferred(self, topic: Topic, deferred: DeferredMessage) -> pb.ExplainConsumptionResponse:
        """Why no group gets a message that is not stored in the topic yet."""
        cause = cause_of_deferred(topic, deferred, self.clock.now_ms())
        reason = pb.Reason(name=cause.name, observed=cause.observed, remedy=cause.remedy)
        return pb.ExplainConsumptionResponse(reasons=[reason])

    async def _mark_retrying(
        self, group: str, message: PlacedMessage, rows: Sequence[pb.MessageDelivery], retries: LagByState
    ) -> None:
        """Correct the state of a finished message whose copy waits in the group's retry topic."""
        for row in rows:
            if row.state != pb.DELIVERY_STATE_ACKNOWLEDGED or not retries.retrying:
                continue
            copy = await self.tracer.find_retry_copy(group, message.message_id)
            if copy is not None and (copy.placed is None or await self._is_unfinished(group, copy.placed)):
                row.state, row.attempt, row.until_ms = pb.DELIVERY_STATE_DELAYED, copy.attempts, copy.retry_at_ms
                if retries.retrying == 1:  # the last error of the group is that of this message
                    row.consumer, row.error = retries.consumer, retries.error

    async def _is_unfinished(self, group: str, placed: PlacedMessage) -> bool:
        """Whether a group has not finished a message of its retry topic."""
        topic = await self.cluster.watch.topic(placed.queue.topic)
        request = enode_pop_pb2.DescribeDeliveriesRequest(
            topic_id=topic.topic_id, group=group, from_offset=placed.offset, to_offset=placed.offset + 1, limit=1
        )
        described, _ = await self._describe_all([placed.queue], request)
        return any(one.phase != enode_pop_pb2.DELIVERY_PHASE_DONE for _, found in described for one in found.ranges)

    async def _find_blocking(
        self, group: str, topic: Topic, message: PlacedMessage, rows: Sequence[pb.MessageDelivery]
    ) -> BlockingMessage | None:
        """The earlier message of its queue for which a message waits; None if it waits for none."""
        if not any(row.state in (pb.DELIVERY_STATE_WAITING, pb.DELIVERY_STATE_OUTSTANDING) for row in rows):
            return None
        request = enode_pop_pb2.DescribeDeliveriesRequest(
            topic_id=topic.topic_id, group=group, to_offset=message.offset, limit=LIMIT_MAX
        )
        described, _ = await self._describe_all([message.queue], request)
        earlier = [row for queue, found in described for row in self._rows(queue, found)]
        return await self.tracer.find_blocking(group, topic, message, earlier)

    async def _silent_consumers(
        self, group: str, topic: Topic, consumers: Sequence[GroupMember]
    ) -> list[SilentConsumer]:
        """The push consumers of a topic that hold messages and have acknowledged nothing for SILENT_MS."""
        found: list[SilentConsumer] = []
        pushed = [one for one in consumers if one.pushed and topic.name in one.topics][:CONSUMERS_ASKED_MAX]
        with contextlib.suppress(OrtooError):  # a snode that does not answer, or a consumer that has just left
            for member in pushed:
                request = client_pb2.DescribeClientRequest(client_id=member.client_id, group=group)
                for one in (await self.describe_client(request)).queues:
                    if one.queue.topic == topic.name and one.held_messages and one.waiting_ms >= SILENT_MS:
                        queue = decode_queue(one.queue)
                        found.append(SilentConsumer(member.client_id, queue, one.held_messages, one.waiting_ms))
        return found

    async def _describe_all(
        self, queues: Sequence[Queue], request: enode_pop_pb2.DescribeDeliveriesRequest
    ) -> tuple[list[tuple[Queue, enode_pop_pb2.DescribeDeliveriesResponse]], set[str]]:
        """The answers for the queues, and the enodes that did not answer. Raises other errors of enodes."""
        answers = await asyncio.gather(*(self._describe(queue, request) for queue in queues), return_exceptions=True)
        found, away = [], set()
        for queue, answer in zip(queues, answers, strict=True):
            if isinstance(answer, OrtooError) and answer.retriable:
                away.add(queue.enode)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found.append((queue, answer))
        return found, away

    async def _describe(
        self, queue: Queue, request: enode_pop_pb2.DescribeDeliveriesRequest
    ) -> enode_pop_pb2.DescribeDeliveriesResponse:
        entry = self.cluster.directory.registered_enode(queue.enode)
        queue_request = enode_pop_pb2.DescribeDeliveriesRequest(queue_id=queue.queue_id)
        queue_request.MergeFrom(request)
        with rpc_errors(f"enode {queue.enode}", is_internal=True):
            stub = EnodeServiceStub(self.channels.channel_to(entry.address))
            return await stub.DescribeDeliveries(queue_request, timeout=TIMEOUT_S)

    def _fitting(
        self, described: Sequence[tuple[Queue, enode_pop_pb2.DescribeDeliveriesResponse]]
    ) -> tuple[list[pb.MessageDelivery], bool]:
        """The rows that fit into one answer, and whether there are more rows."""
        left_bytes, rows = ANSWER_BYTES_MAX, list[pb.MessageDelivery]()
        for queue, found in described:
            for row in self._rows(queue, found):
                left_bytes -= row.ByteSize() + ROW_BYTES
                if left_bytes < 0 and rows:
                    return rows, True
                rows.append(row)
            if found.more:
                return rows, True
        return rows, False

    def _rows(self, queue: Queue, found: enode_pop_pb2.DescribeDeliveriesResponse) -> Iterator[pb.MessageDelivery]:
        now_ms = self.clock.now_ms()
        for one in found.ranges:
            row = encode_delivery(queue, one, now_ms, uses_pop=found.uses_pop)
            yield row
            for offset in range(one.first_offset + 1, one.first_offset + one.count):
                yield pb.MessageDelivery(
                    queue=row.queue, offset=offset, state=row.state, attempt=row.attempt, until_ms=row.until_ms,
                    consumer=row.consumer, error=row.error,
                )  # fmt: skip

    async def _mark_parked(self, group: str, rows: Sequence[pb.MessageDelivery]) -> None:
        """Mark the finished messages that are among the newest dead letters, and add the reason."""
        if not any(row.state == pb.DELIVERY_STATE_ACKNOWLEDGED for row in rows):
            return
        letters = self.dead_letters.list_dead_letters(group, None, include_replayed=True, newest=DEAD_LETTERS_MAX)
        mark_parked(rows, [one async for one in letters])


LEASED, RETURNED = enode_pop_pb2.DELIVERY_PHASE_LEASED, enode_pop_pb2.DELIVERY_PHASE_RETURNED
DELIVERED_PHASES = (LEASED, RETURNED, enode_pop_pb2.DELIVERY_PHASE_EXPIRED)


def _matches(subscription: Subscription, message: Message) -> bool:
    message_filter = compile_filter(subscription.tag_expression, subscription.sql_expression)
    rows = (
        None
        if message_filter is None
        else message_filter.select(OpenedBatch(encode([message], now_ms=0, limits=COPY_LIMITS)))
    )
    return rows is None or len(rows) > 0


def _queue_state(
    queue: Queue, found: enode_pop_pb2.DescribeDeliveriesResponse, unfinished: int | None
) -> GroupQueueState:
    """The state of a queue; `unfinished` is None if its enode did not report it."""
    behind = max(0, found.end_offset - max(found.committed_offset, found.begin_offset))

    def count(*phases: int) -> int:
        return sum(one.count for one in found.ranges if one.phase in phases)

    tried = [one for one in found.ranges if one.phase in DELIVERED_PHASES and one.error]
    return GroupQueueState(
        queue,
        behind=behind if unfinished is None else unfinished,
        pops=found.uses_pop,
        leased=count(LEASED),
        delayed=count(RETURNED),
        blocked=found.blocked_reason,
        error=tried[-1].error if tried else "",
        attempt=max((one.attempt for one in found.ranges), default=0),
        holders=sorted({one.consumer for one in found.ranges if one.phase == LEASED and one.consumer}),
    )
