"""Conversion of appended and fetched batches between plain values and protobuf messages."""

from ortoo.common.errors.status import error_of
from ortoo.common.filters.selection import ROW_BYTES, SelectedRows
from ortoo.common.grpc.bulk_calls import batch_of, envelope_of
from ortoo.common.grpc.bulk_field import BulkMessage
from ortoo.common.grpc.enum_values import known_or
from ortoo.common.records.sealed_batch import SealedBatch, StoredBatch
from ortoo.snode.enodes.link import AppendedBatch, FetchedBatches, FlushMode
from ortoo.v1 import enode_pb2


def encode_append(topic_id: int, queue_id: int, batch: SealedBatch, flush_mode: FlushMode) -> BulkMessage:
    """Encode an append request; the bytes of the batch stay outside the protobuf message."""
    request = enode_pb2.AppendRequest(
        topic_id=topic_id,
        queue_id=queue_id,
        batch=envelope_of(batch),
        flush_mode=flush_mode.value,  # type: ignore[arg-type]
    )
    return BulkMessage(request, (batch.records,))


def decode_append_response(response: enode_pb2.AppendResponse) -> AppendedBatch:
    """Decode the location of the stored batch. Errors: those of the enode.

    A flush mode that this process does not know becomes ASYNC, which promises the least.
    """
    if response.HasField("failure"):
        raise error_of(response.failure)
    flush_mode = known_or(FlushMode, response.flush_mode, FlushMode.ASYNC)
    return AppendedBatch(response.first_offset, response.stored_at_ms, flush_mode)


def decode_fetch_response(bulky: BulkMessage) -> FetchedBatches:
    """Decode the batches, or the parts of batches, in an answer. Errors: those of the enode."""
    response, bulks = bulky
    if response.HasField("failure"):
        raise error_of(response.failure)
    found = zip(response.batches, bulks, strict=True)
    if response.pushed_down:
        parts = tuple(_decode_part(one, records) for one, records in found)
        return FetchedBatches((), response.next_offset, response.end_offset, parts)
    batches = tuple(StoredBatch(b.first_offset, b.stored_at_ms, batch_of(b.batch, records)) for b, records in found)
    return FetchedBatches(batches, response.next_offset, response.end_offset)


def _decode_part(one: enode_pb2.StoredBatch, records: bytes) -> SelectedRows:
    count = len(one.rows) // ROW_BYTES or one.batch.count
    batch = batch_of(one.batch, records)
    return SelectedRows(
        one.first_offset, one.next_offset, one.stored_at_ms, batch, one.rows, count,
        row_stored_at_ms=one.row_stored_at_ms,
    )  # fmt: skip
