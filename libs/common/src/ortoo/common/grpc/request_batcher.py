"""Batches requests: requests that are made during a call wait, and are sent together in the next call."""

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
    """The request of one task."""

    item: Item
    answer: "asyncio.Future[Answer]"

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)
            self.answer.exception()  # read it, because the task may have ended


class RequestBatcher(Generic[Item, Answer]):
    """Sends requests of one kind together: requests that tasks make during a call are sent in the next call.

    Tasks that still wait when `background` ends are cancelled, because the outcome of their requests is unknown.
    """

    def __init__(
        self,
        send: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]],
        background: Background,
        *,
        size_max: int,
        size_of: Callable[[Item], int] = lambda _: 1,
        in_flight_max: int = 1,
        unclaimed: Callable[[Answer], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        """`send` takes a list of requests and returns their answers in the same order; it runs in `background`.

        `size_max` limits the total size of one list, and `in_flight_max` the number of calls of `send` at once.
        `unclaimed` gets answers whose tasks no longer wait.
        """
        self._send = send
        self._background = background
        self._size_max = size_max
        self._size_of = size_of
        self._in_flight_max = in_flight_max
        self._unclaimed = unclaimed
        self._waiting: deque[_Request[Item, Answer]] = deque()
        self._open: dict[_Request[Item, Answer], None] = {}
        self._senders: set[object] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_closed = False

    async def request(self, item: Item) -> Answer:
        """The answer to one request. Errors: those of `send`, and Unavailable when the consumer is closed meanwhile."""
        request: _Request[Item, Answer] = _Request(item, asyncio.get_running_loop().create_future())
        if self._is_closed:
            raise _closed_error()
        self._waiting.append(request)
        self._open[request] = None
        if len(self._senders) < self._in_flight_max:
            self._start_sender()
        try:
            return await request.answer
        except asyncio.CancelledError:
            if request.answer.done() and not request.answer.cancelled() and request.answer.exception() is None:
                self._discard_answer(request.answer.result())
            raise
        finally:
            self._open.pop(request, None)
            del request  # break a cycle: its error has a traceback with this frame

    @property
    def is_idle(self) -> bool:
        """Whether no request is in progress."""
        return not self._senders

    async def wait_until_idle(self) -> None:
        """Wait until no request is in progress."""
        await self._idle.wait()

    def close(self) -> None:
        """Fail all waiting requests with Unavailable."""
        self._is_closed = True
        self._waiting.clear()
        for request in self._open:
            request.fail(_closed_error())

    def _start_sender(self) -> None:
        sender = object()
        self._senders.add(sender)
        self._idle.clear()
        task = self._background.run_contained("requests", self._send_waiting(sender))  # requests of this turn join
        task.add_done_callback(lambda _: self._on_sender_done(sender))  # it may have been cancelled before it began

    async def _send_waiting(self, sender: object) -> None:
        try:
            while self._waiting:
                await self._send_batch(self._take_batch())
        finally:
            self._on_sender_done(sender)

    def _on_sender_done(self, sender: object) -> None:
        if sender in self._senders:
            self._senders.remove(sender)
            if not self._senders:
                self._idle.set()
                for request in self._open:
                    request.answer.cancel()

    def _take_batch(self) -> list[_Request[Item, Answer]]:
        together = [self._waiting.popleft()]
        size = self._size_of(together[0].item)
        while self._waiting and (size := size + self._size_of(self._waiting[0].item)) <= self._size_max:
            together.append(self._waiting.popleft())
        return together

    async def _send_batch(self, together: Sequence[_Request[Item, Answer]]) -> None:
        try:
            answers = await self._send([request.item for request in together])
            assert len(answers) == len(together)
        except Exception as error:
            for request in together:
                request.fail(error)
            del together, request  # they refer to the error
            return
        for request, answer in zip(together, answers, strict=True):
            if request.answer.done():
                self._discard_answer(answer)
            else:
                request.answer.set_result(answer)

    def _discard_answer(self, answer: Answer) -> None:
        if self._unclaimed is not None:
            self._background.run_contained("unclaimed", self._unclaimed(answer))


def _closed_error() -> Unavailable:
    return Unavailable("the consumer was closed before the answer; the outcome is unknown")
