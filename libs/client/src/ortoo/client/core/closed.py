"""The life of the client's objects, and errors for their use after the end or from another event loop."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Self, TypeVar

from ortoo.common.errors import Conflict
from ortoo.common.machine.forks import is_forked_after_channel

CLOSE_TIMEOUT_S = 30.0
CANCEL_INTERVAL_S = 0.2
"""Time after which a close beyond its limit is cancelled again: each step of the close may end only its own wait."""
CANCELS_MAX = 25
T = TypeVar("T")


class ClientClosed(Conflict):
    """A client or producer was used after its end, or a producer before it was entered; the message has the remedy."""

    def __init__(self, message: str = "this client is closed; connect again") -> None:
        """`message` names the closed object; by default it is the whole client."""
        super().__init__(message)


class ConsumerClosed(Conflict):
    """A consumer was used after it left its group, or before it was entered with `async with`."""


def check_loop(owner: asyncio.AbstractEventLoop | None) -> None:
    """Refuse a call on another event loop or thread than `owner`; None = the object has no loop yet.

    Errors: Conflict. Without this check a call on another loop may hang.
    """
    if owner is not None and owner is not asyncio._get_running_loop():
        raise Conflict(
            "this client belongs to another event loop or thread. Connect on the loop that uses it, use "
            "asyncio.run_coroutine_threadsafe from a thread, or use ortoo.client.blocking, which takes calls from any "
            "thread"
        )


def running_loop_check() -> Callable[[], None]:
    """Return the check that a call is made on the event loop that runs now. Errors of the check: as `check_loop`."""
    return partial(check_loop, asyncio._get_running_loop())


def check_not_forked() -> None:
    """Refuse to connect in a forked child of a process that has connected before. Errors: Conflict."""
    if is_forked_after_channel():
        raise used_before_fork()


def used_before_fork() -> Conflict:
    """The error for a connection in a forked child."""
    return Conflict(
        "this process was forked from one that had connected, and gRPC's threads do not survive a fork. Connect for "
        "the first time after the fork. In gunicorn, leave out --preload or use the hook post_fork. In Celery, use the "
        "signal worker_process_init, and in multiprocessing the method spawn"
    )


class Openable:
    """Enter it with `async with`. Without a block, await it or call `open`, and call `close` at the end.

    The end of a client closes everything that was opened through it.
    """

    _connection: Any
    _was_entered = False

    async def __aenter__(self) -> Self:
        raise NotImplementedError

    async def __aexit__(self, *ended: Any) -> bool | None:
        raise NotImplementedError

    def __await__(self) -> Generator[Any, None, Self]:
        """The same as `open`: `mq = await connect()`."""
        return self.open().__await__()

    async def open(self) -> Self:
        """Open it, and return it; call `close` at the end. Errors: as at the begin of an `async with` block."""
        # A background task that fails cancels the task that has entered the object, so this is a task of its own.
        entering = asyncio.get_running_loop().create_task(self.__aenter__())
        try:
            await entering
        except asyncio.CancelledError:
            if not entering.cancelled() and entering.exception() is None:
                await self.__aexit__(None, None, None)
            raise
        self._opened_objects[self] = None
        return self

    async def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Close it gracefully, as the end of an `async with` block does. Does nothing if `open` has not opened it.

        Errors: TimeoutError after `timeout_s`; it is closed then, too. Otherwise as at the end of a block.
        """
        if self._opened_objects.pop(self, self) is self:
            return
        await close_within(type(self).__name__, self.__aexit__(None, None, None), timeout_s)

    def _check_first_entry(self) -> None:
        """Refuse to open an object again. Errors: Conflict."""
        if self._was_entered:
            raise Conflict(
                f"this {type(self).__name__} was opened before; make another one. An object that was awaited or opened "
                "needs no `async with`; call its `close` at the end"
            )
        self._was_entered = True

    @property
    def _opened_objects(self) -> "dict[Openable, None]":
        """The objects that were opened by `open`, the oldest first."""
        opened: dict[Openable, None] = self._connection.opened
        return opened


async def close_within(what: str, close: Coroutine[Any, Any, T], timeout_s: float | None) -> T:
    """Await `close`, which closes a `what`, in a task of its own; None = without a limit.

    Errors: TimeoutError after `timeout_s`; all steps of the close are then cancelled. Otherwise those of `close`.
    """
    closing = asyncio.get_running_loop().create_task(close)
    try:
        await asyncio.wait((closing,), timeout=timeout_s)
    except asyncio.CancelledError:
        await _cancel_steps(closing)
        raise
    if closing.done():
        return await closing
    await _cancel_steps(closing)
    raise TimeoutError(f"the {what} did not close gracefully within {timeout_s:g} s and was ended")


async def _cancel_steps(closing: asyncio.Task[Any]) -> None:
    """Cancel `closing` until it has ended. A cancellation of the caller is raised after that."""
    is_cancelled = False
    for _ in range(CANCELS_MAX):
        closing.cancel()
        try:
            await asyncio.wait((closing,), timeout=CANCEL_INTERVAL_S)
        except asyncio.CancelledError:
            is_cancelled = True
        if closing.done():
            if not closing.cancelled():
                closing.exception()  # marks it as retrieved
            break
    if is_cancelled:
        raise asyncio.CancelledError
