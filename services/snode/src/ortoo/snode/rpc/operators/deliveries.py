"""DeliveryService: the delivery state of each message for a group, and the reasons why a group does not consume."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ortoo.common.arrays.opened_batch import OpenedBatch
from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import Invalid, NotFound, OrtooError
from ortoo.common.errors.status import rpc_errors
from ortoo.common.filters.message_filter import compile_filter
from ortoo.common.grpc.channels import Channels
from ortoo.common.grpc.errors import Context
from ortoo.common.process.clock import Clock
from ortoo.common.records.batch import encode
from ortoo.common.records.message import Message
from ortoo.common.records.text_rules import COPY_LIMITS, whole_number
from ortoo.snode.clients.directory import ClientDirectory
from ortoo.snode.cluster import ClusterView
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.cluster.wire import decode_queue, encode_queue
from ortoo.snode.membership.group_members import Subscription
from ortoo.snode.pop.dead_letters import DeadLetters
from ortoo.snode.pull.message_search import MessageSearch, SearchRequest
from ortoo.snode.pull.queue_reader import PlacedMessage
from ortoo.snode.pull.read_sizes import ANSWER_BYTES_MAX
from ortoo.snode.rpc.operators.reasons import ConsumptionState, GroupQueueState, find_reasons
from ortoo.v1 import delivery_pb2 as pb
from ortoo.v1 import enode_pop_pb2
from ortoo.v1.delivery_pb2_grpc import DeliveryServiceServicer
from ortoo.v1.enode_pb2_grpc import EnodeServiceStub

NAME = pb.DESCRIPTOR.services_by_name["DeliveryService"].full_name
LIMIT_DEFAULT, LIMIT_MAX = 100, 10_000
TIMEOUT_S = 3.0
ROW_BYTES = 8
"""Overhead of a row in an answer."""
DEAD_LETTERS_MAX = 1_000
"""Maximum of dead letters among which a message is searched."""


@dataclass(eq=False)
class DeliveryService(DeliveryServiceServicer):
    """The service that shows the delivery states of messages."""

    cluster: ClusterView
    channels: Channels
    clients: ClientDirectory
    search: MessageSearch
    dead_letters: DeadLetters
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
        queues: Sequence[Queue] = topic.read_queues()
        enode_request = enode_pop_pb2.DescribeDeliveriesRequest(
            topic_id=topic.topic_id, group=request.group, limit=LIMIT_DEFAULT
        )
        if request.message_id:
            message = await self._find_message(topic.name, request.message_id)
            queues = [message.queue]
            enode_request.from_offset, enode_request.to_offset, enode_request.limit = (
                message.offset,
                message.offset + 1,
                1,
            )
        described, away = await self._describe_all(queues, enode_request)
        rows = [row for queue, found in described for row in self._rows(queue, found)]
        if message is not None:
            await self._mark_parked(request.group, rows)
        group, consumers = self.cluster.directory.group(request.group), self.clients.consumers(request.group)
        subscriptions = [one for member in consumers for one in member.subscriptions if one.topic == topic.name]
        state = ConsumptionState(
            group=request.group,
            topic=topic,
            is_known=group is not None or any(found.committed_offset >= 0 for _, found in described),
            is_enabled=group is None or group.consume_enabled,
            consumers=len(consumers),
            filters=sorted({one.tag_expression or one.sql_expression or "*" for one in subscriptions}),
            is_matched=message is None or any(_matches(one, message.message) for one in subscriptions),
            queues=[_queue_state(queue, found) for queue, found in described],
            enodes_away=sorted(away),
            message=message,
            delivery=rows[0] if message is not None and rows else None,
            now_ms=self.clock.now_ms(),
        )
        found = [pb.Reason(name=one.name, observed=one.observed, remedy=one.remedy) for one in find_reasons(state)]
        return pb.ExplainConsumptionResponse(reasons=found, delivery=state.delivery)

    async def _find_message(self, topic: str, message_id: str) -> PlacedMessage:
        found = await self.search.find(topic, SearchRequest("", message_id, 0, 0, 1))
        if not found.messages:
            raise NotFound(
                f"no message of topic {topic} has the id {message_id}: it was never stored here, has expired, or "
                "its enode is unreachable",
                field="message_id",
            )
        return found.messages[0]

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
        entry = self.cluster.directory.enode(queue.enode)
        if entry is None:
            raise NotFound(f"there is no enode {queue.enode}", field="queue.enode")
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
        place, now_ms = encode_queue(queue), self.clock.now_ms()
        for one in found.ranges:
            state = _state(one.phase, one.until_ms > now_ms, found.uses_pop)
            until_ms = one.until_ms if state in (_LEASED, _DELAYED) else 0
            for offset in range(one.first_offset, one.first_offset + one.count):
                yield pb.MessageDelivery(
                    queue=place,
                    offset=offset,
                    state=state,
                    attempt=one.attempt,
                    until_ms=until_ms,
                    consumer=one.consumer,
                    error=one.error,
                )

    async def _mark_parked(self, group: str, rows: Sequence[pb.MessageDelivery]) -> None:
        """Mark the finished messages that are dead letters, and add the reason."""
        done = {(row.queue.topic, row.queue.enode, str(row.queue.queue_id), str(row.offset)): row
                for row in rows if row.state == pb.DELIVERY_STATE_ACKNOWLEDGED}  # fmt: skip
        if not done:
            return
        checked_count = 0
        async for dead_letter in self.dead_letters.list_dead_letters(group, None, include_replayed=True):
            properties = dead_letter.message.properties
            place = tuple(properties.get(f"DLQ_ORIGIN_{name}", "") for name in ("TOPIC", "ENODE", "QUEUE_ID", "OFFSET"))
            if (row := done.get(place)) is not None:  # type: ignore[arg-type]  # four texts
                row.state, row.attempt = pb.DELIVERY_STATE_PARKED, whole_number(properties.get("DLQ_ATTEMPTS", "")) or 0
                row.consumer, reason = properties.get("DLQ_CONSUMER", ""), properties.get("DLQ_REASON", "")
                row.error = f"{reason}: {properties['DLQ_ERROR']}" if properties.get("DLQ_ERROR") else reason
            checked_count += 1
            if checked_count >= DEAD_LETTERS_MAX:
                return


_LEASED, _DELAYED = pb.DELIVERY_STATE_LEASED, pb.DELIVERY_STATE_DELAYED
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


def _state(phase: int, is_later: bool, pops: bool) -> pb.DeliveryState.ValueType:
    if phase == enode_pop_pb2.DELIVERY_PHASE_DONE:
        return pb.DELIVERY_STATE_ACKNOWLEDGED
    if is_later and phase in (LEASED, RETURNED):
        return _LEASED if phase == LEASED else _DELAYED
    return pb.DELIVERY_STATE_WAITING if pops else pb.DELIVERY_STATE_OUTSTANDING


def _queue_state(queue: Queue, found: enode_pop_pb2.DescribeDeliveriesResponse) -> GroupQueueState:
    def count(*phases: int) -> int:
        return sum(one.count for one in found.ranges if one.phase in phases)

    tried = [one for one in found.ranges if one.phase in DELIVERED_PHASES and one.error]
    return GroupQueueState(
        queue,
        behind=max(0, found.end_offset - max(found.committed_offset, found.begin_offset)),
        pops=found.uses_pop,
        leased=count(LEASED),
        delayed=count(RETURNED),
        blocked=found.blocked_reason,
        error=tried[-1].error if tried else "",
        attempt=max((one.attempt for one in found.ranges), default=0),
    )
