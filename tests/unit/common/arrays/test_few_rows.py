"""Columns that do not fit together are refused also where few rows are taken without arrays."""

import struct
import tracemalloc
from typing import Any

import numpy as np
import pytest

from ortoo.common.arrays.gather import gather
from ortoo.common.arrays.opened_batch import OpenedBatch
from ortoo.common.errors import Invalid
from ortoo.common.records.batch import Message, encode
from ortoo.common.records.sealed_batch import SealedBatch, crc32c
from ortoo.v1 import record_pb2

MESSAGES = [Message(b"x%d" % row, f"t{row}", (f"k{row}", "k"), properties={"n": str(row)}) for row in range(8)]
ROWS = np.array([1, 2], "<i4")


def with_numbers(path: str, numbers: list[int]) -> OpenedBatch:
    """A batch whose offsets or codes at `path` are these."""
    batch = record_pb2.RecordBatch.FromString(encode(MESSAGES, now_ms=1).records)
    inner: Any = batch
    *names, last = path.split(".")
    for name in names:
        inner = getattr(inner, name)
    assert len(getattr(inner, last)) == 4 * len(numbers)
    setattr(inner, last, struct.pack(f"<{len(numbers)}i", *numbers))
    records = batch.SerializeToString(deterministic=True)
    return OpenedBatch(SealedBatch(records, crc32c(records), batch.count, batch.body_inflated_bytes))


@pytest.mark.parametrize(
    ("path", "numbers"),
    [
        pytest.param("keys.offsets", [0, 4, 3, 6, 8, 10, 12, 14, 16], id="lists that overlap"),
        pytest.param("keys.offsets", [0, -4, -2, 6, 8, 10, 12, 14, 16], id="lists before the first entry"),
        pytest.param("properties.offsets", [0, 2, 1, 3, 4, 5, 6, 7, 8], id="maps that overlap"),
        pytest.param("tag.codes", [0, -3, 2, 3, 4, 5, 6, 7], id="a code below 0"),
        pytest.param("properties.names.codes", [0, -2, 0, 0, 0, 0, 0, 0], id="a name's code below 0"),
    ],
)
def test_what_would_be_rows_of_others_is_refused(path: str, numbers: list[int]) -> None:
    """No message gets keys, properties or a tag of another one."""
    with pytest.raises(Invalid) as caught:
        gather(with_numbers(path, numbers), ROWS)
    assert (caught.value.field or "").startswith("batch.records." + path.partition(".")[0])


def test_wild_offsets_cost_no_memory() -> None:
    """They give the number of entries, which may be any number."""
    opened = with_numbers("keys.offsets", [0, 2, 3_000_000, 6, 8, 10, 12, 14, 16])
    tracemalloc.start()
    try:
        with pytest.raises(Invalid):
            gather(opened, ROWS)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
