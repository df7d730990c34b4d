"""Any messages survive a batch, any bytes are a batch or a named error, and client and server agree on it."""

from contextlib import suppress

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.arrays.batch_check import check
from ortoo.common.arrays.gather import gather
from ortoo.common.arrays.message_table import concat_tables, take_rows
from ortoo.common.errors import Invalid, Unsupported
from ortoo.common.filters.projection import columns_of
from ortoo.common.records.batch import BatchBuilder, SealedBatch, encode, open_batch
from ortoo.common.records.columns import NUMBERS
from ortoo.common.records.compression import Codec
from ortoo.common.records.message import Message
from ortoo.common.records.sealed_batch import crc32c
from ortoo.common.records.text_rules import is_system_property
from ortoo.common.records.wire import read_fields
from ortoo.common.records.writer import offsets_buffer
from ortoo.v1 import record_pb2

TEXT = st.text(st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="|"), max_size=12)
NAME = TEXT.filter(lambda text: bool(text.strip(" ")))
PROPERTY = NAME.filter(lambda name: not is_system_property(name))
TAG = TEXT.filter(lambda text: not text or bool(text.strip(" ")))
TIME = st.integers(0, (1 << 63) - 1)


@st.composite
def messages(draw: st.DrawFn, delayed: bool | None = None, ranked: bool | None = None) -> list[Message]:
    """Messages that one batch may hold."""
    delayed = draw(st.booleans()) if delayed is None else delayed
    ranked = draw(st.booleans()) if ranked is None else ranked
    return [
        Message(
            draw(st.binary(min_size=1, max_size=40)),
            draw(st.none() | TAG),
            tuple(draw(st.lists(NAME, max_size=3))),
            message_group=draw(st.none() | NAME),
            properties=draw(st.dictionaries(PROPERTY, TEXT, max_size=3)),
            message_id=draw(st.none() | NAME),
            born_at_ms=draw(TIME),
            deliver_at_ms=draw(TIME) if delayed else None,
            priority=draw(st.integers(0, 9)) if ranked else None,
            body_encoding=draw(st.integers(0, 1)),
            born_host=draw(st.none() | TEXT),
            trace_context=draw(st.none() | TEXT),
        )
        for _ in range(draw(st.integers(1, 12)))
    ]


@given(messages(), st.sampled_from(list(Codec)))
def test_messages_survive(sent: list[Message], codec: Codec) -> None:
    """Encoding and opening gives the same messages; the snode's check accepts them and protobuf reads them."""
    sealed = encode(sent, now_ms=1, codec=codec)
    assert list(open_batch(sealed, verify_crc=True)) == sent
    assert [open_batch(sealed).message(row) for row in range(len(sent))] == sent
    assert bytes(check(sealed).body) == b"".join(message.body for message in sent)
    parsed = record_pb2.RecordBatch.FromString(sealed.records)
    assert parsed.SerializeToString(deterministic=True) == sealed.records


@given(messages(), st.data())
def test_gathering_is_encoding_the_rows_alone(sent: list[Message], data: st.DataObject) -> None:
    """A gathered batch has exactly the bytes that its producer would have made; also with some columns only."""
    rows = sorted(data.draw(st.sets(st.integers(0, len(sent) - 1), min_size=1)))
    opened = check(encode(sent, now_ms=1))
    alone = gather(opened, np.array(rows, "<i4"))
    assert alone == encode([sent[row] for row in rows], now_ms=1)
    names = {"body"} | data.draw(st.sets(st.sampled_from(sorted(NUMBERS))))
    columns = columns_of(sorted(names))
    some = gather(opened, np.array(rows, "<i4"), columns)
    some.check()
    assert (some.count, some.delayed) == (alone.count, alone.delayed)
    fields, all_fields = (read_fields(memoryview(batch.records), "batch") for batch in (some, alone))
    assert fields == {number: field for number, field in all_fields.items() if number in columns}


@given(st.booleans(), st.booleans(), st.data())
def test_tables_of_several_batches_are_what_one_producer_would_have_sent(
    delayed: bool, ranked: bool, data: st.DataObject
) -> None:
    """In any combination and order, they make the same bytes as a batch of those messages."""
    batches = data.draw(st.lists(messages(delayed, ranked), min_size=1, max_size=4))
    tables = [take_rows(check(encode(sent, now_ms=1)), np.arange(len(sent), dtype="<i4")) for sent in batches]
    order = data.draw(st.permutations(range(sum(map(len, batches)))))
    together = [message for sent in batches for message in sent]
    assert gather(concat_tables(tables), np.array(order, "<i4")) == encode([together[at] for at in order], now_ms=1)


@given(st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=60), st.integers(1_000, 3_000))
def test_a_builder_takes_as_many_bodies_as_fit(sent: list[bytes], bytes_max: int) -> None:
    """Bodies taken in bulk make full batches, in order; only a batch of one body may be larger than the limit."""
    builder, batches, left = BatchBuilder(bytes_max=bytes_max, messages_max=20), list[list[Message | bytes]](), sent
    while left:
        while count := builder.extend(left[:8]):
            left = left[count:]
        size_bytes = builder.size_bytes
        batch, sizes = builder.take()
        batches.append(batch)
        assert encode(batch, sizes, now_ms=1) == encode(batch, now_ms=1)
        assert len(batch) == 1 or (batch and size_bytes <= bytes_max)
        assert not left or len(batch) == 20 or size_bytes + len(left[0]) + 40 > bytes_max
    assert [body for batch in batches for body in batch] == sent


@given(st.integers(0, 99), st.integers(0, 300), st.lists(st.integers(0, 2), max_size=2))
def test_offsets_of_rows_of_one_size_and_of_others(rows: int, size: int, others: list[int]) -> None:
    """Row i begins where the rows before it end. Rows of one size take a shorter path to the same bytes."""
    sizes = [size] * rows + others + [size] * rows
    assert np.frombuffer(offsets_buffer(sizes), "<i4").tolist() == [sum(sizes[:row]) for row in range(len(sizes) + 1)]


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(records: bytes) -> None:
    """Garbage is Invalid or Unsupported, for the client's reader and for the snode's."""
    sealed = SealedBatch(records, crc32c(records), 1, 1)
    with suppress(Invalid, Unsupported):
        open_batch(sealed).messages()
    with suppress(Invalid, Unsupported):
        check(sealed)


@given(messages(), st.sampled_from(list(Codec)), st.data())
def test_damage_is_named_and_what_the_snode_passes_the_client_reads(
    sent: list[Message], codec: Codec, data: st.DataObject
) -> None:
    """After any damage both readers answer or refuse by name, and clients can read any batch that the snode accepts."""
    records = bytearray(encode(sent, now_ms=1, codec=codec).records)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(records) - 1))
        records[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    damaged = bytes(records)
    sealed = SealedBatch(damaged, 0, len(sent), sum(len(message.body) for message in sent))
    passed = readable = False
    with suppress(Invalid, Unsupported):
        check(sealed, verify_crc=False)
        passed = True
    with suppress(Invalid, Unsupported):
        open_batch(sealed).messages()
        readable = True
    assert readable or not passed
