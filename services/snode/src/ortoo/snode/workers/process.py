"""One worker process, as managed by its parent: started, restarted when it dies, queried, stopped."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ortoo.common.logs.logger import get_logger
from ortoo.common.machine.standard_files import inherited_standard_error
from ortoo.common.process.clock import Clock
from ortoo.common.process.randomness import Randomness
from ortoo.common.process.retry import Backoff
from ortoo.common.process.service import EXIT_INVALID_SETTINGS, EXIT_NOT_STARTED
from ortoo.snode import log_events
from ortoo.snode.workers.worker import Worker

QUERY_TIMEOUT_S = 2.0
"""Timeout of a query for metrics or health; a frozen worker does not answer."""
_log = get_logger("workers")


@dataclass(slots=True)
class WorkerProcess:
    """One worker process of a snode, which `run` starts and restarts."""

    name: str
    worker: Worker
    listener: socket.socket
    """The listening socket for the parent's queries; it outlives the worker."""
    command: Sequence[str]
    folder: Path
    """The working directory of the worker."""
    changed: Callable[[], None]
    """Called when the worker became ready, or ended."""
    clock: Clock
    randomness: Randomness
    is_ready: bool = False
    has_been_ready: bool = False
    """Whether the worker was ever ready."""
    refusal_exit_code: int | None = None
    """The last exit code, if the worker ended before it was ready, for a reason that a restart does not change."""
    starts: int = 0
    _process: asyncio.subprocess.Process | None = None
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _has_old_settings: bool = False

    @property
    def process_id(self) -> int | None:
        """The process id of the worker; None if the worker does not run."""
        return None if self._process is None or self._process.returncode is not None else self._process.pid

    async def run(self) -> None:
        """Start the worker, and restart it whenever it ends, until `stop` is called."""
        attempt, backoff = 0, Backoff(first_s=0.2, max_s=10.0)
        while not self._stopping.is_set():
            try:
                code = await self._run_once()
            except OSError as error:  # the machine cannot start another process
                _log.emit(log_events.WORKER_START_FAILED, worker=self.name, reason=str(error))
                code = EXIT_NOT_STARTED
            attempt = 0 if self.is_ready else attempt + 1
            self.refusal_exit_code = code if code >= EXIT_INVALID_SETTINGS and not self.is_ready else None
            self.is_ready = False
            self.changed()
            if self._stopping.is_set():
                return
            wait_s = backoff.delay_s(attempt, self.randomness)
            _log.emit(log_events.WORKER_RESTARTED, worker=self.name, exit_code=code, in_s=round(wait_s, 1))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._stopping.wait()

    async def _run_once(self) -> int:
        """Run the worker once; returns the exit code, or minus the number of the signal that ended it."""
        self._has_old_settings = False
        self.starts += 1
        process = self._process = await asyncio.create_subprocess_exec(
            *self.command,
            env=os.environ | self.worker.to_environ(),
            cwd=self.folder,
            stdin=asyncio.subprocess.PIPE,  # end of file tells it that this process has ended
            stdout=asyncio.subprocess.PIPE,
            stderr=inherited_standard_error(),
            pass_fds=[self.listener.fileno()],
        )
        if self._stopping.is_set():
            self._send_signal(signal.SIGTERM)
        assert process.stdout is not None
        async for line in _lines(process.stdout):
            if line.startswith(b"ready "):
                self.is_ready = self.has_been_ready = True
                self.changed()
                if self._has_old_settings:
                    self._send_signal(signal.SIGHUP)
        return await process.wait()

    def reload(self) -> None:
        """Make the worker read its settings again; a worker that starts reads them when it is ready."""
        self._has_old_settings = not self.is_ready
        if self.is_ready:
            self._send_signal(signal.SIGHUP)

    def stop(self) -> None:
        """Make the worker drain and end; `run` then returns."""
        self._stopping.set()
        self._send_signal(signal.SIGTERM)

    def _send_signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    async def query(self, target: str) -> tuple[int, str]:
        """Query the worker by GET `target`; returns the HTTP status and the text. Status 0 = it does not answer."""
        if self.process_id is None:
            return 0, ""
        try:
            async with asyncio.timeout(QUERY_TIMEOUT_S):
                reader, writer = await asyncio.open_connection(*self.listener.getsockname())
                try:
                    writer.write(f"GET {target} HTTP/1.1\r\n\r\n".encode())
                    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
                finally:
                    writer.close()
                return int(head.split(b" ", 2)[1]), body.decode()
        except (TimeoutError, OSError, ValueError, IndexError):
            return 0, ""


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """The lines that a worker logs or prints; of an overlong line only the end, or nothing."""
    while True:
        try:
            line = await stream.readline()
        except ValueError:
            continue
        if not line:
            return
        yield line
