"""No batch passes the snode's check that a reader could not read or that breaks a message's limits."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ortoo.common.arrays.batch_check import check
from ortoo.common.errors import Invalid, Unsupported
from ortoo.common.records.batch import Message, SealedBatch, encode
from ortoo.common.records.compression import Codec
from ortoo.common.records.sealed_batch import crc32c
from ortoo.common.records.text_rules import MessageLimits
from ortoo.v1 import record_pb2

MESSAGES = [
    Message(
        b"body-%d" % row,
        "ab"[row % 2],
        (f"key-{row}", "ключ"),
        message_group="g",
        properties={"name": f"value {row}", "other": ""},
        message_id=f"id-{row}" if row else None,
        born_at_ms=1_000 + row,
        deliver_at_ms=2_000 + row,
        priority=row,
        body_encoding=row % 2,
        born_host="here:1",
        trace_context="00-1-2-3",
    )
    for row in range(5)
]


def int32s(*numbers: int) -> bytes:
    """Little-endian int32 each."""
    return np.array(numbers, "<i4").tobytes()


def resealed(records: bytes, count: int, inflated: int) -> SealedBatch:
    """An envelope that agrees with these bytes."""
    return SealedBatch(records, crc32c(records), count, inflated)


def changed(**columns: Any) -> SealedBatch:
    """The batch of MESSAGES with some fields changed; dots in names are written as two underscores."""
    batch = record_pb2.RecordBatch.FromString(encode(MESSAGES, now_ms=1).records)
    for path, value in columns.items():
        *parents, name = path.split("__")
        target: Any = batch
        for parent in parents:
            target = getattr(target, parent)
        setattr(target, name, value)
    return resealed(batch.SerializeToString(), batch.count, batch.body_inflated_bytes)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_good_batch_passes_with_all_its_columns(codec: Codec) -> None:
    """The snode accepts all batches of the library."""
    messages = [message.replace(body=message.body * 100) for message in MESSAGES]
    opened = check(encode(messages, now_ms=1, codec=codec))
    assert opened.count == 5
    assert opened.codec is codec
    assert bytes(opened.body) == b"".join(message.body for message in messages)
    assert opened.born_at_ms is not None
    assert opened.born_at_ms.tolist() == [1000, 1001, 1002, 1003, 1004]


@pytest.mark.parametrize(
    ("columns", "field"),
    [
        ({"body_offsets": int32s(1, 6, 12, 18, 24, 30)}, "batch.records.body_offsets"),
        ({"body_offsets": int32s(0, 6, 12, 18, 24, 29)}, "batch.records.body_offsets"),
        ({"body_offsets": int32s(0, 12, 6, 18, 24, 30)}, "batch.records.body_offsets"),
        ({"body_offsets": int32s(0, 6, 6, 18, 24, 30)}, "batch.records.body_offsets"),
        ({"body_offsets": int32s(0, 6, 12, 18, 30)}, "batch.records.body_offsets"),
        ({"body_offsets": b""}, "batch.records.body_offsets"),
        ({"body": b"short"}, "batch.records.body"),
        ({"body_inflated_bytes": 5 << 20}, "batch.body_inflated_bytes"),
        ({"count": 4}, "batch.records.body_offsets"),
        ({"count": 0}, "batch.count"),
        ({"format": 0}, "batch.records.format"),
        ({"born_at_ms": b"1234567"}, "batch.records.born_at_ms"),
        ({"born_at_ms": np.array([0, 0, -1, 0, 0], "<i8").tobytes()}, "batch.records.born_at_ms"),
        ({"deliver_at_ms": bytes(32)}, "batch.records.deliver_at_ms"),
        ({"priority": int32s(0, 0, 0, 0, -5)}, "batch.records.priority"),
        ({"body_encoding": b"\x00\x01\x02\x00\x00"}, "batch.records.body_encoding"),
        ({"body_encoding": b"\x00"}, "batch.records.body_encoding"),
        ({"tag__codes": int32s(0, 1, 2, 0, 0)}, "batch.records.tag.codes"),
        ({"tag__codes": int32s(0, 1, -1, 0, 0)}, "batch.records.tag.codes"),
        ({"tag__codes": int32s(0, 1)}, "batch.records.tag.codes"),
        ({"tag__validity": b"\x1f\x00"}, "batch.records.tag.validity"),
        ({"tag__dictionary__data": b"a|"}, "batch.records.tag.dictionary"),
        ({"tag__dictionary__data": b"a "}, "batch.records.tag.dictionary"),
        ({"tag__dictionary__data": b"a\x7f"}, "batch.records.tag.dictionary"),
        ({"tag__dictionary__data": b"a\xff"}, "batch.records.tag.dictionary"),
        ({"tag__dictionary__data": "ö".encode()}, "batch.records.tag.dictionary"),
        ({"tag__dictionary__validity": b"\x01"}, "batch.records.tag.dictionary.validity"),
        ({"tag__dictionary__offsets": b"\x00\x00"}, "batch.records.tag.dictionary.offsets"),
        ({"keys__offsets": int32s(0, 2, 4, 6, 8, 11)}, "batch.records.keys.offsets"),
        ({"keys__offsets": int32s(0, 4, 2, 6, 8, 10)}, "batch.records.keys.offsets"),
        ({"message_group__dictionary__data": b" "}, "batch.records.message_group.dictionary"),
        ({"properties__offsets": b""}, "batch.records.properties.offsets"),
        ({"properties__names__codes": b""}, "batch.records.properties.names.codes"),
        ({"message_id__data": b""}, "batch.records.message_id.offsets"),
    ],
)
def test_a_wrong_column_is_named(columns: dict[str, Any], field: str) -> None:
    """Each malformed batch is refused with the path of the column."""
    with pytest.raises(Invalid) as caught:
        check(changed(**columns))
    assert caught.value.field == field


def test_the_envelope_must_agree_with_what_is_inside() -> None:
    """The enode relies on count and size, so the snode compares them."""
    sealed = encode(MESSAGES, now_ms=1)
    for wrong in (replace(sealed, count=4), replace(sealed, body_inflated_bytes=1), replace(sealed, records_crc32c=1)):
        with pytest.raises(Invalid):
            check(wrong)


@pytest.mark.parametrize(
    "message",
    [
        Message(b"x", keys=("k" * 16_385,)),
        Message(b"x", properties={str(number): "v" for number in range(129)}),
        Message(b"x", "t" * 6_000, ("k" * 6_000,), properties={"n": "v" * 6_000}),
        Message(b"x", message_group="g" * 64),
        Message(b"x", keys=("a\u0085b",)),
        Message(b"x", properties={"": "v"}),
        Message(b"x", message_id=""),
    ],
)
def test_limits_hold_for_producers_that_do_not_check(message: Message, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch made by other code than our library has the same limits."""
    with pytest.raises(Invalid):
        message.check()
    monkeypatch.setattr("ortoo.common.records.text_rules.TextRule.check", lambda *_: None)
    monkeypatch.setattr("ortoo.common.records.batch._explain", lambda *_: None)
    sealed = encode([Message(b"ok"), message], now_ms=1, limits=MessageLimits(properties=1_000))
    with pytest.raises(Invalid):
        check(sealed)


@pytest.mark.parametrize(
    "columns", [{"format": 2}, {"required_features": 1}, {"codec": 9}], ids=["format", "features", "codec"]
)
def test_a_newer_batch_is_unsupported(columns: dict[str, int]) -> None:
    """Unknown features are not reported as damage."""
    with pytest.raises(Unsupported):
        check(changed(**columns))


def test_unknown_optional_columns_pass() -> None:
    """A future column that readers may ignore is passed through."""
    sealed = encode(MESSAGES, now_ms=1)
    records = sealed.records + b"\xf2\x3f\x03abc"
    assert check(resealed(records, sealed.count, sealed.body_inflated_bytes)).has_unknown_columns


@pytest.mark.parametrize("codec", [Codec.ZSTD, Codec.LZ4])
def test_a_bomb_is_refused_unopened(codec: Codec) -> None:
    """A frame that states or has another size than the batch declares is Invalid."""
    batch = record_pb2.RecordBatch.FromString(encode([Message(b"x" * 4_000_000)], now_ms=1, codec=codec).records)
    batch.body_inflated_bytes = 100
    batch.body_offsets = int32s(0, 100)
    with pytest.raises(Invalid) as caught:
        check(resealed(batch.SerializeToString(), 1, 100))
    assert caught.value.field == "batch.records.body"


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_damage_is_never_another_error(data: st.DataObject) -> None:
    """For any change of the bytes, the result is a checked batch or an error of ours."""
    codec = data.draw(st.sampled_from(list(Codec)))
    sealed = encode([message.replace(body=message.body * 20) for message in MESSAGES], now_ms=1, codec=codec)
    records = bytearray(sealed.records)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(records) - 1))
        records[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=5))
    damaged = resealed(bytes(records), sealed.count, sealed.body_inflated_bytes)
    with suppress(Invalid, Unsupported):
        check(damaged)
