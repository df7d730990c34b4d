"""Requests that meet on their way travel together: what is asked for while one is under way waits for the next."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ortoo.common.errors import Unavailable
from ortoo.common.process.background import Background

Item = TypeVar("Item")
Answer = TypeVar("Answer")


@dataclass(eq=False, slots=True)
class _Request(Generic[Item, Answer]):
    """What one task asked for."""

    item: Item
    answer: "asyncio.Future[Answer]"

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)
            self.answer.exception()  # whoever asked may have gone


class RequestBatcher(Generic[Item, Answer]):
    """The requests of one kind that the tasks of a consumer make, or several consumers.

    Whoever still waits when `background` ends is cancelled: nobody knows what became of the request.
    """

    def __init__(
        self,
        send: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]],
        background: Background,
        *,
        size_max: int,
        size_of: Callable[[Item], int] = lambda _: 1,
        under_way_max: int = 1,
        unclaimed: Callable[[Answer], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        """`send` answers several requests, at most `size_max` in size, in their order; runs in `background`.

        So many of its calls are under way at once. `unclaimed` gets an answer that nobody waits for any more.
        """
        self._send = send
        self._background = background
        self._size_max = size_max
        self._size_of = size_of
        self._under_way_max = under_way_max
        self._unclaimed = unclaimed
        self._waiting: deque[_Request[Item, Answer]] = deque()
        self._open: dict[_Request[Item, Answer], None] = {}
        self._senders: set[object] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_closed = False

    async def ask(self, item: Item) -> Answer:
        """The answer to one request. Errors: what `send` raises; Unavailable when the consumer is left meanwhile."""
        request: _Request[Item, Answer] = _Request(item, asyncio.get_running_loop().create_future())
        if self._is_closed:
            raise _left()
        self._waiting.append(request)
        self._open[request] = None
        if len(self._senders) < self._under_way_max:
            self._begin_to_send()
        try:
            return await request.answer
        except asyncio.CancelledError:
            if request.answer.done() and not request.answer.cancelled() and request.answer.exception() is None:
                self._give_to_nobody(request.answer.result())
            raise
        finally:
            self._open.pop(request, None)
            del request  # it has the error, whose traceback leads to this frame

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._senders

    async def settled(self) -> None:
        """Wait until nothing is under way."""
        await self._idle.wait()

    def close(self) -> None:
        """Whoever waits hears that the consumer was left."""
        self._is_closed = True
        self._waiting.clear()
        for request in self._open:
            request.fail(_left())

    def _begin_to_send(self) -> None:
        sender = object()
        self._senders.add(sender)
        self._idle.clear()
        task = self._background.contained("requests", self._send_waiting(sender))  # who asks in the same turn joins
        task.add_done_callback(lambda _: self._over(sender))  # it may have been cancelled before it began

    async def _send_waiting(self, sender: object) -> None:
        try:
            while self._waiting:
                await self._send_together(self._next())
        finally:
            self._over(sender)

    def _over(self, sender: object) -> None:
        if sender in self._senders:
            self._senders.remove(sender)
            if not self._senders:
                self._idle.set()
                for request in self._open:
                    request.answer.cancel()

    def _next(self) -> list[_Request[Item, Answer]]:
        together = [self._waiting.popleft()]
        size = self._size_of(together[0].item)
        while self._waiting and (size := size + self._size_of(self._waiting[0].item)) <= self._size_max:
            together.append(self._waiting.popleft())
        return together

    async def _send_together(self, together: Sequence[_Request[Item, Answer]]) -> None:
        try:
            answers = await self._send([request.item for request in together])
            assert len(answers) == len(together)
        except Exception as error:
            for request in together:
                request.fail(error)
            del together, request  # which have the error
            return
        for request, answer in zip(together, answers, strict=True):
            if request.answer.done():
                self._give_to_nobody(answer)
            else:
                request.answer.set_result(answer)

    def _give_to_nobody(self, answer: Answer) -> None:
        if self._unclaimed is not None:
            self._background.contained("unclaimed", self._unclaimed(answer))


def _left() -> Unavailable:
    return Unavailable("the consumer was left before the answer; the outcome is unknown")
