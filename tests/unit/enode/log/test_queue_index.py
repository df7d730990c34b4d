"""The queue index file: encoded tables are decoded, damage is noticed, lookups are exact."""

import pytest

from ortoo.common.errors import Unsupported
from ortoo.enode.disk.atomic_files import DamagedFile
from ortoo.enode.log.queue_index import (
    IndexParts,
    SliceLocation,
    decode_contents,
    decode_rows,
    encode_index,
    tables_bytes,
)
from ortoo.enode.log.rows import IndexRows


def rows(begin: int, batches: int) -> IndexRows:
    """Batches of two messages, stored a millisecond apart, with a hole in front of every tenth."""
    made = IndexRows()
    offset = begin
    for number in range(batches):
        offset += 2 if number % 10 else 4
        made.append(offset, 2, 1000 + number * 192, 64, number)
    return made


def test_rows_fit_while_they_follow_one_another() -> None:
    """A read ends at its maximum of bytes and before a hole; one batch of any size is always returned."""
    found = rows(0, 30)  # 64 bytes each; there are gaps in front of 0, 10 and 20
    assert [found.end_fitting(row, 4 * 64, 99) for row in (0, 3, 7, 10, 28)] == [4, 7, 10, 14, 30]
    assert [found.end_fitting(row, 4 * 64 - 1, 99) for row in (0, 9, 29)] == [3, 10, 30]
    assert [found.end_fitting(row, 1, 99) for row in (5, 29, 30)] == [6, 30, 30]
    assert [found.end_fitting(row, 4 * 64, 5) for row in (0, 3, 5, 30)] == [4, 5, 6, 30]
    assert found.row(5) == (found.first_offsets[5], 2, found.positions[5], 64)


def test_an_index_survives_its_bytes() -> None:
    """Tables and rows are found again, from the tables' part of the file alone."""
    table = {(7, 1): rows(0, 30), (7, 0): rows(50, 3), (9, 4): IndexRows()}
    slices = [SliceLocation(64, 1, 0, 1, 32)]
    contents, data = encode_index(64, 9000, 77, IndexParts(table, slices, [(128, 64)]))
    assert decode_contents(data[: tables_bytes(data)], 64) == contents
    assert [(one.topic_id, one.queue_id) for one in contents.queues] == [(7, 0), (7, 1)]
    assert contents.slices == tuple(slices)
    assert contents.holes == ((128, 64),)
    for entry in contents.queues:
        found = decode_rows(entry, data[entry.block_at : entry.block_at + entry.block_bytes])
        assert found.encoded() == table[entry.topic_id, entry.queue_id].encoded()
        assert (found.begin_offset, found.end_offset) == (entry.begin_offset, entry.end_offset)


def test_every_damaged_byte_is_noticed() -> None:
    """A changed byte makes the tables or the rows damaged; wrong rows are never read."""
    contents, data = encode_index(0, 9000, 77, IndexParts({(7, 1): rows(0, 5), (8, 1): rows(9, 2)}))
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        with pytest.raises((DamagedFile, Unsupported)):
            assert decode_contents(bytes(damaged), 0) == contents
            for entry in contents.queues:
                decode_rows(entry, bytes(damaged[entry.block_at : entry.block_at + entry.block_bytes]))
    with pytest.raises(DamagedFile):
        decode_contents(data, 64)


def test_rows_are_found_by_offset_and_by_time() -> None:
    """Inside a batch, in a hole, before the first, behind the last."""
    table = rows(0, 20)
    assert table.find(4) == table.find(5) == 0
    assert table.find(6) == 1
    assert table.find(0) == -1
    assert table.find(table.end_offset) == -1 - len(table)
    hole = table.first_offsets[10] - 1
    assert table.find(hole) == -1 - 10
    assert [table.find_time(at) for at in (-1, 0, 7, 19, 20)] == [0, 0, 7, 19, 20]
