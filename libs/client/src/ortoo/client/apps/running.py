"""The state of a program that runs, for health checks, and the restarts of its consumers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from ortoo.client import log_events
from ortoo.common.errors import Conflict, Invalid
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock

RESTARTS_RESET_S = 600.0
"""A consumer that has run for this time may be restarted as often as a new one."""
REQUEST_TIMEOUT_S = 5.0
REQUEST_BYTES_MAX = 8 << 10
PORT_MAX = 65_535
_log = get_logger("app")


class RunningApp:
    """A program that runs. Made by `App.running`."""

    def __init__(self) -> None:
        """Applications use `App.running`."""
        self.error: BaseException | None = None
        """The error that has ended a consumer, and with it the program."""
        self.restarts = 0
        """Number of restarts of consumers."""
        self._stopped = asyncio.Event()
        self._is_stopping = False

    @property
    def is_running(self) -> bool:
        """Whether the program handles messages: no consumer has ended, and the block of `App.running` is not left."""
        return not self._stopped.is_set()

    async def wait_stopped(self) -> None:
        """Wait until `is_running` is false."""
        await self._stopped.wait()

    def health(self) -> tuple[int, dict[str, Any]]:
        """The answer to a health check: the HTTP status, 200 or 503, and a body for JSON."""
        if self.is_running:
            return 200, {"status": "running", "restarts": self.restarts}
        error = type(self.error).__name__ if self.error is not None else None
        return 503, {"status": "stopped", "restarts": self.restarts, "error": error}

    @asynccontextmanager
    async def serve_health(self, port: int, host: str = "") -> AsyncIterator[int]:
        """Answer HTTP health checks, of any path, while the block runs; its value is the port, which may be given as 0.

        Without `host`, all interfaces are used. The answer has the status of `health`.

        Errors: Invalid for a port outside 0 to 65535, Conflict if the port cannot be used.
        """
        if not 0 <= port <= PORT_MAX:
            raise Invalid(f"{port} is no port for health checks; expected 0 to {PORT_MAX}", field="port")
        try:
            server = await asyncio.start_server(self._answer, host or None, port, limit=REQUEST_BYTES_MAX)
        except OSError as error:
            reason = error.strerror or error
            raise Conflict(
                f"cannot listen on port {port} for health checks: {reason}; choose another port, or end the process "
                "that uses it",
                field="port",
            ) from error
        async with server:
            yield server.sockets[0].getsockname()[1]

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        import json

        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                await reader.readuntil(b"\r\n\r\n")
                status, content = self.health()
                body = json.dumps(content).encode()
                reason = "OK" if status == 200 else "Service Unavailable"
                head = (
                    f"HTTP/1.1 {status} {reason}",
                    "Content-Type: application/json",
                    f"Content-Length: {len(body)}",
                    "Connection: close",
                )
                writer.write("\r\n".join((*head, "", "")).encode() + body)
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # this client of the check has no answer
        finally:
            writer.close()


async def watch(
    program: RunningApp, topic: str, run: Callable[[], Awaitable[None]], restarts: Sequence[timedelta], clock: Clock
) -> None:
    """Run a consumer of a program, and run it again after each of the delays `restarts` if it fails.

    Errors: those of the consumer after the last restart.
    """
    count = 0
    while True:
        begun_s = clock.monotonic_s()
        try:
            return await run()
        except Exception as error:
            if clock.monotonic_s() - begun_s >= RESTARTS_RESET_S:
                count = 0
            if count >= len(restarts):
                program.error = program.error or error
                mark_stopped(program)
                raise
            delay_s = restarts[count].total_seconds()
            _log.emit(log_events.CONSUMER_FAILED_RESTARTING, topic=topic, delay_s=delay_s, reason=str(error))
        await clock.sleep(delay_s)
        if program._is_stopping:
            return None
        count += 1
        program.restarts += 1


def mark_stopping(program: RunningApp) -> None:
    """Let no consumer be restarted any more, because the others finish their handlers."""
    program._is_stopping = True


def mark_stopped(program: RunningApp) -> None:
    """Record that the block of a program is left."""
    program._stopped.set()
