"""Calls that go on for ever, so that a stop can end them."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

from ortoo.common.errors import Unavailable


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
