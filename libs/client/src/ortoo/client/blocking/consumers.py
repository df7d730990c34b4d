"""The consumers for programs without an event loop. Acknowledge messages with the methods of the consumer."""

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from ortoo.client.blocking.facade import ClosableFacade, blocking, iterating, on_loop
from ortoo.client.blocking.loop_thread import LoopThread
from ortoo.client.core.handlers import RetryLater
from ortoo.client.core.queues import Queue
from ortoo.client.core.received import MessageFields, ReceivedBatch, ReceivedMessage
from ortoo.client.handling.calls import ENDS_PROGRAM, check_handler, check_takes_one
from ortoo.client.handling.signals import SIGNALS, stopping_signals
from ortoo.client.pop.consumer import PopConsumer as AsyncPopConsumer
from ortoo.client.pop.popped import PoppedMessage
from ortoo.client.pull.consumer import PullConsumer as AsyncPullConsumer
from ortoo.client.pull.pull_handlers import CommitVerdict
from ortoo.client.pull.settings import HandlerOptions
from ortoo.client.push.consumer import Consumer as AsyncConsumer
from ortoo.common.records.message import Message

T = TypeVar("T")
M = TypeVar("M")


class Stoppable(Protocol):
    """A consumer of the asynchronous client whose `run` ends after `stop`."""

    async def stop(self) -> None:
        """Let `run` finish its handlers and return."""


S = TypeVar("S", bound=Stoppable)


class HandlerFacade(ClosableFacade[S]):
    """A consumer whose handlers run in threads until `stop`; one run at a time."""

    def __init__(self, thread: LoopThread, wrapped: S) -> None:
        """Applications use the methods of `Client`."""
        super().__init__(thread, wrapped)
        self._run_task: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._finishing: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """End the current `run`, or else the next `run`. Call `stop` from another thread or from a handler.

        `run` waits for handlers that have not returned, and acknowledges the messages that they process.
        """
        self._thread.call_soon(self._stop)

    def reply(self, message: MessageFields, reply: Message | bytes) -> bool:
        """Reply to a request; returns whether the requester still waited. See `ReceivedMessage.reply`."""
        return self._thread.run(message.reply(reply), self._timeout_s)

    def _stop(self) -> None:
        self._is_stopped = True
        if self._run_task is not None:
            self._run_task.cancel()

    def _run(self, handler: Callable[[M], T], run: Callable[[Callable[[M], T]], Awaitable[None]]) -> None:
        """Wait for `run`, which gets the handler, until it ends or `stop` is called. Errors: as `run`.

        A KeyboardInterrupt or SystemExit of the handler stops it, and is raised here.
        """
        raised: list[BaseException] = []

        def handle(received: M) -> T:
            try:
                return handler(received)
            except ENDS_PROGRAM as error:  # it belongs to the caller's thread, not to the loop
                raised.append(error)
                self.stop()
                raise RetryLater from error

        async def until_stopped() -> None:
            self._run_task = asyncio.current_task()
            try:
                if not self._is_stopped:
                    await run(handle)
            except asyncio.CancelledError:
                if not self._is_stopped:
                    raise
            finally:
                self._run_task, self._is_stopped = None, False

        check_handler(handler, threads=1)
        check_takes_one(handler)
        with self._stopped_by_signals(raised):
            self._thread.run(until_stopped())
        if raised:
            raise raised[0]

    @contextmanager
    def _stopped_by_signals(self, raised: list[BaseException]) -> Iterator[None]:
        """Stop gracefully at SIGTERM and Ctrl-C, unless the application handles them or this is not the main thread."""
        defaults = (signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler)
        is_main = threading.current_thread() is threading.main_thread()
        if not is_main or any(signal.getsignal(number) not in defaults for number in SIGNALS):
            yield
            return

        def finish(number: int) -> None:
            raised.append(KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number))
            self._thread.call_soon(self._finish)

        with stopping_signals(finish):
            yield

    def _finish(self) -> None:
        self._is_stopped = True
        self._finishing = asyncio.get_running_loop().create_task(self._wrapped.stop())


class BlockingConsumer(HandlerFacade[AsyncConsumer]):
    """A group member; see `ortoo.client.Consumer`. Acknowledge with `ack` of this object, from any thread."""

    batches = iterating(AsyncConsumer.batches)
    subscribe = on_loop(AsyncConsumer.subscribe)
    suspend = on_loop(AsyncConsumer.suspend)
    resume = on_loop(AsyncConsumer.resume)

    @property
    def queues(self) -> tuple[Queue, ...]:
        """The queues that are assigned to this member now."""
        return self._wrapped.queues

    @property
    def lost_messages(self) -> int:
        """Number of messages that could not be delivered because their stored bytes are damaged."""
        return self._wrapped.lost_messages

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Messages, in order within each queue."""
        for batch in self.batches():
            yield from batch

    def ack(self, received: ReceivedMessage | ReceivedBatch) -> None:
        """Acknowledge a message or a whole batch as processed."""
        self._thread.call_soon(received.ack)

    def run(self, handler: Callable[[ReceivedMessage], None], *, concurrency: int = 1) -> None:
        """Call `handler` for each message, in `concurrency` threads, until `stop`.

        When `handler` returns, the message is acknowledged.
        """
        self._run(handler, lambda handle: self._wrapped.run(handle, concurrency=concurrency))


class BlockingPullConsumer(HandlerFacade[AsyncPullConsumer]):
    """A group member that pulls; see `ortoo.client.PullConsumer`. Acknowledge with `ack` of this object."""

    assign = on_loop(AsyncPullConsumer.assign)
    subscribe = on_loop(AsyncPullConsumer.subscribe)
    suspend = on_loop(AsyncPullConsumer.suspend)
    resume = on_loop(AsyncPullConsumer.resume)
    poll = blocking(AsyncPullConsumer.poll)
    batches = iterating(AsyncPullConsumer.batches)
    position = on_loop(AsyncPullConsumer.position)
    seek = on_loop(AsyncPullConsumer.seek)
    seek_to_begin = blocking(AsyncPullConsumer.seek_to_begin)
    seek_to_end = blocking(AsyncPullConsumer.seek_to_end)
    search_offset = blocking(AsyncPullConsumer.search_offset)
    commit = blocking(AsyncPullConsumer.commit)
    committed = blocking(AsyncPullConsumer.committed)
    pull = blocking(AsyncPullConsumer.pull)

    @property
    def queues(self) -> tuple[Queue, ...]:
        """The queues that are assigned to this consumer now, sorted."""
        return self._thread.call(lambda: self._wrapped.queues)

    @property
    def lost_messages(self) -> int:
        """Number of messages that could not be read because their stored bytes are damaged."""
        return self._wrapped.lost_messages

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Messages, in order within each queue."""
        for batch in self.batches():
            yield from batch

    def ack(self, received: ReceivedMessage | ReceivedBatch) -> None:
        """Acknowledge a message or a whole batch as processed."""
        self._thread.call_soon(received.ack)

    def run(self, handler: Callable[[ReceivedMessage], None], options: HandlerOptions | None = None) -> None:
        """Call `handler` for each message, in threads, until `stop`.

        When `handler` returns, the message is acknowledged.
        """
        chosen = options or HandlerOptions()
        self._run(handler, lambda handle: self._wrapped.run(handle, chosen))

    def run_batches(self, handler: Callable[[Sequence[ReceivedMessage]], int | None], options: HandlerOptions) -> None:
        """Call `handler` for several messages of a queue at once, in threads, until `stop`.

        `handler` returns the number of processed messages, counted from the first; None = all.
        """
        self._run(handler, lambda handle: self._wrapped.run_batches(handle, options))

    def run_in_order(
        self, handler: Callable[[ReceivedMessage], CommitVerdict | None], options: HandlerOptions | None = None
    ) -> None:
        """Give the messages of each queue to `handler` one after another, in threads, until `stop`."""
        chosen = options or HandlerOptions()
        self._run(handler, lambda handle: self._wrapped.run_in_order(handle, chosen))


class BlockingPopConsumer(HandlerFacade[AsyncPopConsumer]):
    """A worker of a group; see `ortoo.client.PopConsumer`. Acknowledge messages with the methods of this object."""

    pop = blocking(AsyncPopConsumer.pop)

    def __iter__(self) -> Iterator[PoppedMessage]:
        """Messages as they arrive; never ends."""
        while True:
            yield from self.pop()

    def run(self, handler: Callable[[PoppedMessage], None], *, concurrency: int = 1) -> None:
        """Call `handler` for each message, in `concurrency` threads, until `stop`.

        When `handler` returns, the message is acknowledged.
        """
        self._run(handler, lambda handle: self._wrapped.run(handle, concurrency=concurrency))

    def run_batches(
        self,
        handler: Callable[[Sequence[PoppedMessage]], None],
        *,
        batch_messages_max: int = 32,
        concurrency: int = 1,
    ) -> None:
        """Call `handler` for up to `batch_messages_max` messages at once, in `concurrency` threads, until `stop`.

        See `ortoo.client.PopConsumer.run_batches`.
        """
        self._run(
            handler,
            lambda handle: self._wrapped.run_batches(
                handle, batch_messages_max=batch_messages_max, concurrency=concurrency
            ),
        )

    def ack(self, message: PoppedMessage) -> None:
        """Acknowledge a message as processed."""
        self._thread.run(message.ack(), self._timeout_s)

    def nack(
        self, message: PoppedMessage, delay_ms: float | None = None, *, count_attempt: bool = True, error: str = ""
    ) -> None:
        """Let a message be delivered again after a failed attempt; see `PoppedMessage.nack`."""
        self._thread.run(message.nack(delay_ms, count_attempt=count_attempt, error=error), self._timeout_s)

    def park(self, message: PoppedMessage, error: str = "") -> None:
        """Put a message into the dead-letter topic."""
        self._thread.run(message.park(error), self._timeout_s)
