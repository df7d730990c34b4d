"""Calls that go on: those that a stop must end, and how streams of requests begin and break off."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeVar

from ortoo.common.errors import Invalid, Unavailable

Q = TypeVar("Q", bound=Any)


class LongCalls:
    """The tasks of calls that follow something."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ended = False

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Count the current call among those that a stop ends."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            yield
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
