"""The file of a broadcast consumer holds the last offsets, also if writers are cancelled."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ortoo.client import Queue
from ortoo.client.offsets.offset_file import OffsetFile
from ortoo.client.offsets.store import LocalOffsets
from ortoo.common.process.clock import SystemClock

ONE, OTHER = Queue("t", "enode-0", 0), Queue("t", "enode-0", 1)
TURNS = 20


class NewestFirst(ThreadPoolExecutor):
    """Threads that run queued work only on request, the newest first."""

    def __init__(self) -> None:
        super().__init__(1)
        self._work: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Return a running future, which cannot be cancelled."""
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        self._work.append((future, lambda: work(*args, **kwargs)))
        return future

    async def run_until_done(self, *tasks: "asyncio.Task[Any]") -> None:
        """Run queued work until these tasks are done."""
        while not all(task.done() for task in tasks):
            for _ in range(TURNS):
                await SystemClock().sleep(0)
            if self._work:
                future, work = self._work.pop()
                future.set_result(work())


async def made(folder: Path) -> tuple[NewestFirst, OffsetFile, LocalOffsets]:
    """The threads of this test's loop, a file, and its offset store."""
    threads, file = NewestFirst(), OffsetFile(folder / "g.json")
    asyncio.get_running_loop().set_default_executor(threads)
    return threads, file, LocalOffsets(file)


async def begun(work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
    """A task that runs up to its first wait."""
    task = asyncio.get_running_loop().create_task(work)
    for _ in range(TURNS):
        await SystemClock().sleep(0)
    return task


async def test_a_write_that_was_called_off_replaces_nothing_that_came_later(tmp_path: Path) -> None:
    """A member that leaves cancels its periodic commit and stores its last offsets."""
    threads, file, store = await made(tmp_path)
    store.table.update(ONE, 0)
    first = await begun(store.persist([ONE]))
    first.cancel()
    store.table.update(ONE, 40)
    last = await begun(store.persist([ONE]))
    await threads.run_until_done(first, last)
    assert first.cancelled()
    assert file.read() == {ONE: 40}


async def test_what_two_write_at_once_is_all_in_the_file(tmp_path: Path) -> None:
    """A periodic commit of a member's queues, and the last commit of released ones."""
    threads, file, store = await made(tmp_path)
    store.table.update(ONE, 1)
    store.table.update(OTHER, 2)
    await threads.run_until_done(await begun(store.persist([ONE])), await begun(store.persist([OTHER])))
    assert file.read() == {ONE: 1, OTHER: 2}


async def test_queues_of_a_commit_that_was_called_off_stay_in_the_file(tmp_path: Path) -> None:
    """The next write includes them, even if it is for other queues."""
    threads, file, store = await made(tmp_path)
    store.table.update(ONE, 1)
    first = await begun(store.persist([ONE]))
    first.cancel()
    store.table.update(OTHER, 2)
    await threads.run_until_done(first, await begun(store.persist([OTHER])))
    assert file.read() == {ONE: 1, OTHER: 2}
