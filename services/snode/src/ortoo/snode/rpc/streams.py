"""Long-lived calls: their end when the snode stops, their first request, and the memory of their requests."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeVar

from ortoo.common.errors import Invalid, Unavailable
from ortoo.common.grpc.layers.call_memory import open_call_share
from ortoo.common.process.memory_budget import MemoryBudget, MemoryShare

MEMORY_FACTOR = 16
"""Approximate factor from the wire bytes of a request to its memory: names of queues and topics, start offsets."""
Q = TypeVar("Q", bound=Any)


class LongCalls:
    """The tasks of all open calls that may last long."""

    def __init__(self, memory: MemoryBudget) -> None:
        """The memory of the calls is drawn from `memory`."""
        self._memory = memory
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ended = False

    @contextlib.contextmanager
    def track(self) -> Iterator[MemoryShare]:
        """Register the current call during the block, so that `end_all` ends it; yields its memory share."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            yield open_call_share(self._memory, "long calls")
        except asyncio.CancelledError:
            if not self._ended:
                raise
            # A cancelled handler sends no status at all, but the client needs one.
            task.uncancel()
            raise Unavailable("this snode is stopping; continue at another snode") from None
        finally:
            self._tasks.discard(task)

    def end_all(self) -> None:
        """End all registered calls with an error by which clients use another snode."""
        self._ended = True
        for task in self._tasks:
            task.cancel()


async def first_request(requests: AsyncIterator[Q], event: str, description: str) -> Q:
    """Read the first request of a stream, which must be an `event` request.

    Errors: Invalid otherwise, with the text "the first request of" and `description`.
    """
    async for request in requests:
        if request.WhichOneof("event") == event:
            return request
        break
    raise Invalid(f"the first request of {description}", field=event)


class RequestMemory:
    """Counts the memory that the last requests of a call occupy, one for each name."""

    def __init__(self, memory: MemoryShare) -> None:
        """`memory` is the call's share, which is released when the call ends."""
        self._memory = memory
        self._bytes: dict[str, int] = {}

    def __getitem__(self, name: str) -> int:
        """The wire bytes of the request with this name."""
        return self._bytes.get(name, 0)

    def set_size(self, name: str, wire_bytes: int) -> None:
        """Replace the counted size of the request `name`. Errors: Overloaded. After an error, the size is unchanged."""
        if (more_bytes := MEMORY_FACTOR * (wire_bytes - self[name])) > 0:
            self._memory.draw_fixed(more_bytes)
        else:
            self._memory.release_fixed(-more_bytes)
        self._bytes[name] = wire_bytes
        if not wire_bytes:
            del self._bytes[name]
