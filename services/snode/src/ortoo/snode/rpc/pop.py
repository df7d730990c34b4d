"""The calls of ConsumerService for pops: Pop, Ack, Nack and ChangeInvisible."""

from collections.abc import Sequence
from dataclasses import dataclass

from ortoo.common.errors import Invalid, OrtooError
from ortoo.common.errors.status import failure_of
from ortoo.common.filters.message_filter import compile_filter
from ortoo.common.groups.handle_seal import HandleSeals
from ortoo.common.groups.pop import SETTLED_OFFSETS_MAX, Finish, LeaseVerdict, PopRules, Redeliver, Renew
from ortoo.common.groups.retry_policy import DELAY_MS_MAX
from ortoo.common.grpc.enum_values import check_known
from ortoo.common.grpc.errors import Context
from ortoo.common.grpc.messages import read, write
from ortoo.common.records.view import open_batch
from ortoo.snode.clients import ClientComponents
from ortoo.snode.cluster import ClusterView
from ortoo.snode.cluster.group_names import check_consumer_group
from ortoo.snode.cluster.wire import encode_batch, encode_queue
from ortoo.snode.membership.group_members import Subscription
from ortoo.snode.pop import PopComponents
from ortoo.snode.pop.call import PopCall, PoppedMessages
from ortoo.snode.pop.receipt_handle import ReceiptHandle, read_receipt
from ortoo.snode.pop.source_pops import MESSAGES_MAX
from ortoo.snode.rpc.streams import LongCalls
from ortoo.v1 import pop_pb2 as pb
from ortoo.v1 import record_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceServicer

MESSAGES_DEFAULT = 32
INVISIBLE_MS_DEFAULT = 30_000
INVISIBLE_MS_MIN, INVISIBLE_MS_MAX = 10, 43_200_000
WAIT_MS_MAX = 60_000
RECEIPTS_MAX = 1_024
TEXT_LENGTH_MAX = 1_024


@dataclass(kw_only=True, eq=False)
class PopConsumerHandlers(ConsumerServiceServicer):
    """The calls of ConsumerService for pops."""

    cluster: ClusterView
    pop: PopComponents
    clients: ClientComponents
    long_calls: LongCalls

    async def Pop(self, request: pb.PopRequest, context: Context) -> pb.PopResponse:
        """Lease messages to a consumer, and wait for the first one; or cancel earlier pops of an attempt."""
        call = _decode_pop(request)
        if request.cancel:
            if not call.attempt_id:
                raise Invalid("is missing; give the attempt id of the pops to cancel", field="attempt_id")
            await self.pop.processor.cancel(call)
            return pb.PopResponse()
        await self.cluster.watch.topic(call.topic)  # a consumer of an unknown topic is not listed
        subscription = Subscription(call.topic, request.tag_expression, request.sql_expression)
        pop_consumers = self.clients.pop_consumers
        with (
            self.long_calls.track(),
            pop_consumers.popping(call.group, call.consumer, context.peer(), subscription) as listed,
        ):
            result = await self.pop.processor.pop(call)
            if result.batches:
                pop_consumers.on_leased(listed, call.invisible_ms)
        seals = self.cluster.directory.seals
        batches = [_encode_popped(one, seals, readable=request.readable) for one in result.batches]
        return pb.PopResponse(batches=batches, blocked_reason=result.blocked_reason)

    async def Ack(self, request: pb.AckRequest, context: Context) -> pb.AckResponse:
        """Ack popped messages."""
        stale, refused = await self._settle(request.receipts, Finish())
        return pb.AckResponse(stale=stale, refused=refused)

    async def Nack(self, request: pb.NackRequest, context: Context) -> pb.NackResponse:
        """Nack popped messages; they are delivered again, or parked after the last attempt."""
        _check("delay_ms", request.delay_ms, 0, DELAY_MS_MAX)
        _check_text("error", request.error)
        _check_text("client_id", request.client_id)
        delays_ms = (request.delay_ms,) if request.HasField("delay_ms") else ()
        verdict = Redeliver(
            delays_ms,
            not request.uncounted,
            request.client_id,
            request.error,
            request.park,
            _decode_rules(request.options),
        )
        stale, refused = await self._settle(request.receipts, verdict)
        return pb.NackResponse(stale=stale, refused=refused)

    async def ChangeInvisible(self, request: pb.ChangeInvisibleRequest, context: Context) -> pb.ChangeInvisibleResponse:
        """Change the time until which popped messages stay invisible."""
        invisible_ms = request.invisible_ms or INVISIBLE_MS_DEFAULT
        _check("invisible_ms", invisible_ms, INVISIBLE_MS_MIN, INVISIBLE_MS_MAX)
        stale, refused = await self._settle(request.receipts, Renew(invisible_ms))
        return pb.ChangeInvisibleResponse(stale=stale, refused=refused)

    async def _settle(
        self, lease_receipts: Sequence[pb.LeaseReceipt], verdict: LeaseVerdict
    ) -> tuple[list[pb.StaleMessage], list[pb.RefusedReceipt]]:
        """Settle receipts; returns the messages that are no longer in their lease, and the receipts that are invalid.

        Receipts are independent, because several workers of a client share a request. Errors: Invalid, Unsupported if
        no receipt can be read.
        """
        if not 1 <= len(lease_receipts) <= RECEIPTS_MAX:
            raise Invalid(f"{len(lease_receipts)} receipts; give 1 to {RECEIPTS_MAX}", field="receipts")
        if sum(len(one.offsets) for one in lease_receipts) > SETTLED_OFFSETS_MAX:
            raise Invalid(f"give at most {SETTLED_OFFSETS_MAX} offsets in one request", field="receipts.offsets")
        seals = self.cluster.directory.seals
        texts, receipts, errors = list[str](), list[tuple[ReceiptHandle, list[int]]](), list[tuple[str, OrtooError]]()
        for one in lease_receipts:
            try:
                handle = read_receipt(one.receipt_handle, seals, "receipts.receipt_handle")
            except OrtooError as error:
                errors.append((one.receipt_handle, error.with_traceback(None)))  # it would keep this frame
            else:
                texts.append(one.receipt_handle)
                receipts.append((handle, list(one.offsets)))
        if not receipts:
            raise errors.pop(0)[1]
        refused = [pb.RefusedReceipt(receipt_handle=text, failure=failure_of(error)) for text, error in errors]
        if isinstance(verdict, Redeliver) and verdict.park:
            await self.pop.processor.ensure_dead_letter_topics(handle for handle, _ in receipts)
        found = await self.pop.processor.settle(receipts, verdict)
        stale = [
            pb.StaleMessage(receipt_handle=text, offset=offset)
            for text, offsets in zip(texts, found, strict=True)
            for offset in sorted(offsets)
        ]
        return stale, refused


def _decode_pop(request: pb.PopRequest) -> PopCall:
    check_consumer_group(request.group)
    messages_max = request.messages_max or MESSAGES_DEFAULT
    invisible_ms = request.invisible_ms or INVISIBLE_MS_DEFAULT
    _check("messages_max", messages_max, 1, MESSAGES_MAX)
    _check("invisible_ms", invisible_ms, INVISIBLE_MS_MIN, INVISIBLE_MS_MAX)
    _check("wait_ms", request.wait_ms, 0, WAIT_MS_MAX)
    _check_text("client_id", request.client_id)
    _check_text("attempt_id", request.attempt_id)
    return read(
        PopCall,
        request,
        messages_max=messages_max,
        invisible_ms=invisible_ms,
        consumer=request.client_id,
        message_filter=compile_filter(request.tag_expression, request.sql_expression),
        rules=_decode_rules(request.options),
    )


def _decode_rules(options: pb.PopOptions) -> PopRules:
    check_known(options, "start_from", prefix="options")
    return read(PopRules, options, from_last=options.start_from == pb.POP_START_LAST)


def _encode_popped(one: PoppedMessages, seals: HandleSeals, *, readable: bool) -> pb.PoppedMessages:
    return write(
        pb.PoppedMessages,
        one.popped,
        queue=encode_queue(one.queue),
        receipt_handle=one.handle.encoded(seals),
        attempts=() if set(one.popped.attempts) == {1} else one.popped.attempts,
        topic_id=one.handle.topic_id,
        # A body that is sent twice could exceed the size of an answer.
        batch=None if readable else encode_batch(one.popped.batch),
        messages=[write(record_pb2.Message, row) for row in open_batch(one.popped.batch)] if readable else (),
    )


def _check(field: str, number: int, least: int, most: int) -> None:
    if not least <= number <= most:
        raise Invalid(f"{number}; expected {least} to {most}", field=field)


def _check_text(field: str, text: str) -> None:
    if len(text) > TEXT_LENGTH_MAX:
        raise Invalid(f"{len(text)} characters; give at most {TEXT_LENGTH_MAX}", field=field)
