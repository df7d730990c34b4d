"""Calls that go on: those that a stop must end, how streams of requests begin, and what is kept of the requests."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeVar

from ortoo.common.errors import Invalid, Unavailable
from ortoo.common.grpc.around.call_memory import call_share
from ortoo.common.process.memory_budget import MemoryBudget, MemoryShare

KEPT_FACTOR = 16
"""What is kept of a request takes so many times its bytes, about: names of queues and topics, and where to begin."""
Q = TypeVar("Q", bound=Any)


class LongCalls:
    """The tasks of calls that follow something."""

    def __init__(self, memory: MemoryBudget) -> None:
        """What they hold for their clients is drawn from `memory`."""
        self._memory = memory
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ended = False

    @contextlib.contextmanager
    def running(self) -> Iterator[MemoryShare]:
        """Count the current call among those that a stop ends; yields what its memory is drawn from."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            yield call_share(self._memory, "long calls")
        except asyncio.CancelledError:
            if not self._ended:
                raise
            # A cancelled handler sends no status at all; the client shall know where it stands.
            task.uncancel()
            raise Unavailable("this snode stops; go on at another one") from None
        finally:
            self._tasks.discard(task)

    def end(self) -> None:
        """End them all; their clients hear it and go elsewhere."""
        self._ended = True
        for task in self._tasks:
            task.cancel()


async def first_request(requests: AsyncIterator[Q], event: str, words: str) -> Q:
    """The request that opens a stream in both directions, whose `words` say of which method what it must be.

    Errors: Invalid when the first request is no `event`.
    """
    async for request in requests:
        if request.WhichOneof("event") == event:
            return request
        break
    raise Invalid(f"the first request of {words}", field=event)


class Kept:
    """Of requests with one name the last is kept."""

    def __init__(self, memory: MemoryShare) -> None:
        """`memory` is the call's, which gives everything back at its end."""
        self._memory = memory
        self._bytes: dict[str, int] = {}

    def __getitem__(self, name: str) -> int:
        """How many bytes of the wire are kept."""
        return self._bytes.get(name, 0)

    def keep(self, name: str, wire_bytes: int) -> None:
        """So long a request is kept instead; less is never refused. Errors: Overloaded, and it is as before."""
        if (more_bytes := KEPT_FACTOR * (wire_bytes - self[name])) > 0:
            self._memory.fix(more_bytes)
        else:
            self._memory.unfix(-more_bytes)
        self._bytes[name] = wire_bytes
        if not wire_bytes:
            del self._bytes[name]
