"""Batches carry messages exactly, keep their limits, and name mistakes."""

import pickle
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from ortoo.common.errors import Invalid, Unsupported
from ortoo.common.records import compression
from ortoo.common.records.batch import BatchBuilder, Codec, Message, encode, open_batch, split_messages
from ortoo.common.records.columns import (
    BORN_AT,
    DELIVER_AT,
    KEYS,
    MESSAGE_GROUP,
    MESSAGE_ID,
    NO_PROPERTIES,
    PROPERTIES,
    TAG,
)
from ortoo.common.records.message import BODY_BYTES_MAX
from ortoo.common.records.writer import offsets_buffer
from ortoo.v1 import record_pb2

FULL = Message(
    b"body",
    "tag",
    ("k1", "k2"),
    message_group="group",
    properties={"a": "1", "b": "ö"},
    message_id="id",
    born_at_ms=5,
    deliver_at_ms=6,
    priority=7,
    body_encoding=1,
    born_host="host",
    trace_context="trace",
)


def test_a_full_message_comes_back() -> None:
    """Every field of a message survives."""
    assert open_batch(encode([FULL], now_ms=1), verify_crc=True).message(0) == FULL


def test_a_simple_message_comes_back_with_its_birth() -> None:
    """Absent fields stay absent; only the birth time is set."""
    message = open_batch(encode([Message(b"x")], now_ms=42)).message(0)
    assert message == Message(b"x", born_at_ms=42)
    assert (message.tag, message.keys, dict(message.properties), message.message_id) == (None, (), {}, None)


def test_absent_columns_take_no_bytes() -> None:
    """A batch of bodies has no column that no message uses."""
    batch = record_pb2.RecordBatch.FromString(encode([Message(b"x"), Message(b"y")], now_ms=1).records)
    assert {field.name for field, _ in batch.ListFields()} == {
        "format",
        "count",
        "codec",
        "body_inflated_bytes",
        "body_offsets",
        "body",
        "born_at_ms",
    }


def test_bytes_are_those_of_protobuf_itself() -> None:
    """The wire writer makes the same bytes as protobuf's own runtime."""
    for messages in ([FULL], [FULL, FULL.replace(tag=None, keys=(), properties={})], [Message(b"x", "t")] * 300):
        records = encode(messages, now_ms=1).records
        assert record_pb2.RecordBatch.FromString(records).SerializeToString(deterministic=True) == records


def test_views_answer_by_row_and_in_bulk_alike() -> None:
    """Columns, rows, chosen rows and iteration agree."""
    messages = [Message(b"b%d" % row, "t" if row % 2 else None, (f"k{row}",), born_at_ms=row) for row in range(50)]
    view = open_batch(encode(messages, now_ms=1))
    assert len(view) == 50
    assert list(view) == view.messages() == [view.message(row) for row in range(50)] == messages
    assert view.messages([3, 1]) == [messages[3], messages[1]]
    assert view.bodies() == [m.body for m in messages]
    assert view.values(TAG) == [m.tag for m in messages]
    assert view.values(KEYS) == [m.keys for m in messages]
    assert view.values(MESSAGE_GROUP) == view.values(MESSAGE_ID) == [None] * 50
    assert view.values(PROPERTIES) == [NO_PROPERTIES] * 50
    assert view.values(BORN_AT) == list(range(50))
    assert view.values(DELIVER_AT) == [None] * 50
    assert view.body(-1) == messages[-1].body
    with pytest.raises(IndexError):
        view.body(50)


def test_bulk_encoding_is_encoding() -> None:
    """Bodies give the same bytes as messages, and lists of keys the bytes of tuples."""
    bodies = [b"1", b"22", b"333"]
    assert encode(bodies, now_ms=1) == encode([Message(body) for body in bodies], now_ms=1)
    assert encode([Message(body, "t", ["k"]) for body in bodies], now_ms=1) == encode(
        [Message(body, "t", ("k",)) for body in bodies], now_ms=1
    )
    assert encode([b"1", Message(b"22", "t"), b"333"], now_ms=1) == encode(
        [Message(b"1"), Message(b"22", "t"), Message(b"333")], now_ms=1
    )


@pytest.mark.parametrize("codec", [Codec.ZSTD, Codec.LZ4])
def test_compressed_bodies_come_back(codec: Codec) -> None:
    """A codec changes only the size; bodies that do not shrink stay uncompressed."""
    bodies = [b"compressible " * 40] * 100
    sealed = encode(bodies, now_ms=1, codec=codec)
    assert len(sealed.records) < 10_000
    assert sealed.body_inflated_bytes == 52_000
    assert open_batch(sealed).bodies() == bodies
    assert open_batch(sealed).message(7).body == bodies[7]
    assert open_batch(encode([b"x"], now_ms=1, codec=codec)).codec is Codec.NONE


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the optional library, the error names the extra to install."""
    monkeypatch.setitem(compression._LIBRARIES, Codec.ZSTD, ("no_such_library_here", "zstd"))
    with pytest.raises(Unsupported, match=r"ortoo\[zstd\]"):
        encode([b"x"], now_ms=1, codec=Codec.ZSTD)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"body": b""}, "body"),
        ({"body": "text"}, "body"),
        ({"body": bytearray(b"x")}, "body"),
        ({"body": bytes(BODY_BYTES_MAX + 1)}, "body"),
        ({"tag": " "}, "tag"),
        ({"tag": "a|b"}, "tag"),
        ({"tag": "a\n"}, "tag"),
        ({"tag": "a\u0080"}, "tag"),
        ({"tag": 5}, "tag"),
        ({"tag": "\ud800"}, "tag"),
        ({"keys": "text"}, "keys"),
        ({"keys": ("ok", "")}, "keys[1]"),
        ({"keys": (5,)}, "keys[0]"),
        ({"keys": ("k" * 16_385,)}, "keys[0]"),
        ({"keys": tuple("k" * 100 for _ in range(164))}, "keys"),
        ({"message_group": ""}, "message_group"),
        ({"message_group": "ö" * 32}, "message_group"),
        ({"properties": {"a": "\x00"}}, "properties['a']"),
        ({"properties": {"": "v"}}, "properties['']"),
        ({"properties": {"a": 5}}, "properties['a']"),
        ({"properties": [("a", "b")]}, "properties"),
        ({"properties": {str(number): "" for number in range(129)}}, "properties"),
        ({"properties": {"a": "v" * 9_000, "b": "v" * 9_000}}, "properties"),
        ({"message_id": " "}, "message_id"),
        ({"born_at_ms": -1}, "born_at_ms"),
        ({"deliver_at_ms": 1 << 63}, "deliver_at_ms"),
        ({"priority": -1}, "priority"),
        ({"priority": "high"}, "priority"),
        ({"body_encoding": 2}, "body_encoding"),
        ({"trace_context": "t" * 1_025}, "trace_context"),
    ],
)
def test_a_message_that_breaks_a_limit_is_named(fields: dict[str, Any], field: str) -> None:
    """The error names the message of the batch and its field."""
    wrong = Message(**{"body": b"x", **fields})
    with pytest.raises(Invalid) as alone:
        wrong.check()
    assert alone.value.field == f"message.{field}"
    with pytest.raises(Invalid) as batched:
        encode([Message(b"ok"), wrong], now_ms=1)
    assert batched.value.field == f"messages[1].{field}"


def test_a_batch_is_delayed_as_a_whole_or_not_at_all() -> None:
    """Messages with and without a deliver-at need two batches; the same holds for priorities."""
    for some in (Message(b"x", deliver_at_ms=5), Message(b"x", priority=0)):
        with pytest.raises(Invalid, match="separate batches"):
            encode([some, Message(b"y")], now_ms=1)


def test_what_is_too_much_for_one_batch_is_refused() -> None:
    """No messages, too many, too many bytes, and too many inflated bytes."""
    for bodies in ([], [b"x"] * 4_097, [b"x" * 600_000] * 2, [b"x" * 1_000_000] * 5):
        with pytest.raises(Invalid):
            encode(bodies, now_ms=1)


def test_offsets_of_a_batch_are_remembered_but_not_of_any_number_of_keys() -> None:
    """So refused messages take no memory."""
    assert offsets_buffer([3] * 4_096) is offsets_buffer([3] * 4_096)
    assert offsets_buffer([1] * 20_000) == offsets_buffer([1] * 20_000)
    assert offsets_buffer([1] * 20_000) is not offsets_buffer([1] * 20_000)


def test_the_largest_message_travels_alone() -> None:
    """One body of 4 MiB fits into a batch of its own, and its envelope is valid."""
    sealed = encode([Message(bytes(range(256)) * (BODY_BYTES_MAX // 256), properties={"p": "v" * 16_000})], now_ms=1)
    sealed.check()
    assert len(open_batch(sealed).body(0)) == BODY_BYTES_MAX


def test_cutting_keeps_every_message_in_order() -> None:
    """Each run fits into one batch, and together they are all messages."""
    messages = [Message(b"x" * (row * 37 % 3_000 + 1), "ö" * (row % 9), (f"k{row}",)) for row in range(6_000)]
    runs = list(split_messages(messages))
    assert [message for run in runs for message in run] == messages
    for run in runs:
        encode(run, now_ms=1).check()


def test_a_builder_fills_and_starts_again() -> None:
    """A builder refuses what would not fit, and never mixes delayed with other messages."""
    builder = BatchBuilder(bytes_max=5_000, messages_max=3)
    assert builder.add(Message(b"x" * 3_000)) == 0
    assert builder.add(Message(b"x" * 3_000)) is None
    assert builder.add(b"x" * 3_000) is None
    assert builder.add(Message(b"x", deliver_at_ms=1)) is None
    assert builder.add(Message(b"x")) == 1
    assert builder.add(b"x") == 2
    assert builder.add(Message(b"x")) is None
    assert builder.add(b"x") is None
    assert encode(*builder.take(), now_ms=1).count == 3
    assert len(builder) == 0
    assert builder.add(Message(b"x", priority=1)) == 0
    assert builder.add(b"x") is None
    builder.take()
    assert builder.add(b"x" * 100_000) == 0
    with pytest.raises(Invalid):
        encode(*BatchBuilder().take(), now_ms=1)


def test_a_builder_knows_the_sizes_of_bare_bodies_only() -> None:
    """A batch of bare bodies is not measured twice. Other messages between the bodies make the sizes unusable."""
    for between in ((), (b"x",), (Message(b"x"),)):
        builder = BatchBuilder()
        builder.extend([b"a", b"bc"])
        for message in between:
            builder.add(message)
        builder.extend([b"def"])
        messages, sizes = builder.take()
        assert messages == [b"a", b"bc", *between, b"def"]
        assert sizes == ([] if between else [1, 2, 3])
        assert encode(messages, sizes, now_ms=1) == encode(messages, now_ms=1)
    builder = BatchBuilder()
    builder.extend([Message(b"a")])
    assert builder.take() == ([Message(b"a")], [])


@pytest.mark.parametrize("place", [0, 1_500])
@pytest.mark.parametrize("in_bulk", [True, False])
@pytest.mark.parametrize("plain", [b"x" * 228, Message(b"x" * 228)])
def test_a_builder_counts_empty_rows(plain: Message | bytes, in_bulk: bool, place: int) -> None:
    """One message with all fields adds a row in each column to the plain messages of its batch, on both sides."""
    builder = BatchBuilder()
    builder.extend([plain] * place)  # type: ignore[arg-type]
    assert builder.add(FULL.replace(deliver_at_ms=None, priority=None, expire_at_ms=9)) == place
    while builder.extend([plain] * 500) if in_bulk else builder.add(plain) is not None:  # type: ignore[arg-type]
        pass
    size_bytes = builder.size_bytes
    sealed = encode(*builder.take(), now_ms=1)
    assert len(sealed.records) <= size_bytes <= 1 << 20
    builder.extend([plain] * 5_000)  # type: ignore[arg-type]
    assert len(builder) > sealed.count, "the next batch has no such rows"


def test_what_is_newer_is_unsupported_not_damaged() -> None:
    """Newer formats, features and codecs are refused as Unsupported; unknown columns are skipped."""
    batch = record_pb2.RecordBatch.FromString(encode([FULL], now_ms=1).records)
    for name, value in (("format", 2), ("required_features", 1 << 40), ("codec", 77)):
        newer = record_pb2.RecordBatch()
        newer.CopyFrom(batch)
        setattr(newer, name, value)
        with pytest.raises(Unsupported):
            open_batch(replace(encode([FULL], now_ms=1), records=newer.SerializeToString()))
    sealed = encode([FULL], now_ms=1)
    assert list(open_batch(replace(sealed, records=sealed.records + b"\xf5\x3fabcd"))) == [FULL]


def test_messages_do_not_change() -> None:
    """A message is immutable, comparable, printable, and survives pickling."""
    with pytest.raises(FrozenInstanceError):
        FULL.body = b"other"
    with pytest.raises(FrozenInstanceError):
        del FULL.tag
    copied = pickle.loads(pickle.dumps([FULL, Message(b"x", "t")]))
    assert copied == [FULL, Message(b"x", "t")]
    assert hash(copied[0]) == hash(FULL)
    assert FULL.replace(priority=8) != FULL
    assert repr(Message(b"x", "t", ("k",))) == "Message(b'x', tag='t', keys=('k',))"
    assert FULL.replace(body=b"new").body == b"new"
