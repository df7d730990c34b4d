"""Common parts of the drills that are run from the command line."""

import asyncio
import signal
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
TOLD_TO_END = 128 + signal.SIGTERM


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def run_drill(work: Coroutine[Any, Any, T]) -> T:
    """Run a drill to its end. On SIGTERM it ends the processes that it started, as on Ctrl-C."""

    async def whole() -> T:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    try:
        return asyncio.run(whole())
    except asyncio.CancelledError:
        sys.exit(TOLD_TO_END)
