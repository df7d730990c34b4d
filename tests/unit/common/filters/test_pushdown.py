"""The selected messages of a queue are the same whether rows of several stored batches are sent as one or not."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.errors import OrtooError
from ortoo.common.filters.projection import columns_of
from ortoo.common.filters.pushdown import BatchSelector, Pushdown, SelectedPart
from ortoo.common.records.batch import encode
from ortoo.common.records.columns import MESSAGE_COLUMNS, TAG
from ortoo.common.records.compression import Codec
from ortoo.common.records.message import Message
from ortoo.common.records.sealed_batch import SealedBatch, StoredBatch
from ortoo.common.records.view import RecordBatchView, open_batch


def stored(batches: Sequence[SealedBatch]) -> list[StoredBatch]:
    """These batches in a queue, each stored a second after the previous one."""
    made, at = [], 0
    for number, batch in enumerate(batches):
        made.append(StoredBatch(at, 1_000 * number, batch))
        at += batch.count
    return made


def batch(count: int, every: int, *, kind: int = 0, codec: Codec = Codec.NONE, body_bytes: int = 10) -> SealedBatch:
    """Messages of which one in `every` matches; `kind` defines their columns besides the tag."""
    return encode(
        [
            Message(
                b"%d" % n + b"." * body_bytes,
                "rare" if n % every == 0 else "often",
                keys=(f"key-{n}",) if kind & 1 else (),
                properties={"n": str(n)} if kind & 2 else {},
                message_id=f"id-{n}" if kind & 4 else None,
                priority=n if kind & 8 else None,
                deliver_at_ms=n + 1 if kind & 16 else None,
                message_group=f"group-{n % 3}" if kind & 32 and n % 2 else None,
                born_host=f"host-{n % 2}" if kind & 64 else None,
                trace_context="00-" + "ab" * 16 + "-" + "cd" * 8 + "-01" if kind & 128 and n % 14 else None,
                expire_at_ms=9_000 if kind & 256 and n % 3 else None,
                body_encoding=n % 2 if kind & 512 else 0,
            )
            for n in range(count)
        ],
        now_ms=7,
        codec=codec,
    )


def parts_of(held: Sequence[StoredBatch], begin: int = 0, **wishes: object) -> Sequence[SelectedPart]:
    """The selected parts of these batches."""
    pushdown = Pushdown("rare", **wishes)  # type: ignore[arg-type]
    choice = BatchSelector(pushdown, pushdown.compile(), begin)
    for one in held:
        choice.add_batch(one)
    return choice.finish()


def rows_of(parts: Sequence[SelectedPart], columns: Sequence[str] = ()) -> list[tuple[int, int, object]]:
    """Offset, storage time and message of each row, or these columns of the message."""
    found = list[tuple[int, int, object]]()
    for part in parts:
        part.batch.check()
        view = open_batch(part.batch)
        rows = np.frombuffer(part.rows, "<i4").tolist() or list(range(view.count))
        times = np.frombuffer(part.row_stored_at_ms, "<i8").tolist() or [part.stored_at_ms] * len(rows)
        for number, (row, time_ms) in enumerate(zip(rows, times, strict=True)):
            at = number if len(rows) == view.count else row
            asked = [name for name in columns if name != "count"]
            message = [column(view, name, at) for name in asked] if columns else view.message(at)
            found.append((part.first_offset + row, time_ms, message))
    return found


def column(view: RecordBatchView, name: str, row: int) -> object:
    """One field of one message."""
    if name == "body":
        return view.body(row)
    values: Sequence[object] = view.values(next(column for column in MESSAGE_COLUMNS if column.name == name))
    return values[row]


@given(
    shapes=st.lists(
        st.tuples(st.integers(1, 60), st.sampled_from([1, 2, 7, 100]), st.integers(0, 1023), st.booleans()), max_size=8
    ),
    begin=st.integers(0, 60),
    missing=st.integers(0, 60),
    columns=st.sampled_from([[], ["count"], ["tag", "keys"], ["expire_at_ms", "properties"], ["body"]]),
)
def test_joined_rows_are_those_that_come_batch_by_batch(
    shapes: list[tuple[int, int, int, bool]], begin: int, missing: int, columns: list[str]
) -> None:
    """Offsets, storage times and all fields are the same, for all columns and codecs of batches."""
    held = stored([batch(n, every, kind=k, codec=Codec.LZ4 if small else Codec.NONE) for n, every, k, small in shapes])
    end = held[-1].next_offset if held else 0
    begin, to_offset = min(begin, end), max(end - missing, 1)
    asked = columns_of(columns)
    apart = parts_of(held, begin, to_offset=to_offset, columns=asked)
    together = parts_of(held, begin, to_offset=to_offset, columns=asked, coalesce=True)
    assert rows_of(together, columns) == rows_of(apart, columns)
    assert len(together) <= len(apart)


def test_few_rows_of_many_batches_are_one_batch() -> None:
    """A part for each stored batch would cost readers more than the rows do."""
    held = stored([batch(200, 100, kind=7) for _ in range(50)])
    (part,) = parts_of(held, coalesce=True)
    assert (part.batch.count, part.next_offset) == (100, 10_000)
    assert rows_of([part]) == rows_of(parts_of(held))


def test_what_would_be_too_large_is_more_than_one_batch() -> None:
    """No batch that is sent is larger than a stored one may be; `rows_of` calls `check`."""
    held = stored([batch(5, 5, body_bytes=190_000) for _ in range(20)])
    parts = parts_of(held, coalesce=True)
    assert 1 < len(parts) < 20
    assert rows_of(parts) == rows_of(parts_of(held))


def test_bodies_that_are_left_out_count_for_how_many_rows_travel_as_one() -> None:
    """A joined batch is cut before its columns are left out, because a batch that was too large cannot be opened."""
    held = stored([batch(5, 5, body_bytes=190_000) for _ in range(40)])
    columns = columns_of(["tag"])
    parts = parts_of(held, coalesce=True, columns=columns)
    assert 1 < len(parts) < 40
    assert [tag for part in parts for tag in open_batch(part.batch).values(TAG)] == ["rare"] * 40


def test_what_was_found_counts_by_its_bytes() -> None:
    """One row may have nearly all bytes of its batch: the size of an answer is limited by bytes, not by rows."""
    held = stored([large_row() for _ in range(8)])
    pushdown = Pushdown("rare", coalesce=True)
    choice = BatchSelector(pushdown, pushdown.compile(), 0)
    for one in held:
        choice.add_batch(one)
    assert choice.size_bytes >= sum(len(part.batch.records) for part in choice.finish()) >= 8 * 500_000


def large_row() -> SealedBatch:
    """The only matching message of 100 has nearly all bytes."""
    messages = [Message(b"x", "often") for _ in range(99)]
    return encode([*messages, Message(b"y" * 500_000, "rare")], now_ms=7, codec=Codec.NONE)


def range_of(held: Sequence[StoredBatch], begin: int, to_offset: int, columns: Sequence[str]) -> list[SelectedPart]:
    """The parts of a read of a range, without a filter."""
    choice = BatchSelector(Pushdown(columns=columns_of(columns), to_offset=to_offset, coalesce=True), None, begin)
    for one in held:
        choice.add_batch(one)
    return list(choice.finish())


@given(
    shapes=st.lists(st.tuples(st.integers(1, 60), st.integers(0, 1023), st.booleans()), min_size=1, max_size=4),
    begin=st.integers(0, 60),
    missing=st.integers(0, 60),
)
def test_a_range_has_the_same_rows_with_and_without_columns(
    shapes: list[tuple[int, int, bool]], begin: int, missing: int
) -> None:
    """Offsets, times and values are those of the stored batches, for all columns and codecs of batches."""
    held = stored([batch(n, 7, kind=k, codec=Codec.LZ4 if small else Codec.NONE) for n, k, small in shapes])
    begin, to_offset = min(begin, held[0].next_offset - 1), max(held[-1].next_offset - missing, 1)
    held = [one for one in held if one.first_offset < to_offset]
    names = ["body", "tag", "keys"]
    assert rows_of(range_of(held, begin, to_offset, names), names) == rows_of(
        range_of(held, begin, to_offset, []), names
    )


def test_the_ends_of_a_range_are_sent_without_other_rows() -> None:
    """Tasks read many small ranges, so that the rest of the batches at their ends would be many bytes."""
    parts = range_of(stored([batch(200, 7, kind=7)] * 3), 180, 410, ["body"])
    assert [part.batch.count for part in parts] == [20, 200, 10]
    assert [offset for offset, _, _ in rows_of(parts, ["body"])] == list(range(180, 410))


@pytest.mark.parametrize("is_damaged", [False, True])
def test_an_end_of_a_range_that_cannot_be_cut_is_sent_whole(is_damaged: bool) -> None:
    """Compressed bodies stay compressed, and the reader gets the error of a damaged batch."""
    sealed = batch(200, 7, codec=Codec.NONE if is_damaged else Codec.LZ4)
    if is_damaged:
        sealed = replace(sealed, records_crc32c=sealed.records_crc32c ^ 1)
    (part,) = range_of(stored([sealed]), 180, 200, ["body", "tag", "born_at_ms"])
    assert (part.batch, np.frombuffer(part.rows, "<i4").tolist()) == (sealed, list(range(180, 200)))


def test_of_a_damaged_batch_nothing_is_taken() -> None:
    """A reader that continues at `next_offset` gets each row once."""
    good, bad = batch(200, 100), SealedBatch(b"\xff" * 40, 0, 200, 10)
    first, second, third = stored([good, bad, good])
    pushdown = Pushdown("rare", coalesce=True)
    choice = BatchSelector(pushdown, pushdown.compile(), 0)
    choice.add_batch(first)
    with pytest.raises(OrtooError):
        choice.add_batch(second)
    assert [offset for offset, _, _ in rows_of(choice.finish())] == [0, 100]
    assert (choice.next_offset, choice.scanned_bytes) == (200, len(good.records))
    choice.add_batch(third)
    assert [offset for offset, _, _ in rows_of(choice.finish())] == [0, 100, 400, 500]
