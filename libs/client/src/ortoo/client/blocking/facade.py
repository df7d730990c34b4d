"""How a class for programs without an event loop is made of an asynchronous one: one line a method.

    class Producer(Facade[AsyncProducer]):
        send = blocking(AsyncProducer.send)

Each keeps the name, the arguments and the docstring of the asynchronous method, for people and for type checkers alike.
"""

import copy
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from ortoo.client.blocking.loop_thread import LoopThread, Opened

A = TypeVar("A")
T = TypeVar("T")
F = TypeVar("F")
Open = TypeVar("Open", bound="OpenFacade[Any]")
P = ParamSpec("P")


class Facade(Generic[A]):
    """Something of the asynchronous client, and the thread whose loop it lives on. Calls may come from any thread."""

    def __init__(self, thread: LoopThread, behind: A) -> None:
        """`connect` is the way in."""
        self._thread = thread
        self._behind = behind
        self._limit_s: float | None = None

    def within(self, seconds: float) -> Self:
        """The same, with a limit: each of its calls raises TimeoutError when it takes longer, and is called off.

        What the call asked for may have happened all the same.
        """
        limited = copy.copy(self)
        limited._limit_s = seconds
        return limited


class OpenFacade(Facade[A]):
    """What is open from the beginning: close it, or use it as a `with` block; closed with its client at the latest."""

    _opened: "Opened[Any]"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(error)

    def close(self) -> None:
        """End it in good order, as the end of a `with` block does; doing it again does nothing."""
        self._end(None)

    def _end(self, error: BaseException | None) -> None:
        self._opened.close(error)


def blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Facade[A], P], T]:
    """A coroutine method as one that returns when it is done."""

    @wraps(method)
    def call(facade: Facade[A], /, *arguments: P.args, **options: P.kwargs) -> T:
        return facade._thread.wait(method(facade._behind, *arguments, **options), facade._limit_s)

    return call


def on_loop(method: Callable[Concatenate[A, P], T]) -> Callable[Concatenate[Facade[A], P], T]:
    """A plain method, run where the others run."""

    @wraps(method)
    def call(facade: Facade[A], /, *arguments: P.args, **options: P.kwargs) -> T:
        return facade._thread.call(lambda: method(facade._behind, *arguments, **options))

    return call


def iterating(
    method: Callable[Concatenate[A, P], AsyncIterator[T]],
) -> Callable[Concatenate[Facade[A], P], Iterator[T]]:
    """A method that gives an async iterator as one that gives an iterator."""

    @wraps(method)
    def call(facade: Facade[A], /, *arguments: P.args, **options: P.kwargs) -> Iterator[T]:
        return facade._thread.iterate(method(facade._behind, *arguments, **options), limit_s=facade._limit_s)

    return call


def opening(
    method: Callable[Concatenate[A, P], AbstractAsyncContextManager[T]], kind: Callable[[LoopThread, T], Open]
) -> Callable[Concatenate[Facade[A], P], Open]:
    """A method that gives an async context manager as one that enters it and gives a facade of this `kind`."""

    @wraps(method)
    def call(facade: Facade[A], /, *arguments: P.args, **options: P.kwargs) -> Open:
        opened = facade._thread.open(method(facade._behind, *arguments, **options))
        made = kind(facade._thread, opened.value)
        made._opened = opened
        return made

    return call


def entering(
    method: Callable[Concatenate[A, P], AbstractAsyncContextManager[T]], kind: Callable[[LoopThread, T], F]
) -> Callable[Concatenate[Facade[A], P], AbstractContextManager[F]]:
    """A method that gives an async context manager as one for `with`, which gives a facade of this `kind`."""

    @wraps(method)
    @contextmanager
    def call(facade: Facade[A], /, *arguments: P.args, **options: P.kwargs) -> Iterator[F]:
        with facade._thread.inside(method(facade._behind, *arguments, **options)) as entered:
            yield kind(facade._thread, entered)

    return call
