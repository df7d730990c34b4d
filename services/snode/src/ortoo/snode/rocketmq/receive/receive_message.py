"""Receives: a pop over all queues of a topic, answered frame by frame."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field, replace

from apache.rocketmq.v2.definition_pb2 import Code
from apache.rocketmq.v2.service_pb2 import ReceiveMessageRequest, ReceiveMessageResponse
from ortoo.common.errors import OrtooError
from ortoo.common.grpc.layers.call_memory import current_share
from ortoo.common.process.clock import Clock
from ortoo.common.records.batch import open_batch
from ortoo.common.records.message import Message
from ortoo.common.records.message_id import message_id_text
from ortoo.snode.cluster.directory import Directory
from ortoo.snode.cluster.routes import MessageType
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.pop.processor import PopAnswer, PopCall, PoppedMessages, Popping
from ortoo.snode.pop.receipt_handle import ReceiptHandle
from ortoo.snode.pull.queue_reader import Reading
from ortoo.snode.rocketmq.clients.settings_reply import RECEIVE_BATCH_MAX, pop_rules
from ortoo.snode.rocketmq.clients.table import Clients
from ortoo.snode.rocketmq.lite.pop_processor import LitePopping
from ortoo.snode.rocketmq.protocol.caller import REQUEST_TIMEOUT_MS, Caller
from ortoo.snode.rocketmq.protocol.codes import Refused, ok, status_of
from ortoo.snode.rocketmq.protocol.filters import compile_filter
from ortoo.snode.rocketmq.protocol.messages import Delivery, delivered, in_ms, timestamp
from ortoo.snode.rocketmq.protocol.names import group_name, lite_topic_of, topic_name
from ortoo.snode.rocketmq.receive.unconfirmed_responses import Doubts, Receiver
from ortoo.snode.rocketmq.receive.auto_renewal import SLICE_MS, Lease, Leases

INVISIBLE_MS_MIN = 10_000
INVISIBLE_MS_MAX = 12 * 3_600_000


def check_invisible(invisible_ms: int, least_ms: int) -> None:
    """Refuse an invisible time beyond the limits, with RocketMQ's message. Errors: Refused."""
    if invisible_ms < least_ms:
        words = f"the invisibleTime is too small: {invisible_ms} ms, give at least {least_ms}"
    elif invisible_ms > INVISIBLE_MS_MAX:
        words = f"the invisibleTime is too large: {invisible_ms} ms, give at most {INVISIBLE_MS_MAX}"
    else:
        return
    raise Refused(Code.ILLEGAL_INVISIBLE_TIME, words)


COPIES = 2
"""Copies of messages while their frames wait for the client: the popped ones, and the frames."""
YOUNG_MESSAGES_MAX = 100_000
"""A queue that has lost no messages and has at most this number is young."""
STARTS_MAX = 50_000
"""Maximum of cached start positions of groups in topics."""


class Starting:
    """Where a group begins that receives from a topic for the first time.

    As in RocketMQ: at the beginning of a young topic, otherwise at its end.
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


def _hold(answer: PopAnswer) -> None:
    """Count an answer in the call's memory until its client has taken all of it. Errors: Overloaded."""
    if (share := current_share()) is not None:
        share.draw(COPIES * sum(len(one.popped.batch.records) for one in answer.batches))


@dataclass(frozen=True, slots=True)
class Receiving:
    """ReceiveMessage."""

    directory: Directory
    popping: Popping
    clients: Clients
    leases: Leases
    starting: Starting
    lite_popping: LitePopping
    clock: Clock
    doubts: Doubts = field(default_factory=Doubts)
    returning: dict[Receiver, asyncio.Future[None]] = field(default_factory=dict)
    """Answers being released. Before the release completes the same attempt id would find the same messages."""

    async def receive(
        self, caller: Caller, request: ReceiveMessageRequest
    ) -> AsyncGenerator[ReceiveMessageResponse, None]:
        """A status, the messages, and the time. If the answer breaks, its leases are released. Errors: as PopCall."""
        call = await self._call(caller, request)
        receiver = (caller.client_id, call.group, call.topic)
        while (returning := self.returning.get(receiver)) is not None:
            await asyncio.wait([returning])
        if request.attempt_id and (untaken := self.doubts.untaken(receiver, request.attempt_id)) is not None:
            await self._not_taken(caller, receiver, untaken)
        wanted = call.messages_max
        call = replace(call, messages_max=self.doubts.limit(receiver, wanted))
        answer = await self._pop(call)
        try:
            _hold(answer)
        except OrtooError:
            await self.popping.release(answer)
            raise
        given = self.doubts.given(receiver, request.attempt_id, answer)
        delivered_all = False
        try:
            frames, unreadable = self._frames(caller, request, call, answer)
            for one, error in unreadable:
                await self.popping.failed(PopAnswer([one]), caller.client_id, error)
                answer.batches.remove(one)
            for frame in frames:
                yield frame
            await caller.end()
            delivered_all = True
        finally:
            # A client discards a broken stream; it may have polled again before the break was noticed here.
            if answer.batches and delivered_all:
                self.doubts.taken(receiver, wanted)
            elif answer.batches and self.doubts.is_still(receiver, given):
                await self._not_taken(caller, receiver, answer)

    async def _not_taken(self, caller: Caller, receiver: Receiver, answer: PopAnswer) -> None:
        """Release several messages, fewer at once from now on; a single one has failed, and waits or is parked."""
        messages = sum(len(one.popped.offsets) for one in answer.batches)
        for one in answer.batches:
            for offset in one.popped.offsets:
                self.leases.drop(one.handle.of_one(offset))
        returning = self.returning[receiver] = asyncio.get_running_loop().create_future()
        try:
            if self.doubts.broken(receiver, messages):
                await self.popping.failed(answer, caller.client_id, "the client did not receive the message")
            else:
                await self.popping.release(answer)
        finally:
            self.returning.pop(receiver, None)
            returning.set_result(None)

    async def _pop(self, call: PopCall) -> PopAnswer:
        topic = self.directory.find_topic(call.topic)
        if topic is None or topic.message_type is not MessageType.LITE:
            return await self.popping.pop(call)
        return await self.lite_popping.pop(call, topic)

    async def _call(self, caller: Caller, request: ReceiveMessageRequest) -> PopCall:
        group, topic = group_name(request.group), topic_name(request.message_queue.topic)
        wanted = compile_filter(request.filter_expression)
        invisible_ms = SLICE_MS
        if not request.auto_renew:
            invisible_ms = in_ms(request.invisible_duration)
            check_invisible(invisible_ms, INVISIBLE_MS_MIN)
        if caller.remaining_s is not None and caller.remaining_s <= 0:
            raise Refused(Code.ILLEGAL_POLLING_TIME, "the deadline passed before the poll; give it more time")
        client = self.clients.seen(caller, self.clock.monotonic_s())
        client.group = group
        request_timeout_ms = in_ms(client.settings.request_timeout) if client.settings is not None else 0
        from_last = await self.starting.from_last(group, topic)
        return PopCall(
            group,
            topic,
            min(max(request.batch_size, 1), RECEIVE_BATCH_MAX),
            invisible_ms,
            caller.wait_ms(in_ms(request.long_polling_timeout), request_timeout_ms or REQUEST_TIMEOUT_MS),
            caller.client_id,
            request.attempt_id,
            wanted,
            pop_rules(self.directory.group(group), from_last=from_last, order_batched=not request.auto_renew),
        )

    def _frames(
        self, caller: Caller, request: ReceiveMessageRequest, call: PopCall, answer: PopAnswer
    ) -> tuple[list[ReceiveMessageResponse], list[tuple[PoppedMessages, str]]]:
        """The frames for the client, and the batches that the protocol cannot represent, with the reason."""
        now_s, namespace = self.clock.monotonic_s(), request.message_queue.topic.resource_namespace
        found, unreadable = list[ReceiveMessageResponse](), list[tuple[PoppedMessages, str]]()
        for one in answer.batches:
            try:
                messages = list(self._delivered(call, one))
            except OrtooError as error:
                unreadable.append((one, str(error)))
                continue
            for place, handle, message in messages:
                found.append(ReceiveMessageResponse(message=delivered(message, place, namespace)))
                if request.auto_renew:
                    self.leases.keep(Lease(caller.client_id, handle, now_s))
        words = f"no message: {answer.blocked}" if answer.blocked else "no new message"
        status = ok() if found else status_of(Refused(Code.MESSAGE_NOT_FOUND, words))
        end = ReceiveMessageResponse(delivery_timestamp=timestamp(self.clock.now_ms()))
        return [ReceiveMessageResponse(status=status), *found, end], unreadable

    def _delivered(self, call: PopCall, one: PoppedMessages) -> Iterator[tuple[Delivery, ReceiptHandle, Message]]:
        topic = self.directory.find_topic(call.topic)
        is_transaction = topic is not None and topic.message_type is MessageType.TRANSACTION
        queue, popped = one.queue, one.popped
        for offset, attempt, message in zip(popped.offsets, popped.attempts, open_batch(popped.batch), strict=True):
            handle = one.handle if one.handle.count == 1 else one.handle.of_one(offset)
            place = Delivery(
                call.topic,
                queue.enode,
                queue.queue_id,
                offset,
                popped.stored_at_ms,
                message_id_text(handle.topic_id, queue.enode, queue.queue_id, offset),
                attempt,
                handle.text(self.directory.seals),
                call.invisible_ms,
                is_transaction,
                lite_topic_of(queue.topic),
            )
            yield place, handle, message
