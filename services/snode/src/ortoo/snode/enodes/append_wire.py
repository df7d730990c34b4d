"""Conversion of appended and fetched batches between plain values and protobuf messages."""

from ortoo.common.errors.status import error_of
from ortoo.common.filters.selection import ROW_BYTES, Selected
from ortoo.common.grpc.bulk_calls import batch_of, envelope_to
from ortoo.common.grpc.bulk_field import Bulky
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.common.records.stored_batch import StoredBatch
from ortoo.snode.enodes.link import Appended, Fetched, FlushMode
from ortoo.v1 import enode_pb2


def append_to(topic_id: int, queue_id: int, batch: SealedBatch, flush_mode: FlushMode) -> Bulky:
    """An append request, with the bytes of the batch separate."""
    request = enode_pb2.AppendRequest(
        topic_id=topic_id,
        queue_id=queue_id,
        batch=envelope_to(batch),
        flush_mode=flush_mode.value,  # type: ignore[arg-type]
    )
    return Bulky(request, (batch.records,))


def appended_of(answer: enode_pb2.AppendResponse) -> Appended:
    """The location of the stored batch. Errors: those of the enode."""
    if answer.HasField("failure"):
        raise error_of(answer.failure)
    return Appended(answer.first_offset, answer.stored_at_ms, FlushMode(answer.flush_mode))


def fetched_of(bulky: Bulky) -> Fetched:
    """The batches or parts of an answer. Errors: those of the enode."""
    answer, bulks = bulky
    if answer.HasField("failure"):
        raise error_of(answer.failure)
    found = zip(answer.batches, bulks, strict=True)
    if answer.pushed_down:
        parts = tuple(_part_of(one, records) for one, records in found)
        return Fetched((), answer.next_offset, answer.end_offset, parts)
    batches = tuple(StoredBatch(b.first_offset, b.stored_at_ms, batch_of(b.batch, records)) for b, records in found)
    return Fetched(batches, answer.next_offset, answer.end_offset)


def _part_of(one: enode_pb2.StoredBatch, records: bytes) -> Selected:
    count = len(one.rows) // ROW_BYTES or one.batch.count
    batch = batch_of(one.batch, records)
    return Selected(
        one.first_offset, one.next_offset, one.stored_at_ms, batch, one.rows, count,
        row_stored_at_ms=one.row_stored_at_ms,
    )  # fmt: skip
