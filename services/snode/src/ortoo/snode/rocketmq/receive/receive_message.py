"""Receives: a pop over all queues of a topic, answered frame by frame."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace

from apache.rocketmq.v2.definition_pb2 import Code
from apache.rocketmq.v2.service_pb2 import ReceiveMessageRequest, ReceiveMessageResponse
from ortoo.common.directory.topic import MessageType
from ortoo.common.errors import OrtooError
from ortoo.common.grpc.layers.answers import Answers
from ortoo.common.grpc.layers.call_memory import current_memory_share
from ortoo.common.process.clock import Clock
from ortoo.common.records.batch import open_batch
from ortoo.common.records.message_id import message_id_text
from ortoo.snode.cluster.directory import DirectoryCache
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.pop.call import PopCall, PoppedMessages, PopResult
from ortoo.snode.pop.processor import PopProcessor
from ortoo.snode.pull.queue_reader import QueueReader
from ortoo.snode.rocketmq.clients.settings_reply import PLAIN_TYPES, RECEIVE_BATCH_MAX, pop_rules
from ortoo.snode.rocketmq.clients.table import ClientTable
from ortoo.snode.rocketmq.lite.pop_processor import LitePopProcessor
from ortoo.snode.rocketmq.protocol.caller import REQUEST_TIMEOUT_MS, Caller
from ortoo.snode.rocketmq.protocol.codes import GrpcProxyError, ok_status, status_of
from ortoo.snode.rocketmq.protocol.filters import compile_filter
from ortoo.snode.rocketmq.protocol.messages import DeliveryInfo, fill_message, timestamp, to_ms
from ortoo.snode.rocketmq.protocol.names import group_name, lite_topic_of, topic_name
from ortoo.snode.rocketmq.receive.auto_renewal import LEASE_MS, AutoRenewedLease, AutoRenewedLeases
from ortoo.snode.rocketmq.receive.open_polls import OpenPolls
from ortoo.snode.rocketmq.receive.unconfirmed_responses import Receiver, UnconfirmedResponses

INVISIBLE_MS_MIN = 10_000
INVISIBLE_MS_MAX = 12 * 3_600_000


def check_invisible_duration(invisible_ms: int, least_ms: int) -> None:
    """Refuse an invisible duration that is too short or too long, with RocketMQ's text. Errors: GrpcProxyError."""
    if invisible_ms < least_ms:
        message = f"the invisibleTime is too small: {invisible_ms} ms, give at least {least_ms}"
    elif invisible_ms > INVISIBLE_MS_MAX:
        message = f"the invisibleTime is too large: {invisible_ms} ms, give at most {INVISIBLE_MS_MAX}"
    else:
        return
    raise GrpcProxyError(Code.ILLEGAL_INVISIBLE_TIME, message)


TOGETHER_BYTES_MAX = 64 << 10
"""Messages up to this size are answered at once. The frames of a larger answer wait for the client one by one, because
each frame that is ready takes memory."""
COPIES = 2
"""Copies of messages while their frames wait for the client: as popped, and as frames."""
NEW_TOPIC_MESSAGES_MAX = 100_000
"""A queue that has lost no messages and has at most this number is young."""
POSITIONS_MAX = 50_000
"""Maximum of cached start positions of groups in topics."""


class InitialPosition:
    """Determines where a group begins when it receives messages of a topic for the first time.

    As in RocketMQ, a group begins at the first message of a young topic, and at the end of other topics.
    """

    def __init__(self, watch: DirectoryWatch, reader: QueueReader) -> None:
        self._watch = watch
        self._reader = reader
        self._starts_at_end: OrderedDict[tuple[str, str], bool] = OrderedDict()

    def known(self, group: str, topic: str) -> bool | None:
        """Whether a group begins at the end of queues in which it has no offset; None if that is not cached."""
        return self._starts_at_end.get((group, topic))

    async def starts_at_end(self, group: str, topic: str) -> bool:
        """Whether a group begins at the end of queues in which it has no offset. Errors: NotFound."""
        key = (group, topic)
        if key not in self._starts_at_end:
            ranges = await self._reader.queue_ranges(await self._watch.topic(topic))
            self._starts_at_end[key] = any(
                held.begin_offset > 0 or held.end_offset > NEW_TOPIC_MESSAGES_MAX for held in ranges.values()
            )
            if len(self._starts_at_end) > POSITIONS_MAX:
                self._starts_at_end.popitem(last=False)
        return self._starts_at_end[key]


def beginning(call: PopCall, *, from_last: bool) -> PopCall:
    """The same pop of a group that begins at the end of queues without an offset, or at their first message."""
    return replace(call, rules=replace(call.rules, from_last=from_last))


def _is_small(result: PopResult) -> bool:
    batches = [one.popped.batch for one in result.batches]
    return sum(max(len(batch.records), batch.body_inflated_bytes) for batch in batches) <= TOGETHER_BYTES_MAX


def _charge_memory(result: PopResult) -> None:
    """Count an answer in the call's memory until its client has taken all of it. Errors: Overloaded."""
    if (share := current_memory_share()) is not None:
        share.draw(COPIES * sum(len(one.popped.batch.records) for one in result.batches))


@dataclass(frozen=True, slots=True)
class ReceiveMessageActivity:
    """The call ReceiveMessage."""

    directory: DirectoryCache
    pop_processor: PopProcessor
    clients: ClientTable
    leases: AutoRenewedLeases
    initial_position: InitialPosition
    lite_pop_processor: LitePopProcessor
    open_polls: OpenPolls
    clock: Clock
    unconfirmed: UnconfirmedResponses = field(default_factory=UnconfirmedResponses)
    releasing: dict[Receiver, asyncio.Future[None]] = field(default_factory=dict)
    """Releases in progress. Until its release is complete, an attempt id would find the same messages again."""

    async def receive(
        self, caller: Caller, request: ReceiveMessageRequest
    ) -> AsyncGenerator[Answers | ReceiveMessageResponse, None]:
        """Yield the status, the messages, and the delivery time; a small answer at once.

        If the client disconnects meanwhile, messages that it did not receive are released or nacked.
        """
        if caller.waited_s and self.clients.get(caller.client_id) is None:  # it has left while its poll became a call
            yield Answers(self._frames(caller, request, self.pop_of(request), PopResult([]))[0])
            return
        call = await self._call(caller, request)
        receiver = (caller.client_id, call.group, call.topic)
        while (releasing := self.releasing.get(receiver)) is not None:
            await asyncio.wait([releasing])
        if (
            request.attempt_id
            and (undelivered := self.unconfirmed.find_undelivered(receiver, request.attempt_id)) is not None
        ):
            await self._on_undelivered(caller, receiver, undelivered)
        requested = call.messages_max
        call = replace(call, messages_max=self.unconfirmed.limit_messages(receiver, requested))
        result = await self.open_polls.run(caller.client_id, self._pop(call)) or PopResult([])
        try:
            _charge_memory(result)
        except OrtooError:
            await self.pop_processor.release(result)
            raise
        response = self.unconfirmed.add(receiver, request.attempt_id, result)
        is_delivered = False
        try:
            frames, unreadable = self._frames(caller, request, call, result)
            for one, error in unreadable:
                await self.pop_processor.nack_all(PopResult([one]), caller.client_id, error)
                result.batches.remove(one)
            for part in [Answers(frames)] if _is_small(result) else frames:
                yield part
            await caller.end()
            is_delivered = True
        finally:
            # A client discards a broken stream; it may have polled again before the break was noticed here.
            if result.batches and is_delivered:
                self.unconfirmed.on_delivered(receiver, requested)
            elif result.batches and self.unconfirmed.claim(receiver, response):
                await self._on_undelivered(caller, receiver, result)

    async def _on_undelivered(self, caller: Caller, receiver: Receiver, result: PopResult) -> None:
        """Settle an answer that the client did not receive: release several messages, but nack a single message."""
        messages = sum(len(one.popped.offsets) for one in result.batches)
        for one in result.batches:
            for offset in one.popped.offsets:
                self.leases.remove(one.handle, offset)
        released = self.releasing[receiver] = asyncio.get_running_loop().create_future()
        try:
            if self.unconfirmed.on_undelivered(receiver, messages):
                await self.pop_processor.nack_all(result, caller.client_id, "the client did not receive the message")
            else:
                await self.pop_processor.release(result)
        finally:
            self.releasing.pop(receiver, None)
            released.set_result(None)

    async def _pop(self, call: PopCall) -> PopResult:
        topic = self.directory.find_topic(call.topic)
        if topic is None or topic.message_type is not MessageType.LITE:
            return await self.pop_processor.pop(call)
        if self._receives_all(call.consumer):
            return await self.lite_pop_processor.pop_all(call, topic)
        return await self.lite_pop_processor.pop(call, topic)

    def _receives_all(self, client_id: str) -> bool:
        """Whether a client of a parent topic receives all its lite topics, because it cannot subscribe to some."""
        client = self.clients.get(client_id)
        is_plain = client is not None and client.client_type in PLAIN_TYPES
        return is_plain and not self.lite_pop_processor.subscriptions.is_subscribed(client_id)

    def pop_of(self, request: ReceiveMessageRequest) -> PopCall:
        """The pop that a request describes, without its consumer and its initial position. Errors: GrpcProxyError."""
        group, topic = group_name(request.group), topic_name(request.message_queue.topic)
        message_filter = compile_filter(request.filter_expression)
        invisible_ms = LEASE_MS
        if not request.auto_renew:
            invisible_ms = to_ms(request.invisible_duration)
            check_invisible_duration(invisible_ms, INVISIBLE_MS_MIN)
        return PopCall(
            group,
            topic,
            min(max(request.batch_size, 1), RECEIVE_BATCH_MAX),
            invisible_ms,
            to_ms(request.long_polling_timeout),
            "",
            request.attempt_id,
            message_filter,
            pop_rules(self.directory.group(group), from_last=False, order_batched=not request.auto_renew),
        )

    async def _call(self, caller: Caller, request: ReceiveMessageRequest) -> PopCall:
        call = self.pop_of(request)
        remaining_s = caller.time_left_s()
        if remaining_s is not None and remaining_s <= 0:
            raise GrpcProxyError(
                Code.ILLEGAL_POLLING_TIME,
                "the deadline of the call passed before the poll began; set a longer deadline",
            )
        client = self.clients.touch(caller, self.clock.monotonic_s())
        client.group = call.group
        request_timeout_ms = to_ms(client.settings.request_timeout) if client.settings is not None else 0
        from_last = await self.initial_position.starts_at_end(call.group, call.topic)
        wait_ms = caller.wait_ms(call.wait_ms, request_timeout_ms or REQUEST_TIMEOUT_MS)
        return replace(beginning(call, from_last=from_last), wait_ms=wait_ms, consumer=caller.client_id)

    def _frames(
        self, caller: Caller, request: ReceiveMessageRequest, call: PopCall, result: PopResult
    ) -> tuple[list[ReceiveMessageResponse], list[tuple[PoppedMessages, str]]]:
        """The frames for the client; and the batches that the protocol cannot represent, each with the reason."""
        now_s, namespace = self.clock.monotonic_s(), request.message_queue.topic.resource_namespace
        topic = self.directory.find_topic(call.topic)
        is_transaction = topic is not None and topic.message_type is MessageType.TRANSACTION
        found, unreadable = list[ReceiveMessageResponse](), list[tuple[PoppedMessages, str]]()
        for one in result.batches:
            try:
                found += self._deliveries(call, one, namespace, is_transaction=is_transaction)
            except OrtooError as error:
                unreadable.append((one, str(error)))
                continue
            if request.auto_renew:
                for offset in one.popped.offsets:
                    self.leases.add(AutoRenewedLease(caller.client_id, one.handle, now_s, offset))
        text = f"no message: {result.blocked_reason}" if result.blocked_reason else "no new message"
        status = ok_status() if found else status_of(GrpcProxyError(Code.MESSAGE_NOT_FOUND, text))
        end = ReceiveMessageResponse(delivery_timestamp=timestamp(self.clock.now_ms()))
        return [ReceiveMessageResponse(status=status), *found, end], unreadable

    def _deliveries(
        self, call: PopCall, one: PoppedMessages, namespace: str, *, is_transaction: bool
    ) -> list[ReceiveMessageResponse]:
        """The frames with the messages of a batch. Errors: those of its decoding."""
        queue, popped, lite_topic = one.queue, one.popped, lite_topic_of(one.queue.topic)
        handles = one.handle.encoded_messages(self.directory.seals, popped.offsets)
        frames = []
        for offset, attempt, handle, message in zip(
            popped.offsets, popped.attempts, handles, open_batch(popped.batch), strict=True
        ):
            place = DeliveryInfo(
                call.topic,
                queue.enode,
                queue.queue_id,
                offset,
                popped.stored_at_ms,
                "" if message.message_id else message_id_text(one.handle.topic_id, queue.enode, queue.queue_id, offset),
                attempt,
                handle,
                call.invisible_ms,
                is_transaction,
                lite_topic,
            )
            frame = ReceiveMessageResponse()
            fill_message(frame.message, message, place, namespace)
            frames.append(frame)
        return frames
