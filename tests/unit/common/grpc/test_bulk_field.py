"""Large bytes fields: the same messages as the generated classes write and read."""

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.grpc.bulk_field import BULK_BYTES_MIN, BulkField, BulkMessage, Pieces, in_pieces
from ortoo.v1 import consumer_pb2, enode_pb2, record_pb2

APPEND = BulkField(enode_pb2.AppendRequest, "batch", "records")
PUSH = BulkField(consumer_pb2.PushResponse, "delivery", "batch", "records")
FETCH = BulkField(enode_pb2.FetchBatchesResponse, "batches", "batch", "records")
SIZES = st.sampled_from([0, 1, 127, 128, BULK_BYTES_MIN - 1, BULK_BYTES_MIN, BULK_BYTES_MIN + 300, 1 << 17])


def append(records: bytes) -> enode_pb2.AppendRequest:
    batch = record_pb2.SealedBatch(records=records, records_crc32c=7, count=3, producer_id=1 << 60)
    return enode_pb2.AppendRequest(request_id=300, topic_id=1 << 63, queue_id=5, batch=batch)


def fetched(*sizes: int) -> enode_pb2.FetchBatchesResponse:
    batches = [
        enode_pb2.StoredBatch(
            first_offset=at, batch=record_pb2.SealedBatch(records=bytes([65 + at % 20]) * size, count=at + 1)
        )
        for at, size in enumerate(sizes)
    ]
    return enode_pb2.FetchBatchesResponse(request_id=1, batches=batches, next_offset=9, end_offset=10)


def hollow(message: Any, holders: list[Any]) -> BulkMessage:
    """The message with its fields taken out."""
    bulks = [holder.records for holder in holders]
    for holder in holders:
        holder.ClearField("records")
    return BulkMessage(message, bulks)


@given(SIZES)
def test_what_is_written_is_what_a_generated_class_reads(size: int) -> None:
    """Protobuf's own decoder reads the same message in every case, nested once or twice."""
    whole, parts = append(b"r" * size), append(b"r" * size)
    assert enode_pb2.AppendRequest.FromString(APPEND.write(hollow(parts, [parts.batch]))) == whole
    delivery = consumer_pb2.Delivery(first_offset=4, batch=whole.batch, rows=b"1234")
    pushed, again = (consumer_pb2.PushResponse(delivery=delivery) for _ in range(2))
    written = PUSH.write(hollow(again, [again.delivery.batch]))
    assert consumer_pb2.PushResponse.FromString(written) == pushed


def holders_of(message: Any) -> list[Any]:
    """The inner messages with the large field."""
    return [one.batch for one in message.batches] if hasattr(message, "batches") else [message.batch]


@pytest.mark.parametrize("size", [BULK_BYTES_MIN // 2 - 1, BULK_BYTES_MIN, 1 << 20])
@pytest.mark.parametrize(("field", "sizes"), [(APPEND, 1), (FETCH, 2)])
def test_pieces_of_a_large_message_are_its_bytes_without_a_copy_of_the_field(
    field: BulkField, sizes: int, size: int
) -> None:
    """For a repeated field as well; a small message is joined. A serializer of another kind is kept."""
    first, second = (append(b"r" * size) if sizes == 1 else fetched(size, size) for _ in range(2))
    hollowed = hollow(first, holders_of(first))
    pieces = in_pieces(field.write)(hollowed)
    assert bytes(pieces) == field.write(hollow(second, holders_of(second)))
    assert len(pieces) == len(bytes(pieces))
    assert isinstance(pieces, Pieces) == (size >= BULK_BYTES_MIN)
    if isinstance(pieces, Pieces):
        assert all(any(piece is bulk for piece in pieces.pieces) for bulk in hollowed.bulks)
    assert in_pieces(enode_pb2.AppendRequest.SerializeToString) == enode_pb2.AppendRequest.SerializeToString


@given(st.lists(SIZES, min_size=1, max_size=4))
def test_a_field_may_be_given_in_pieces_and_shown_instead_of_copied(sizes: list[int]) -> None:
    """A reader gets pieces as one field; a view shows the bytes of the received message."""
    pieces = [bytes([65 + at]) * size for at, size in enumerate(sizes)]
    whole, empty = append(b"".join(pieces)), append(b"")
    data = APPEND.write(BulkMessage(empty, pieces))
    assert enode_pb2.AppendRequest.FromString(data) == whole
    message, (shown,) = BulkField(enode_pb2.AppendRequest, "batch", "records", views=True).read(data)
    assert isinstance(shown, memoryview)
    assert shown == whole.batch.records
    assert message.batch.count == whole.batch.count


@given(st.lists(SIZES, max_size=4))
def test_repeated_messages_keep_their_order(sizes: list[int]) -> None:
    """Each of them has its own field, also those that have none."""
    whole, parts = fetched(*sizes), fetched(*sizes)
    written = FETCH.write(hollow(parts, [it.batch for it in parts.batches]))
    assert enode_pb2.FetchBatchesResponse.FromString(written) == whole
    for data in (written, whole.SerializeToString()):
        message, bulks = FETCH.read(data)
        assert bulks == [it.batch.records for it in whole.batches]
        assert [it.first_offset for it in message.batches] == list(range(len(sizes)))
        assert (message.next_offset, message.end_offset) == (9, 10)


@given(SIZES)
def test_what_any_encoder_writes_is_read(size: int) -> None:
    """The message comes in one piece, as usual, or in two; all other fields are present."""
    whole = append(b"r" * size)
    for data in (whole.SerializeToString(), written_in_two(size)):
        message, (records,) = APPEND.read(data)
        assert records == b"r" * size
        message.batch.records = records
        assert message == whole


def written_in_two(size: int) -> bytes:
    """The same message with the nested one in two pieces, its bulk in the first."""
    first = enode_pb2.AppendRequest(batch=record_pb2.SealedBatch(records=b"r" * size))
    parts = append(b"")
    return first.SerializeToString() + parts.SerializeToString()


def test_messages_without_the_field_pass() -> None:
    """Another event of the same stream is written and read as it is."""
    other = consumer_pb2.PushResponse(opened=consumer_pb2.SessionOpened(session_id="s" * BULK_BYTES_MIN))
    message, bulks = PUSH.read(PUSH.write(BulkMessage(other)))
    assert message == other
    assert list(bulks) == [b""]


@pytest.mark.parametrize("cut", [1, 5, 1000, BULK_BYTES_MIN])
def test_cut_bytes_are_a_decode_error(cut: int) -> None:
    """The result is that of a generated class."""
    data = append(b"r" * (2 * BULK_BYTES_MIN)).SerializeToString()
    with pytest.raises(DecodeError):
        APPEND.read(data[:-cut])


@given(st.binary(max_size=40))
def test_no_bytes_make_it_fail_otherwise(noise: bytes) -> None:
    """Garbage is a decode error or a message, before or after large fields."""
    for data in (noise + append(b"r" * BULK_BYTES_MIN).SerializeToString(), noise * (1 + BULK_BYTES_MIN)):
        try:
            APPEND.read(data)
        except DecodeError:
            continue
