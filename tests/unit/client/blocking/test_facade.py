"""Blocking classes that are derived from asynchronous ones."""

import inspect
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import assert_type

import pytest

from ortoo.client import Conflict, Invalid
from ortoo.client.blocking.facade import BlockingFacade, blocking, entering, iterating, on_loop
from ortoo.client.blocking.loop_thread import LoopThread


class Counter:
    """An asynchronous object that records its thread."""

    def __init__(self) -> None:
        self.thread: threading.Thread | None = None
        self.is_open = False

    async def add(self, number: int, *, twice: bool = False) -> str:
        """Add a number."""
        self.thread = threading.current_thread()
        if number < 0:
            raise Invalid("negative", field="number")
        return str(number * 2 if twice else number)

    def where(self) -> str:
        """The name of the thread that runs this."""
        return threading.current_thread().name

    async def count(self, end: int) -> AsyncIterator[int]:
        """The numbers below `end`."""
        for number in range(end):
            yield number

    @asynccontextmanager
    async def opened(self, end: int) -> AsyncIterator["Counter"]:
        """Itself, while it is open."""
        assert end
        self.is_open = True
        try:
            yield self
        finally:
            self.is_open = False


class BlockingCounter(BlockingFacade[Counter]):
    add = blocking(Counter.add)
    where = on_loop(Counter.where)
    count = iterating(Counter.count)


class BlockingHouse(BlockingFacade[Counter]):
    opened = entering(Counter.opened, BlockingCounter)


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    made = LoopThread()
    yield made
    made.close()


def test_a_coroutine_method_returns_its_result_or_raises_its_error(thread: LoopThread) -> None:
    """Arguments, result, error and types are those of the method, which runs on the loop's thread."""
    counter = Counter()
    facade = BlockingCounter(thread, counter)
    assert assert_type(facade.add(3, twice=True), str) == "6"
    assert counter.thread is not threading.current_thread()
    with pytest.raises(Invalid, match="negative"):
        facade.add(-1)


def test_a_plain_method_runs_on_the_loop_whoever_calls(thread: LoopThread) -> None:
    """It also runs when called on the loop, where a coroutine's result could not be awaited."""
    facade = BlockingCounter(thread, Counter())
    assert assert_type(facade.where(), str) == "ortoo-client"

    async def from_the_loop() -> str:
        with pytest.raises(Conflict, match="own loop"):
            facade.add(1)
        return facade.where()

    assert thread.run(from_the_loop()) == "ortoo-client"


def test_iterators_and_blocks_are_derived_too(thread: LoopThread) -> None:
    """A block gives the facade of the entered object and leaves it, also after an error."""
    counter = Counter()
    with pytest.raises(ZeroDivisionError), BlockingHouse(thread, counter).opened(3) as opened:
        assert counter.is_open
        assert list(assert_type(opened.count(3), Iterator[int])) == [0, 1, 2]
        raise ZeroDivisionError
    assert not counter.is_open


def test_a_derived_method_looks_like_the_one_it_is_made_of() -> None:
    """Name, docstring and arguments, for `help` and editors."""
    assert BlockingCounter.add.__doc__ == "Add a number."
    assert list(inspect.signature(BlockingCounter.add).parameters) == ["self", "number", "twice"]
    assert not inspect.iscoroutinefunction(BlockingCounter.add)
