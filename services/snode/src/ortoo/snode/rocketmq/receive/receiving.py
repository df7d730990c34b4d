"""Receiving: a pop over all queues of a topic, told frame by frame."""

from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace

from apache.rocketmq.v2.definition_pb2 import Code
from apache.rocketmq.v2.service_pb2 import ReceiveMessageRequest, ReceiveMessageResponse
from ortoo.common.process.clock import Clock
from ortoo.common.records.batch import open_batch
from ortoo.common.records.message import Message
from ortoo.common.records.message_id import message_id_text
from ortoo.snode.cluster.directory import Directory
from ortoo.snode.cluster.routes import MessageType
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.pop.popping import PopAnswer, PopCall, Popping
from ortoo.snode.pop.receipt_handle import ReceiptHandle
from ortoo.snode.pull.reading import Reading
from ortoo.snode.rocketmq.clients.settings_reply import RECEIVE_BATCH_MAX, pop_rules
from ortoo.snode.rocketmq.clients.table import Clients
from ortoo.snode.rocketmq.lite.popping import LitePopping
from ortoo.snode.rocketmq.lite.subscriptions import LiteSubscription, LiteSubscriptions
from ortoo.snode.rocketmq.protocol.caller import Caller
from ortoo.snode.rocketmq.protocol.codes import Refused, ok, status_of
from ortoo.snode.rocketmq.protocol.filters import compile_filter
from ortoo.snode.rocketmq.protocol.messages import Delivery, delivered, in_ms, timestamp
from ortoo.snode.rocketmq.protocol.names import group_name, lite_topic_of, topic_name
from ortoo.snode.rocketmq.receive.leases import SLICE_MS, Lease, Leases

INVISIBLE_MS_MIN = 10_000
INVISIBLE_MS_MAX = 12 * 3_600_000
YOUNG_MESSAGES_MAX = 100_000
"""So many messages of a queue that lost none yet are a beginning; more are a history."""
STARTS_MAX = 50_000
"""Of so many groups and topics it is remembered where they began."""


class Starting:
    """Where a group begins that receives from a topic for the first time.

    As RocketMQ does: from the beginning in a young topic, else with what comes from now on.
    """

    def __init__(self, watch: DirectoryWatch, reading: Reading) -> None:
        self._watch = watch
        self._reading = reading
        self._known: OrderedDict[tuple[str, str], bool] = OrderedDict()

    async def from_last(self, group: str, topic: str) -> bool:
        """Whether the group begins at the end of queues in which it has no offset. Errors: NotFound."""
        key = (group, topic)
        if key not in self._known:
            ranges = await self._reading.queue_ranges(await self._watch.topic(topic))
            self._known[key] = any(
                held.begin_offset > 0 or held.end_offset > YOUNG_MESSAGES_MAX for held in ranges.values()
            )
            if len(self._known) > STARTS_MAX:
                self._known.popitem(last=False)
        return self._known[key]


@dataclass(frozen=True, slots=True)
class Receiving:
    """ReceiveMessage."""

    directory: Directory
    popping: Popping
    clients: Clients
    leases: Leases
    starting: Starting
    lite_popping: LitePopping
    lite_subscriptions: LiteSubscriptions
    clock: Clock

    async def receive(self, caller: Caller, request: ReceiveMessageRequest) -> AsyncIterator[ReceiveMessageResponse]:
        """A status, the messages, and the time: everything, or nothing of it stays leased. Errors: as PopCall says."""
        call = await self._call(caller, request)
        answer = await self._pop(caller, call)
        delivered_all = False
        try:
            for frame in list(self._frames(caller, request, call, answer)):
                yield frame
            delivered_all = True
        finally:
            # A client throws a stream away that broke, so what it was given comes again at once.
            if not delivered_all and answer.batches:
                await self.popping.release(answer)

    async def _pop(self, caller: Caller, call: PopCall) -> PopAnswer:
        topic = self.directory.find_topic(call.topic)
        if topic is None or topic.message_type is not MessageType.LITE:
            return await self.popping.pop(call)
        self.lite_subscriptions.check_parent(call.group, topic.name)

        def subscribed() -> LiteSubscription:
            now_s = self.clock.monotonic_s()
            return self.lite_subscriptions.of(caller.client_id, call.group, call.topic, now_s)

        return await self.lite_popping.pop(call, topic, subscribed)

    async def _call(self, caller: Caller, request: ReceiveMessageRequest) -> PopCall:
        group, topic = group_name(request.group), topic_name(request.message_queue.topic)
        wanted = compile_filter(request.filter_expression)
        invisible_ms = SLICE_MS
        if not request.auto_renew:
            invisible_ms = in_ms(request.invisible_duration)
            if not INVISIBLE_MS_MIN <= invisible_ms <= INVISIBLE_MS_MAX:
                raise Refused(
                    Code.ILLEGAL_INVISIBLE_TIME,
                    f"invisible for {invisible_ms} ms; expected {INVISIBLE_MS_MIN} to {INVISIBLE_MS_MAX}",
                )
        if caller.remaining_s is not None and caller.remaining_s <= 0:
            raise Refused(Code.ILLEGAL_POLLING_TIME, "the deadline is over before the poll begins; give it some time")
        self.clients.seen(caller, self.clock.monotonic_s()).group = group
        from_last = await self.starting.from_last(group, topic)
        return PopCall(
            group,
            topic,
            min(max(request.batch_size, 1), RECEIVE_BATCH_MAX),
            invisible_ms,
            caller.wait_ms(in_ms(request.long_polling_timeout)),
            caller.client_id,
            request.attempt_id,
            wanted,
            pop_rules(self.directory.group(group), from_last=from_last),
        )

    def _frames(
        self, caller: Caller, request: ReceiveMessageRequest, call: PopCall, answer: PopAnswer
    ) -> Iterator[ReceiveMessageResponse]:
        now_ms = self.clock.now_ms()
        words = f"no message: {answer.blocked}" if answer.blocked else "no new message"
        status = ok() if answer.batches else status_of(Refused(Code.MESSAGE_NOT_FOUND, words))
        yield ReceiveMessageResponse(status=status)
        namespace = request.message_queue.topic.resource_namespace
        for place, handle, message in self._delivered(call, answer):
            yield ReceiveMessageResponse(message=delivered(message, place, namespace))
            if request.auto_renew:
                self.leases.keep(Lease(caller.client_id, handle, self.clock.monotonic_s()))
        yield ReceiveMessageResponse(delivery_timestamp=timestamp(now_ms))

    def _delivered(self, call: PopCall, answer: PopAnswer) -> Iterator[tuple[Delivery, ReceiptHandle, Message]]:
        topic = self.directory.find_topic(call.topic)
        is_transaction = topic is not None and topic.message_type is MessageType.TRANSACTION
        for one in answer.batches:
            queue, popped = one.queue, one.popped
            for offset, attempt, message in zip(popped.offsets, popped.attempts, open_batch(popped.batch), strict=True):
                handle = replace(one.handle, first_offset=offset, count=1)
                place = Delivery(
                    call.topic,
                    queue.enode,
                    queue.queue_id,
                    offset,
                    popped.stored_at_ms,
                    message_id_text(one.topic_id, queue.enode, queue.queue_id, offset),
                    attempt,
                    handle.text(self.directory.seals),
                    call.invisible_ms,
                    is_transaction,
                    lite_topic_of(queue.topic),
                )
                yield place, handle, message
