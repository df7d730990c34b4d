"""A forked process with the interface of asyncio's subprocesses."""

import asyncio
import os
import signal
from collections.abc import Mapping
from typing import Any

from ortoo.verification.forks.fork_server import ForkServer

LINE_BYTES_MAX = 64 << 20
"""The longest line of output that is read as one."""
UNREAD_S = 0.5
"""The time that unread output waits for a reader after the process ended."""


class ForkedProcess:
    """A forked process with the interface of `asyncio.subprocess.Process`."""

    def __init__(self, pid: int) -> None:
        """Wrap a running process."""
        self.pid = pid
        self.returncode: int | None = None
        self.stdin: int | None = None
        self.stdout: asyncio.StreamReader | None = None
        self.stderr: asyncio.StreamReader | None = None
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._pipes: list[_Pipe] = []
        self._descriptor = os.pidfd_open(pid)
        self._loop.add_reader(self._descriptor, self._reap)

    def send_signal(self, number: int) -> None:
        """Send a signal; does nothing when the process has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    async def wait(self) -> int:
        """Wait until it has ended; its exit code, or minus the signal number."""
        await self._ended.wait()
        for pipe in self._pipes:
            await pipe.close_soon()
        assert self.returncode is not None
        return self.returncode

    async def communicate(self, given: bytes | None = None) -> tuple[bytes, bytes]:
        """Write its standard input, and read its output until it ends."""
        if self.stdin is not None:
            await asyncio.to_thread(_write_all, self.stdin, given or b"")
            self.stdin = None
        said = [await reader.read() if reader is not None else b"" for reader in (self.stdout, self.stderr)]
        await self.wait()
        return said[0], said[1]

    async def reading(self, descriptor: int) -> asyncio.StreamReader:
        """A reader of a pipe from the process."""
        reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
        pipe = _Pipe(reader)
        self._pipes.append(pipe)
        await self._loop.connect_read_pipe(lambda: pipe, os.fdopen(descriptor, "rb"))
        return reader

    def _reap(self) -> None:
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self._ended.set()


async def start_forked(
    server: ForkServer, *words: str, env: Mapping[str, str], stdin: int, stdout: int, stderr: Any
) -> ForkedProcess:
    """Like `asyncio.create_subprocess_exec`, for a command that `server` takes."""
    ours: list[int] = []
    theirs: list[int] = []
    for number, chosen in enumerate((stdin, stdout, stderr)):
        if chosen == asyncio.subprocess.PIPE:
            read, write = os.pipe()
            theirs.append(read if number == 0 else write)
            ours.append(write if number == 0 else read)
        else:
            is_none = chosen == asyncio.subprocess.DEVNULL
            given = chosen if isinstance(chosen, int) else chosen.fileno()
            theirs.append(os.open(os.devnull, os.O_RDWR) if is_none else os.dup(given))
            ours.append(-1)
    try:
        process = ForkedProcess(await asyncio.to_thread(server.fork, words, env, theirs))
    finally:
        for descriptor in theirs:
            os.close(descriptor)
    process.stdin = ours[0] if ours[0] >= 0 else None
    process.stdout, process.stderr = [await process.reading(one) if one >= 0 else None for one in ours[1:]]
    return process


class _Pipe(asyncio.StreamReaderProtocol):
    """Reads a pipe, and records when it is closed."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__(reader)
        self._is_closed = asyncio.Event()
        self._link: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._link = transport
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closed.set()
        super().connection_lost(exc)

    async def close_soon(self) -> None:
        """Wait until all is read; a pipe without a reader is closed after `UNREAD_S`."""
        try:
            async with asyncio.timeout(UNREAD_S):
                await self._is_closed.wait()
        except TimeoutError:
            assert self._link is not None
            self._link.close()


def _write_all(descriptor: int, data: bytes) -> None:
    with os.fdopen(descriptor, "wb") as file:
        try:
            file.write(data)
            file.flush()
        except BrokenPipeError:
            return
