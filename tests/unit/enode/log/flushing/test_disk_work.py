"""Threads beside the event loop: the order of their work."""

import asyncio
import threading

import pytest

from ortoo.common.errors import Unavailable
from ortoo.enode.log.flushing.disk_work import ThreadedDiskWork

WAIT_S = 30


async def test_scans_come_one_after_another_and_reads_beside_them() -> None:
    """A long scan delays the next one but no read; `close` and a cancelled caller wait for it."""
    loop = asyncio.get_running_loop()
    work = ThreadedDiskWork(loop, read_threads=1)
    has_begun, may_end, begun = threading.Event(), threading.Event(), list[int]()

    def scan(number: int) -> int:
        begun.append(number)
        has_begun.set()
        assert may_end.wait(WAIT_S)
        return number

    scans = [loop.create_task(work.scan(scan, number)) for number in range(3)]
    assert await work.run(has_begun.wait, WAIT_S)
    scans[0].cancel()
    for number in range(5):
        assert await work.run(lambda number: number, number) == number
    assert begun == [0]
    assert not scans[0].done()
    may_end.set()
    work.close()
    assert begun == [0, 1, 2]
    with pytest.raises(asyncio.CancelledError):
        await scans[0]
    assert await asyncio.gather(*scans[1:]) == [1, 2]
    with pytest.raises(Unavailable):
        await work.scan(scan, 3)
