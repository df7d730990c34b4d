"""The offsets that are lost by damaged places."""

from collections.abc import Iterable, Iterator

from ortoo.enode.disk.atomic_files import DamagedFile
from ortoo.enode.disk.disk import Disk
from ortoo.enode.index.catalog import LogCatalog, QueueLog
from ortoo.enode.index.index_files import load_rows
from ortoo.enode.log.results import Damage, DamagedQueue
from ortoo.enode.log.rows import IndexRows
from ortoo.enode.log.scan import Hole
from ortoo.enode.log.segment import segment_at, segment_name

OffsetGap = tuple[int, int, int, int]
"""(first missing offset, next stored offset, log position before, log position behind)."""
_END = 1 << 62


def find_damages(catalog: LogCatalog, holes: Iterable[Hole], disk: Disk) -> list[Damage]:
    """Describe each hole by its file, its position, and the offsets that are missing between the frames around it.

    The frames of a hole are unknown, so missing offsets are listed for every hole that may have held them. Rows of
    sealed segments are read only for segments with holes.
    """
    holes = sorted(set(holes), key=lambda hole: hole.position)
    if not holes:
        return []
    holed = {_segment_base(catalog, hole.position) for hole in holes}
    gaps = [(queue, *gap) for queue in catalog.queues.values() for gap in _queue_gaps(queue, holed, disk)]
    return [
        Damage(
            segment_name(_segment_base(catalog, hole.position)),
            hole.position,
            hole.length,
            hole.reason,
            tuple(
                DamagedQueue(*queue.key, begin, end)
                for queue, begin, end, low, high in gaps
                if low < hole.end_position and hole.position < high
            ),
        )
        for hole in holes
    ]


def _segment_base(catalog: LogCatalog, position: int) -> int:
    """The base of the segment that contains `position`."""
    segment = segment_at(catalog.segments, position)
    return position if segment is None else segment.base


def _queue_gaps(queue: QueueLog, damaged_bases: set[int], disk: Disk) -> Iterator[OffsetGap]:
    expected, low = queue.begin_offset, 0
    for run in queue.runs:
        if run.segment.base in damaged_bases:
            try:
                rows = load_rows(disk, run)
            except (DamagedFile, OSError):
                rows = IndexRows()
            yield from _row_gaps(rows, expected, low)
        elif run.entry.begin_offset > expected:
            yield expected, run.entry.begin_offset, low, run.segment.end or _END
        expected, low = run.entry.end_offset, run.segment.base
    if queue.rows:
        yield from _row_gaps(queue.rows, expected, low)
        expected, low = queue.rows.end_offset, queue.rows.positions[-1]
    if queue.end_offset > expected:
        yield expected, queue.end_offset, low, _END


def _row_gaps(rows: IndexRows, expected: int, low: int) -> Iterator[OffsetGap]:
    for row, first_offset in enumerate(rows.first_offsets):
        if first_offset > expected:
            yield expected, first_offset, low, rows.positions[row]
        expected, low = first_offset + rows.counts[row], rows.positions[row]
