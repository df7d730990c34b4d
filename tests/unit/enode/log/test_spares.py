"""Segments that are made ahead: none is made in vain."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from unittest import mock

import pytest

from ortoo.common.errors import NotLeader
from ortoo.common.process.background import Background
from ortoo.enode.disk.segment_files import SegmentFiles
from ortoo.enode.log.flushing.disk_work import DiskWork
from ortoo.enode.log.segment import Segment
from ortoo.enode.log.spares import SpareSegments
from ortoo.testing.disks.memory_disk import MemoryDisk
from tests.contract.one_store import OneStore

P = ParamSpec("P")
T = TypeVar("T")
SEGMENT_BYTES = 1 << 16


class SlowWork(DiskWork):
    """Work is done at once, but its caller gets the result when the test releases it."""

    def __init__(self) -> None:
        super().__init__(asyncio.get_running_loop())
        self.begun, self.answered = asyncio.Event(), asyncio.Event()

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        result = work(*args, **kwargs)
        self.begun.set()
        await self.answered.wait()
        return result


@pytest.mark.parametrize("is_ahead", [False, True])
async def test_what_is_made_for_one_who_is_called_off_is_the_next_ones(*, is_ahead: bool) -> None:
    """A connection that breaks while its batch waits for a new segment costs no file each time."""
    disk, folder, work = MemoryDisk(), Path("/store"), SlowWork()
    disk.make_folder(folder)
    spares = SpareSegments(SegmentFiles(disk), folder, work, SEGMENT_BYTES, 0)
    async with Background("test") as background:
        for _ in range(3):
            asking: Any = spares.prepare() if is_ahead else spares.take(100, is_state=False)
            called_off = background.spawn("taker", asking)
            await work.begun.wait()
            work.begun.clear()
            called_off.cancel()
            await asyncio.wait([called_off])
            work.answered.set()
            taken = await spares.take(100, is_state=False)
            work.answered.clear()
            work.begun.clear()
            taken.retire()
            disk.remove(taken.path)
    assert disk.list(folder) == []


async def test_what_is_made_for_a_member_that_leads_no_more_by_then_is_used_later() -> None:
    """It was made for writes that are no longer allowed; it takes the writes of the next leader."""
    one = OneStore()
    store = await one.open()
    appender, spares = store.engine.appender, store.engine.spares
    taken: list[Segment] = []
    take = spares.take

    async def losing(*size: Any, **more: Any) -> Segment:
        taken.append(await take(*size, **more))
        appender.may_place = False
        return taken[-1]

    with mock.patch.object(spares, "take", losing), pytest.raises(NotLeader):
        for _ in range(100):
            await one.append(b"x" * 500)
    assert await spares.take(500, is_state=True) is taken[0]
    appender.may_place = True
    await store.close()
