"""Which offsets damaged places cost."""

from collections.abc import Iterable

from ortoo.enode.answers import Damage, DamagedQueue
from ortoo.enode.log.catalog import Catalog, QueueLog
from ortoo.enode.log.scan import Hole
from ortoo.enode.log.segment import segment_name
from ortoo.enode.state.fold import State


def damages_of(catalog: Catalog, holes: Iterable[Hole], state: State) -> list[Damage]:
    """Name each hole: file, position, and the offsets that are missing between the frames around it.

    Nobody can read in a hole whose frames they were, so a gap is told of every hole that may have held it.
    """
    holes = sorted(set(holes), key=lambda hole: hole.position)
    if not holes:
        return []
    gaps = [(queue, *gap) for queue in catalog.queues.values() for gap in _gaps(queue)]
    damages = []
    for hole in holes:
        segment = next((one for one in reversed(catalog.segments) if one.base <= hole.position), catalog.segments[0])
        lost = tuple(
            DamagedQueue(*queue.key, begin, end)
            for queue, begin, end, low, high in gaps
            if low < hole.end_position and hole.position < high
        )
        damages.append(Damage(segment_name(segment.base), hole.position, hole.length, hole.reason, lost))
    return damages


def _gaps(queue: QueueLog) -> Iterable[tuple[int, int, int, int]]:
    """(first missing offset, first offset that is there again, position before, position behind)."""
    expected, low = queue.begin_offset, 0
    for run in queue.runs:
        if run.begin_offset > expected:
            yield expected, run.begin_offset, low, run.segment.end or 1 << 62
        low = run.segment.base
        expected = run.end_offset
    if queue.rows:
        rows = queue.rows
        for row in range(len(rows)):
            if rows.first_offsets[row] > expected:
                yield expected, rows.first_offsets[row], low, rows.positions[row]
            expected, low = rows.first_offsets[row] + rows.counts[row], rows.positions[row]
    if queue.end_offset > expected:
        yield expected, queue.end_offset, low, 1 << 62
