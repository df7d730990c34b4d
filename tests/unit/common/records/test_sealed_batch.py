"""The envelope of a batch is checked without opening it."""

from dataclasses import replace

import pytest

from ortoo.common.errors import Invalid
from ortoo.common.records.batch import encode, open_batch
from ortoo.common.records.message import BODY_BYTES_MAX, Message
from ortoo.common.records.sealed_batch import (
    BODY_INFLATED_BYTES_MAX,
    RECORDS_BYTES_MAX,
    SINGLE_RECORD_BYTES_MAX,
    SealedBatch,
    crc32c,
)
from ortoo.common.records.text_rules import COPY_LIMITS


def sealed(records: bytes = b"records", count: int = 1) -> SealedBatch:
    return SealedBatch(records, crc32c(records), count, len(records))


def test_crc_is_castagnoli() -> None:
    """The checksum is the one every CRC-32C library makes."""
    assert crc32c(b"123456789") == 0xE3069283


def test_good_envelope_passes() -> None:
    """A batch as its producer sealed it is accepted."""
    sealed().check()
    sealed(b"x" * RECORDS_BYTES_MAX, count=2).check()
    replace(sealed(b"x" * SINGLE_RECORD_BYTES_MAX), body_inflated_bytes=BODY_INFLATED_BYTES_MAX).check()


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (sealed(count=0), "batch.count"),
        (sealed(count=4097), "batch.count"),
        (replace(sealed(), records=b""), "batch.records"),
        (sealed(b"x" * (RECORDS_BYTES_MAX + 1), count=2), "batch.records"),
        (replace(sealed(), records=b"Records"), "batch.records_crc32c"),
        (replace(sealed(), body_inflated_bytes=BODY_INFLATED_BYTES_MAX + 1), "batch.body_inflated_bytes"),
    ],
)
def test_wrong_envelope_is_refused_by_field(wrong: SealedBatch, field: str) -> None:
    """Each limit has its own named refusal."""
    with pytest.raises(Invalid) as caught:
        wrong.check()
    assert caught.value.field == field


def test_readers_take_a_copy_that_is_larger_than_what_its_producer_could_send() -> None:
    """G9: a dead letter has more properties than its message, which may have had the maximum size."""
    largest = Message(b"a" * BODY_BYTES_MAX, None, ("k",) * 13_000)
    encode([largest], now_ms=1).check()
    copy = encode([largest.replace(properties={"DLQ_ERROR": "e" * 8_192})], now_ms=1, limits=COPY_LIMITS)
    with pytest.raises(Invalid, match="a batch of 1 messages may have"):
        copy.check()
    assert open_batch(copy, verify_crc=True).message(0).properties["DLQ_ERROR"] == "e" * 8_192
