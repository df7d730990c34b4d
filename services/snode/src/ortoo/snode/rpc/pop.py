"""Pop, Ack, Nack and ChangeInvisible."""

from collections.abc import Sequence

from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import Invalid
from ortoo.common.groups.pop import Finish, GiveBack, PopRules, Renew, Verdict
from ortoo.common.groups.retry_policy import DELAY_MS_MAX
from ortoo.common.records.view import open_batch
from ortoo.snode.cluster.wire import batch_to, message_to, queue_to
from ortoo.snode.filters.selection import compile_filter
from ortoo.snode.pop.popping import MESSAGES_MAX, PopCall, PoppedMessages, Popping
from ortoo.snode.pop.receipt_handle import ReceiptHandle, decode_handle
from ortoo.v1 import pop_pb2 as pb

MESSAGES_DEFAULT = 32
INVISIBLE_MS_DEFAULT = 30_000
INVISIBLE_MS_MIN, INVISIBLE_MS_MAX = 10, 43_200_000
WAIT_MS_MAX = 60_000
RECEIPTS_MAX = 1_024
OFFSETS_MAX = 16_384
TEXT_LENGTH_MAX = 1_024

Receipts = Sequence[tuple[ReceiptHandle, Sequence[int]]]


async def pop(popping: Popping, request: pb.PopRequest) -> pb.PopResponse:
    """Lease messages, or wait for some."""
    call = _call(request)
    answer = await popping.pop(call)
    return pb.PopResponse(
        batches=[_batch(one, readable=request.readable) for one in answer.batches], blocked=answer.blocked
    )


async def ack(popping: Popping, request: pb.AckRequest) -> pb.AckResponse:
    """Messages are processed."""
    return pb.AckResponse(stale=await _settled(popping, request.receipts, Finish()))


async def nack(popping: Popping, request: pb.NackRequest) -> pb.NackResponse:
    """Messages shall come again, or be parked."""
    _check("delay_ms", request.delay_ms, 0, DELAY_MS_MAX)
    _check_text("error", request.error)
    _check_text("client_id", request.client_id)
    delays_ms = (request.delay_ms,) if request.HasField("delay_ms") else ()
    how = GiveBack(
        delays_ms, not request.uncounted, request.client_id, request.error, request.park, _rules(request.options)
    )
    if request.park:
        await popping.ensure_dead_letters(handle for handle, _ in _receipts(request.receipts))
    return pb.NackResponse(stale=await _settled(popping, request.receipts, how))


async def change_invisible(popping: Popping, request: pb.ChangeInvisibleRequest) -> pb.ChangeInvisibleResponse:
    """Messages stay for longer."""
    invisible_ms = request.invisible_ms or INVISIBLE_MS_DEFAULT
    _check("invisible_ms", invisible_ms, INVISIBLE_MS_MIN, INVISIBLE_MS_MAX)
    return pb.ChangeInvisibleResponse(stale=await _settled(popping, request.receipts, Renew(invisible_ms)))


def _call(request: pb.PopRequest) -> PopCall:
    check_group_name(request.group)
    messages_max = request.messages_max or MESSAGES_DEFAULT
    invisible_ms = request.invisible_ms or INVISIBLE_MS_DEFAULT
    _check("messages_max", messages_max, 1, MESSAGES_MAX)
    _check("invisible_ms", invisible_ms, INVISIBLE_MS_MIN, INVISIBLE_MS_MAX)
    _check("wait_ms", request.wait_ms, 0, WAIT_MS_MAX)
    _check_text("client_id", request.client_id)
    _check_text("attempt_id", request.attempt_id)
    return PopCall(
        request.group,
        request.topic,
        messages_max,
        invisible_ms,
        request.wait_ms,
        request.client_id,
        request.attempt_id,
        compile_filter(request.tag_expression, request.sql_expression),
        _rules(request.options),
    )


def _rules(options: pb.PopOptions) -> PopRules:
    return PopRules(
        options.attempts_max,
        options.in_order,
        options.in_flight_max,
        options.by_priority,
        options.start_from == pb.POP_START_LAST,
    )


async def _settled(popping: Popping, sent: Sequence[pb.LeaseReceipt], verdict: Verdict) -> list[pb.StaleMessage]:
    stale = await popping.settle(_receipts(sent), verdict)
    return [
        pb.StaleMessage(receipt_handle=receipt.receipt_handle, offset=offset)
        for receipt, offsets in zip(sent, stale, strict=True)
        for offset in sorted(offsets)
    ]


def _receipts(sent: Sequence[pb.LeaseReceipt]) -> Receipts:
    if not 1 <= len(sent) <= RECEIPTS_MAX:
        raise Invalid(f"{len(sent)} receipts; give 1 to {RECEIPTS_MAX}", field="receipts")
    if sum(len(one.offsets) for one in sent) > OFFSETS_MAX:
        raise Invalid(f"more than {OFFSETS_MAX} offsets", field="receipts.offsets")
    return [(decode_handle(one.receipt_handle, "receipts.receipt_handle"), list(one.offsets)) for one in sent]


def _batch(one: PoppedMessages, *, readable: bool) -> pb.PoppedMessages:
    popped = one.popped
    return pb.PoppedMessages(
        queue=queue_to(one.queue),
        receipt_handle=one.handle.encoded(),
        offsets=popped.offsets,
        attempts=() if set(popped.attempts) == {1} else popped.attempts,
        stored_at_ms=popped.stored_at_ms,
        batch=batch_to(popped.batch),
        topic_id=one.topic_id,
        messages=map(message_to, open_batch(popped.batch)) if readable else (),
    )


def _check(field: str, number: int, least: int, most: int) -> None:
    if not least <= number <= most:
        raise Invalid(f"{number}; expected {least} to {most}", field=field)


def _check_text(field: str, text: str) -> None:
    if len(text) > TEXT_LENGTH_MAX:
        raise Invalid(f"{len(text)} characters; give at most {TEXT_LENGTH_MAX}", field=field)
