"""Reads of damaged places."""

import asyncio
from itertools import pairwise
from pathlib import Path

from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.index.catalog import LogCatalog
from ortoo.enode.log.flushing.disk_work import DiskWork
from ortoo.enode.log.queue_index import SegmentContents
from ortoo.enode.log.results import Damage, DamagedQueue
from ortoo.enode.log.segment import Segment
from ortoo.enode.reading.reader import Reader
from ortoo.enode.reading.recent import RecentBatches
from ortoo.testing.disks.memory_disk import MemoryDisk

FOLDER = Path("/log")


async def test_damaged_segments_are_repaired_in_the_order_of_the_log() -> None:
    """Not in that of their addresses, so that a simulated run asks other replicas in the same order each time."""
    files = SegmentFiles(disk := MemoryDisk())
    catalog, asked = LogCatalog(files), list[int]()
    made = [Segment(files, FOLDER, 0, 0) for _ in range(100)]
    catalog.segments = list(next(pair for pair in pairwise(made) if list(set(pair)) != list(pair)))
    lost = (DamagedQueue(1, 0, 0, 9),)
    for base, segment in zip((0, 640), catalog.segments, strict=True):
        segment.base = base
        catalog.contents[base] = SegmentContents(base, base + 640, 0, (), (), ((base + 64, 64),))
        catalog.damages.append(Damage("a segment", base + 64, 64, "bad", lost))

    async def repair(position: int, _: int, is_other: bool) -> int:
        asked.append(position)
        return 0

    work = DiskWork(asyncio.get_running_loop())
    reader = Reader(catalog, disk, work, RecentBatches(0), 0, repair)
    assert not await reader._repair_holes(catalog.queue((1, 0)), 5)
    assert asked == [64, 704]
