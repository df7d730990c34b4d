"""The delivery states of messages on the wire."""

from collections.abc import Iterable

from ortoo.common.records.text_rules import whole_number
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.cluster.wire import encode_queue
from ortoo.snode.enodes.queue_deliveries import DeliveryRange
from ortoo.snode.pull.queue_reader import PlacedMessage
from ortoo.v1 import delivery_pb2 as pb
from ortoo.v1 import enode_pop_pb2

LEASED, RETURNED = enode_pop_pb2.DELIVERY_PHASE_LEASED, enode_pop_pb2.DELIVERY_PHASE_RETURNED
_LEASED, _DELAYED = pb.DELIVERY_STATE_LEASED, pb.DELIVERY_STATE_DELAYED


def encode_delivery(
    queue: Queue, one: DeliveryRange | enode_pop_pb2.DeliveryRange, now_ms: int, *, uses_pop: bool
) -> pb.MessageDelivery:
    """The state of the first message of a range."""
    state = _state(one.phase, one.until_ms > now_ms, uses_pop)
    return pb.MessageDelivery(
        queue=encode_queue(queue),
        offset=one.first_offset,
        state=state,
        attempt=one.attempt,
        until_ms=one.until_ms if state in (_LEASED, _DELAYED) else 0,
        consumer=one.consumer,
        error=one.error,
    )


def mark_parked(rows: Iterable[pb.MessageDelivery], letters: Iterable[PlacedMessage]) -> None:
    """Mark the finished messages that became one of these dead letters, and add the reason. Later letters prevail."""
    done = {(row.queue.topic, row.queue.enode, str(row.queue.queue_id), str(row.offset)): row
            for row in rows if row.state == pb.DELIVERY_STATE_ACKNOWLEDGED}  # fmt: skip
    for letter in sorted(letters, key=lambda one: one.stored_at_ms):
        properties = letter.message.properties
        place = tuple(properties.get(f"DLQ_ORIGIN_{name}", "") for name in ("TOPIC", "ENODE", "QUEUE_ID", "OFFSET"))
        if (row := done.get(place)) is not None:  # type: ignore[arg-type]  # four texts
            row.state, row.attempt = pb.DELIVERY_STATE_PARKED, whole_number(properties.get("DLQ_ATTEMPTS", "")) or 0
            row.consumer, reason = properties.get("DLQ_CONSUMER", ""), properties.get("DLQ_REASON", "")
            row.error = f"{reason}: {properties['DLQ_ERROR']}" if properties.get("DLQ_ERROR") else reason


def _state(phase: int, is_later: bool, pops: bool) -> pb.DeliveryState.ValueType:
    if phase == enode_pop_pb2.DELIVERY_PHASE_DONE:
        return pb.DELIVERY_STATE_ACKNOWLEDGED
    if is_later and phase in (LEASED, RETURNED):
        return _LEASED if phase == LEASED else _DELAYED
    return pb.DELIVERY_STATE_WAITING if pops else pb.DELIVERY_STATE_OUTSTANDING
