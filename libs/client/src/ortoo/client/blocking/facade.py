"""Makes the blocking classes from the asynchronous classes, with one line for each method.

    class BlockingProducer(BlockingFacade[ortoo.client.Producer]):
        send = blocking(ortoo.client.Producer.send)

Each method keeps the name, arguments and docstring of the asynchronous method, also for type checkers.
"""

import copy
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from ortoo.client.blocking.loop_thread import LoopThread, OpenContext
from ortoo.client.core.closed import CLOSE_TIMEOUT_S

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
T = TypeVar("T")
F = TypeVar("F")
Open = TypeVar("Open", bound="ClosableFacade[Any]")
P = ParamSpec("P")


class BlockingFacade(Generic[A_co]):
    """A blocking interface to an object of the asynchronous client. Calls may come from any thread."""

    def __init__(self, thread: LoopThread, wrapped: A_co) -> None:
        """Applications get blocking objects from `connect` or from the methods of `Client`."""
        self._thread = thread
        self._wrapped = wrapped
        self._timeout_s: float | None = None

    def with_timeout(self, seconds: float) -> Self:
        """A copy of this object whose calls are cancelled after `seconds` and then raise TimeoutError.

        The server may still have completed a cancelled operation.
        """
        limited = copy.copy(self)
        limited._timeout_s = seconds
        return limited


class ClosableFacade(BlockingFacade[A_co]):
    """An object with a life cycle: close it or use it as a `with` block. Closing its client closes it too."""

    _context: "OpenContext[Any]"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close(error)

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Close the object gracefully, as the end of a `with` block does. A second call does nothing.

        Errors: TimeoutError after `timeout_s`; it is closed then, too. Otherwise as at the end of a block.
        """
        self._close(None, timeout_s)

    def _close(self, error: BaseException | None, timeout_s: float | None = None) -> None:
        self._context.close(error, timeout_s)


def blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[BlockingFacade[A], P], T]:
    """Make a blocking method from a coroutine method."""

    @wraps(method)
    def call(facade: BlockingFacade[A], /, *arguments: P.args, **options: P.kwargs) -> T:
        return facade._thread.run(method(facade._wrapped, *arguments, **options), facade._timeout_s)

    return call


def on_loop(method: Callable[Concatenate[A, P], T]) -> Callable[Concatenate[BlockingFacade[A], P], T]:
    """Make a blocking method from a plain method that must run on the loop."""

    @wraps(method)
    def call(facade: BlockingFacade[A], /, *arguments: P.args, **options: P.kwargs) -> T:
        return facade._thread.call(lambda: method(facade._wrapped, *arguments, **options))

    return call


def iterating(
    method: Callable[Concatenate[A, P], AsyncIterator[T]],
) -> Callable[Concatenate[BlockingFacade[A], P], Iterator[T]]:
    """Make a method that returns an iterator from a method that returns an async iterator."""

    @wraps(method)
    def call(facade: BlockingFacade[A], /, *arguments: P.args, **options: P.kwargs) -> Iterator[T]:
        return facade._thread.iterate(method(facade._wrapped, *arguments, **options), timeout_s=facade._timeout_s)

    return call


def opening(
    method: Callable[Concatenate[A, P], AbstractAsyncContextManager[T]], kind: Callable[[LoopThread, T], Open]
) -> Callable[Concatenate[BlockingFacade[A], P], Open]:
    """Make a method that enters the async context manager of `method` and returns a facade of this `kind`."""

    @wraps(method)
    def call(facade: BlockingFacade[A], /, *arguments: P.args, **options: P.kwargs) -> Open:
        opened = facade._thread.open(method(facade._wrapped, *arguments, **options))
        opened_facade = kind(facade._thread, opened.value)
        opened_facade._context = opened
        return opened_facade

    return call


def entering(
    method: Callable[Concatenate[A, P], AbstractAsyncContextManager[T]], kind: Callable[[LoopThread, T], F]
) -> Callable[Concatenate[BlockingFacade[A], P], AbstractContextManager[F]]:
    """Make a method that returns a `with` block's context manager, which yields a facade of this `kind`."""

    @wraps(method)
    @contextmanager
    def call(facade: BlockingFacade[A], /, *arguments: P.args, **options: P.kwargs) -> Iterator[F]:
        with facade._thread.enter_context(method(facade._wrapped, *arguments, **options)) as entered:
            yield kind(facade._thread, entered)

    return call
