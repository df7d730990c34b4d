"""The runs of a consumer's handlers, and their graceful stop."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ortoo.client import log_events
from ortoo.client.handling.calls import HandlerCalls
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.background import Background

FINISH_TIMEOUT_S = 30.0
"""Time for running handlers to finish after a signal to stop."""
Take = Callable[[Background], Coroutine[Any, Any, None]]
"""Takes messages and starts their handlers in a Background, until cancelled."""
_log = get_logger("consumer")


class HandlerRuns:
    """The current runs of one consumer's handlers; usually there is one run."""

    def __init__(self) -> None:
        self._runs: dict[_Run, None] = {}

    async def run(self, calls: HandlerCalls[Any, Any], take: Take) -> None:
        """Run `take`, which starts handlers by `calls`, until it ends or fails, until cancelled, or until `stop`.

        Handlers that still run at the end are cancelled.
        """
        run = _Run(calls)
        self._runs[run] = None
        try:
            async with Background("handlers") as background:
                await run.run(background, take)
        finally:
            del self._runs[run]
            run.ended.set()

    async def stop(self, finish_timeout_s: float) -> None:
        """Begin no further handlers, and wait at most `finish_timeout_s` for the running ones."""
        for run in (runs := list(self._runs)):
            run.finish_timeout_s = finish_timeout_s
            run.stopped.set()
        for run in runs:
            await run.ended.wait()


class _Run:
    """One run."""

    def __init__(self, calls: HandlerCalls[Any, Any]) -> None:
        self._calls = calls
        self.finish_timeout_s = 0.0
        self.stopped, self.ended = asyncio.Event(), asyncio.Event()

    async def run(self, background: Background, take: Take) -> None:
        taking = background.start_future("take", take(background))
        stopping = background.spawn("stop", self.stopped.wait())
        await asyncio.wait((taking, stopping), return_when=asyncio.FIRST_COMPLETED)
        if taking.done():
            return taking.result()
        self._calls.close()
        taking.cancel()
        try:
            async with asyncio.timeout(self.finish_timeout_s):
                await self._calls.idle.wait()
        except TimeoutError:
            _log.emit(log_events.HANDLERS_NOT_FINISHED, handlers=self._calls.running, seconds=self.finish_timeout_s)
            self._calls.abandon_threads()
