"""The process beside the enode that keeps the key indexes, so that its work never blocks the enode's event loop.

Requests and answers are JSON, one a line, answered in order. The process ends when its input ends.
"""

import abc
import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ortoo.common.errors import Overloaded, Unavailable
from ortoo.common.machine.allocator import give_back_freed, retain_freed_buffers
from ortoo.common.machine.line_writer import LineWriter
from ortoo.common.machine.standard_files import (
    STANDARD_ERROR,
    capture_standard_error,
    finish_output,
    inherited_standard_error,
)
from ortoo.enode.disk.disk import Disk, RealDisk
from ortoo.enode.index.key_search import FoundMessage, KeyQuery, KeySearch, LogStretch
from ortoo.enode.log.flushing.disk_work import DiskWork

NICENESS = 10
ANSWER_BYTES_MAX = 16 << 20
SEARCHES_WAITING_MAX = 64
"""Searches are answered one after another. Above this number of waiting ones they are refused with a retry time."""


class KeyIndex(abc.ABC):
    """The key indexes of a store; their requests are executed one after another."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._searches = 0

    async def update(self, stretch: LogStretch) -> None:
        """Index new frames of the last segment, or write the index file of a sealed segment. Errors: Unavailable."""
        async with self._lock:
            await self._do("update", stretch)

    async def find(self, query: KeyQuery, stretches: Sequence[LogStretch]) -> list[FoundMessage]:
        """Find messages, the newest first. Errors: Unavailable, Overloaded."""
        if self._searches >= SEARCHES_WAITING_MAX:
            raise Overloaded(f"{self._searches} searches wait on this enode, which is the limit", retry_after_ms=1000)
        self._searches += 1
        try:
            async with self._lock:
                return [FoundMessage(*one) for one in await self._do("find", query, stretches)]
        finally:
            self._searches -= 1

    @abc.abstractmethod
    async def _do(self, method: str, *arguments: Any) -> Any:
        """Call this method of a `KeySearch`."""

    @abc.abstractmethod
    async def close(self) -> None:
        """End the work on the indexes."""


class LocalKeyIndex(KeyIndex):
    """Key indexes that run where the store's disk work runs."""

    def __init__(self, disk: Disk, folder: Path, work: DiskWork) -> None:
        """Keep the indexes of `folder`."""
        super().__init__()
        self._search = KeySearch(disk, folder)
        self._work = work

    async def close(self) -> None:
        """Close the files."""
        self._search.close()

    async def _do(self, method: str, *arguments: Any) -> Any:
        try:
            return await self._work.run(getattr(self._search, method), *arguments)
        except OSError as error:
            raise Unavailable(f"the key index cannot be read now: {error}") from error


class KeyIndexProcess(KeyIndex):
    """Key indexes in a separate process, which is started at the first request and after a crash."""

    def __init__(self, folder: Path) -> None:
        """Keep the indexes of `folder`, which lies on the operating system's disk."""
        super().__init__()
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None

    @property
    def process_id(self) -> int:
        """The number of the running process; 0 if there is none."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else 0

    async def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            if process.stdin is not None:
                process.stdin.close()
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()

    async def _do(self, method: str, *arguments: Any) -> Any:
        """Send a request. If the process died, send it once more to a new process, which can rebuild all data."""
        line = json.dumps([method, *arguments]).encode() + b"\n"
        reply = await self._exchange(line) or await self._exchange(line)
        if not reply:
            raise Unavailable("the key index process died twice during the same request", retry_after_ms=1000)
        answer = json.loads(reply)
        if "error" in answer:
            raise Unavailable(f"the key index cannot be read now: {answer['error']}")
        return answer["ok"]

    async def _started(self) -> asyncio.subprocess.Process:
        """Start the process. Errors: Overloaded when no descriptor is free, or no memory."""
        try:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "ortoo.enode.index.key_process",
                str(self._folder),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=inherited_standard_error(),
                limit=ANSWER_BYTES_MAX,
            )
        except OSError as error:
            raise Overloaded(f"the key index process cannot be started: {error}", retry_after_ms=1000) from error

    async def _exchange(self, line: bytes) -> bytes:
        """Send one request and return the answer; empty when the process has ended."""
        process = self._process
        if process is None or process.returncode is not None:
            process = self._process = await self._started()
        if process.stdin is None or process.stdout is None:
            raise Unavailable("the key index process has no pipes")
        try:
            process.stdin.write(line)
            await process.stdin.drain()
            reply = await process.stdout.readline()
        except asyncio.CancelledError:
            process.kill()  # its next answer would be taken for another request's
            raise
        except OSError:
            reply = b""
        if not reply:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        return reply


def answer_request(search: KeySearch, line: bytes) -> bytes:
    """Execute one request, a line of JSON, and return the line with its answer or error."""
    try:
        method, first, *others = json.loads(line)
        answer: dict[str, Any] = {"ok": None}
        if method == "find":
            answer["ok"] = search.find(KeyQuery(*first), [LogStretch(*one) for one in others[0]])
        else:
            stretch = LogStretch(*first)
            search.update(stretch)
            if stretch.is_sealed:
                give_back_freed()  # the entries of a whole segment
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    return json.dumps(answer).encode() + b"\n"


def main(arguments: Sequence[str]) -> int:
    """Serve requests until the input ends. `arguments`: the store's folder."""
    os.nice(NICENESS)
    retain_freed_buffers()
    capture_standard_error(LineWriter(STANDARD_ERROR))
    search = KeySearch(RealDisk(), Path(arguments[0]))
    with contextlib.suppress(BrokenPipeError):  # the enode was killed
        for line in sys.stdin.buffer:
            sys.stdout.buffer.write(answer_request(search, line))
            sys.stdout.buffer.flush()
    return finish_output(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
