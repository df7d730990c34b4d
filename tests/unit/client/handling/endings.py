"""The ways in which a handler of an application ends."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable


class Abort(BaseException):
    """An exception of a library that is no Exception."""


async def _raise(error: BaseException) -> None:
    raise error


async def _cancelled_child() -> None:
    child = asyncio.get_running_loop().create_task(asyncio.Event().wait())
    child.cancel()
    await child


async def _own_cancellation() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.Event().wait()


async def _own_cancellation_unnoticed() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def _timeout() -> None:
    async with asyncio.timeout(0.01):
        await asyncio.Event().wait()


async def _closed_session() -> None:
    waiting = asyncio.get_running_loop().create_future()
    waiting.cancel()
    await waiting


async def _group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_raise(Abort("no")))


async def _generator() -> None:
    @contextlib.asynccontextmanager
    async def session() -> AsyncIterator[None]:
        yield

    async with session():
        raise StopAsyncIteration


FAILURES: dict[str, Callable[[], Awaitable[None]]] = {
    "Exception": lambda: _raise(ValueError("it does not work")),
    "CancelledError": lambda: _raise(asyncio.CancelledError()),
    "a cancelled child task": _cancelled_child,
    "its own cancellation": _own_cancellation,
    "its own cancellation before it returns": _own_cancellation_unnoticed,
    "GeneratorExit": lambda: _raise(GeneratorExit()),
    "StopIteration": lambda: _raise(StopIteration()),
    "StopAsyncIteration": _generator,
    "a timeout": _timeout,
    "a closed session": _closed_session,
    "a group": _group,
    "another BaseException": lambda: _raise(Abort("no")),
}
"""Each raises or ends as cancelled."""
