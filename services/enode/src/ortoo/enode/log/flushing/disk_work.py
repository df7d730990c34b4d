"""Executors of disk work: threads beside the event loop. In replayed test runs, the loop or the disk does the work."""

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, Protocol, TypeVar, runtime_checkable

from ortoo.common.errors import Unavailable
from ortoo.common.process.long_work import wait_uncancelled
from ortoo.enode.disk.disk import Disk
from ortoo.enode.log.flushing.flush_group import FlushGroup
from ortoo.enode.log.settings import StoreSettings

P = ParamSpec("P")
T = TypeVar("T")
Done = Callable[[FlushGroup, BaseException | None], None]


class DiskWork:
    """Runs blocking disk work and returns the result to the loop; this class runs it on the loop itself.

    Concurrency: the loop calls. One flush runs at a time; other work may run beside it and beside other work. Scans run
    one after another.
    Durability: a flushed group is on the disk when `done` gets no error.
    Errors: those of the work, and Unavailable after `close`. A flush hands its error to `done`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Work for `loop`."""
        self._loop = loop

    def flush(self, group: FlushGroup, done: Done) -> None:
        """Write a group, then call `done` in a later turn of the loop. The caller flushes one group at a time."""

        def write() -> None:
            error: BaseException | None = None
            try:
                group.write()
            except Exception as caught:
                error = caught
            done(group, error)

        self._loop.call_soon(write)

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a read or a piece of housekeeping."""
        return work(*args, **kwargs)

    async def scan(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a read that inspects its data, after all earlier scans."""
        return work(*args, **kwargs)

    def close(self) -> None:
        """Finish running work, then stop."""


class ThreadedDiskWork(DiskWork):
    """Runs disk work in threads: one only flushes, one only scans, and a few do all other work.

    Scans are bound by the interpreter, so parallel scans would only slow each other down.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, read_threads: int) -> None:
        """Start the flush thread; the others start when needed."""
        super().__init__(loop)
        self._closed = False
        self._groups: queue.SimpleQueue[tuple[FlushGroup, Done] | None] = queue.SimpleQueue()
        self._pool = ThreadPoolExecutor(read_threads, thread_name_prefix="disk")
        self._scanning = ThreadPoolExecutor(1, thread_name_prefix="scan")
        self._thread = threading.Thread(target=self._flush_groups, name="flush", daemon=True)
        self._thread.start()

    def flush(self, group: FlushGroup, done: Done) -> None:
        """Hand a group to the flush thread."""
        self._groups.put((group, done))

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` in one of the threads. A cancelled caller still waits for the result."""
        return await self._run_in(self._pool, partial(work, *args, **kwargs))

    async def scan(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` in the scan thread. A cancelled caller still waits for the result."""
        return await self._run_in(self._scanning, partial(work, *args, **kwargs))

    async def _run_in(self, threads: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        if self._closed:
            raise Unavailable("the store is closed")
        return await wait_uncancelled(self._loop.run_in_executor(threads, work))

    def close(self) -> None:
        """Finish all submitted work, then end the threads."""
        self._closed = True
        self._groups.put(None)
        self._thread.join()
        self._pool.shutdown(wait=True)
        self._scanning.shutdown(wait=True)

    def _flush_groups(self) -> None:
        while (item := self._groups.get()) is not None:
            group, done = item
            error: BaseException | None = None
            try:
                group.write()
            except BaseException as caught:
                error = caught
            try:
                self._loop.call_soon_threadsafe(done, group, error)
            except RuntimeError:  # the loop is closed, so no caller waits
                return


@runtime_checkable
class DiskWithWork(Protocol):
    """A disk that executes its work itself, in its own order and time, such as a simulated one."""

    def work(self, loop: asyncio.AbstractEventLoop) -> DiskWork:
        """The executor of its work while a store of `loop` is open."""


def make_disk_work(disk: Disk, settings: StoreSettings, loop: asyncio.AbstractEventLoop) -> DiskWork:
    """The executor for a store that is being opened."""
    if isinstance(disk, DiskWithWork):
        return disk.work(loop)
    if settings.threads:
        return ThreadedDiskWork(loop, read_threads=settings.read_threads)
    return DiskWork(loop)
