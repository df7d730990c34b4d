"""A Python worker's way to the cluster: one connection for each list of snodes, kept as long as the process lives.

Spark reuses its workers, so the next task finds the connection open. A worker forked from one that was connected
opens its own: gRPC's threads do not survive a fork.
"""

import os
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from ortoo.client import Queue, ReceivedBatch
from ortoo.client.admin.admin import Admin
from ortoo.client.blocking.loop_thread import LoopThread
from ortoo.client.core.connection import Connection
from ortoo.client.read.fetch import fetch
from ortoo.common.process.allocator import keep_freed_buffers
from ortoo.common.process.clock import Clock, SystemClock
from ortoo.common.process.randomness import Randomness

T = TypeVar("T")

_links: dict[tuple[int, tuple[str, ...]], "Link"] = {}


def link_to(addresses: Sequence[str]) -> "Link":
    """The link of this process to the snodes at `addresses`, host:port each; opened at the first call."""
    key = (os.getpid(), tuple(addresses))
    link = _links.get(key)
    if link is None:
        for other in [other for other in _links if other[0] != key[0]]:
            del _links[other]
        keep_freed_buffers()
        link = _links[key] = Link(addresses)
    return link


class Link:
    """A connection on a thread of its own. Calls wait; they may come from any thread but that one."""

    def __init__(self, addresses: Sequence[str]) -> None:
        """Connect to whichever of `addresses` answers, when something is asked."""
        self.clock: Clock = SystemClock()
        self._thread = LoopThread()
        self.connection = Connection(addresses, clock=self.clock, randomness=Randomness())
        self.admin = Admin(self.connection)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the link's loop and wait for it."""
        return self._thread.wait(work)

    def inside(self, manager: AbstractAsyncContextManager[T]) -> Any:
        """Enter an async context manager of the link's loop in a `with` statement."""
        return self._thread.inside(manager)

    def call(self, stub: Callable[..., Any], method: str, request: Any) -> Any:
        """One unary call that may be repeated without harm. Errors: what the server answered; Unavailable."""
        return self.run(self.connection.call(stub, method, request))

    def fetch(
        self, queue: Queue, from_offset: int, to_offset: int, columns: Sequence[str] = ()
    ) -> Iterator[ReceivedBatch]:
        """Batches of one queue, with at least these columns. Errors: as `ortoo.client.read.fetch`."""
        return self._thread.iterate(fetch(self.connection, queue, from_offset, to_offset, columns=columns), ahead=True)

    def sleep(self, seconds: float) -> None:
        """Wait for so many seconds."""
        self.run(self.clock.sleep(seconds))
