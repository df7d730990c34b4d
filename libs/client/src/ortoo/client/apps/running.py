"""The state of a program that runs, for health checks."""

import asyncio
from collections.abc import Awaitable


class RunningApp:
    """A program that runs. Made by `App.running`."""

    def __init__(self) -> None:
        """Applications use `App.running`."""
        self.error: BaseException | None = None
        """The error that has ended a consumer, and with it the program."""
        self._stopped = asyncio.Event()

    @property
    def is_running(self) -> bool:
        """Whether the program handles messages: no consumer has ended, and the block of `App.running` is not left."""
        return not self._stopped.is_set()

    async def wait_stopped(self) -> None:
        """Wait until `is_running` is false."""
        await self._stopped.wait()


async def watch(program: RunningApp, consumer: Awaitable[None]) -> None:
    """Run a consumer of a program. Errors: those of the consumer."""
    try:
        await consumer
    except Exception as error:
        program.error = program.error or error
        mark_stopped(program)
        raise


def mark_stopped(program: RunningApp) -> None:
    """Record that the block of a program is left."""
    program._stopped.set()
