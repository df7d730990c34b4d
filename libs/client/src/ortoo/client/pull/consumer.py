"""The pull consumer: a group member that pulls messages from queues that it has locked."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Self

from ortoo.client.core.closed import ConsumerClosed, Openable
from ortoo.client.core.connection import Connection
from ortoo.client.core.filters import Filter, TopicFilters, topic_filters
from ortoo.client.core.queues import Queue
from ortoo.client.core.received import ReceivedBatch, ReceivedMessage
from ortoo.client.handling.calls import HandlerCalls
from ortoo.client.handling.runs import FINISH_TIMEOUT_S, HandlerRuns
from ortoo.client.offsets.offset_lookup import offset_ranges, search_offset
from ortoo.client.offsets.store import RemoteOffsets
from ortoo.client.pull.process_queue import ProcessQueue
from ortoo.client.pull.pull_call import PullResult, pull
from ortoo.client.pull.pull_handlers import BatchHandler, CommitVerdict, PullHandlers
from ortoo.client.pull.pull_member import PullMember
from ortoo.client.pull.settings import HandlerOptions, PullSettings
from ortoo.client.sessions.session import Session
from ortoo.common.errors import Conflict, Invalid

Handler = Callable[[ReceivedMessage], Awaitable[None] | None]
OrderedHandler = Callable[[ReceivedMessage], Awaitable[CommitVerdict | None] | CommitVerdict | None]


class PullConsumer(Openable):
    """A group member that pulls. Made by `Client.pull_consumer`; an async context manager that leaves on exit.

    With topics, the group assigns queues to it. Without topics it is not a member and has the queues given to `assign`.
    Take messages with `poll`, `batches` or `async for` and call `ack()` after processing. Alternatively,
    give messages to a handler with `run` or `run_in_order`. Only one of these methods may run at a time.
    """

    def __init__(
        self,
        connection: Connection,
        session: Session,
        group: str,
        topics: Mapping[str, Filter],
        settings: PullSettings,
    ) -> None:
        """Applications use `Client.pull_consumer`."""
        if settings.broadcast and not topics:
            raise Invalid("a broadcast consumer has no topics; expected at least one", field="topics")
        self._connection = connection
        self._group = group
        self._member = PullMember(connection, session, group, topics, settings)
        self._runs = HandlerRuns()
        self._is_consuming = False

    async def __aenter__(self) -> Self:
        self._check_first_entry()
        await self._member.join()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._member.leave()

    # queues

    @property
    def queues(self) -> tuple[Queue, ...]:
        """The queues that are assigned to this consumer now, sorted."""
        return tuple(it.queue for it in self._member.queues)

    @property
    def lost_messages(self) -> int:
        """Number of messages that could not be read because their stored bytes are damaged."""
        return self._member.losses.message_count

    def assign(self, queues: Iterable[Queue]) -> None:
        """Set the queues of this consumer. Errors: Invalid for a group member."""
        self._member.assign(queues)

    def subscribe(self, topics: TopicFilters) -> None:
        """Change the subscribed topics; queues of other topics are released. Errors: Invalid without a group."""
        self._member.subscribe(topic_filters(topics))

    def suspend(self, *queues: Queue) -> None:
        """Stop taking messages from these queues, or from all queues if no queue is given.

        Suspended queues stay assigned.
        """
        self._member.suspend(queues)

    def resume(self, *queues: Queue) -> None:
        """Resume these queues, or all queues if no queue is given."""
        self._member.resume(queues)

    # messages

    async def poll(self, timeout_ms: float | None = None) -> ReceivedBatch | None:
        """The next batch, from each queue in turn; None if no batch arrives within `timeout_ms` (None = no limit).

        Errors: the reason why the server refused this member, or ConsumerClosed outside the `async with` block.
        """
        self._connection.check_usable()
        with self._exclusive():
            return await self._member.next_from(
                ProcessQueue.take_batch, None if timeout_ms is None else timeout_ms / 1000
            )

    async def batches(self) -> AsyncIterator[ReceivedBatch]:
        """Whole batches, in order within each queue, until the consumer has left. Errors: as `poll`."""
        self._member.check_open()
        with suppress(ConsumerClosed):
            while (batch := await self.poll()) is not None:
                yield batch

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Messages, in order within each queue."""
        async for batch in self.batches():
            for message in batch:
                yield message

    async def run(self, handler: Handler, options: HandlerOptions | None = None) -> None:
        """Give each message to `handler`, many at a time, and acknowledge it when the handler returns.

        If `handler` raises, the message is nacked; `RetryLater` sets the delay. Runs until cancelled.
        """
        options = options or HandlerOptions()
        await self._run(_single(handler, options), options)

    async def run_batches(self, handler: BatchHandler, options: HandlerOptions) -> None:
        """Give up to `options.batch_messages_max` messages of a queue to each call of `handler`; see `run`.

        `handler` returns the number of processed messages, counted from the first; None = all. The other
        messages are nacked.
        """
        await self._run(HandlerCalls(handler, threads=options.concurrency), options, takes_batches=True)

    async def run_in_order(self, handler: OrderedHandler, options: HandlerOptions | None = None) -> None:
        """Give the messages of each queue to `handler` one after another; several queues run concurrently.

        If `handler` raises, the message is retried while its queue waits; `RetryLater` sets the delay. With
        `options.manual_commit`, `handler` returns a `CommitVerdict`. Runs until cancelled.
        """
        options = options or HandlerOptions()
        await self._run(_single(handler, options), options, ordered=True)

    async def stop(self, finish_timeout_s: float = FINISH_TIMEOUT_S) -> None:
        """Begin no further handlers, wait up to `finish_timeout_s` for the running ones, and let `run` return.

        Messages of handlers that have not finished in time stay unacknowledged.
        """
        await self._runs.stop(finish_timeout_s)

    # offsets

    def position(self, queue: Queue) -> int:
        """The next offset that will be pulled. Errors: NotFound when the queue is not assigned to this consumer."""
        return self._member.owned_queue(queue).next_offset

    def seek(self, queue: Queue, offset: int) -> None:
        """Continue at `offset`, which may be earlier or later. Errors: NotFound when the queue is not assigned."""
        if offset < 0:
            raise Invalid(f"{offset}; expected 0 or more", field="offset")
        self._member.seek(queue, offset)

    async def seek_to_begin(self, queue: Queue) -> None:
        """Continue at the first offset that is still stored."""
        self.seek(queue, (await self._range(queue))[0])

    async def seek_to_end(self, queue: Queue) -> None:
        """Continue at the end of the queue."""
        self.seek(queue, (await self._range(queue))[1])

    async def search_offset(self, queue: Queue, time_ms: int) -> int:
        """The first offset stored at or after a time, or else the end of the queue."""
        return await search_offset(self._connection, queue, time_ms)

    async def commit(self) -> None:
        """Commit the processed offsets now. Without this call, they are committed every few seconds."""
        await self._member.commit()

    async def committed(self, queue: Queue) -> int | None:
        """The committed offset of the group in a queue; None if the group has committed no offset."""
        return (await RemoteOffsets(self._connection, self._group, lambda _: 0).load([queue])).get(queue)

    async def pull(
        self,
        queue: Queue,
        offset: int,
        *,
        messages_max: int = 32,
        wait_ms: float = 0.0,
        filter: Filter = "*",
    ) -> PullResult:
        """Pull once and return the server's answer, without moving an offset or taking a lock.

        Errors: NotFound, Invalid, Unavailable.
        """
        return await pull(
            self._connection, self._group, queue, offset, messages_max=messages_max, wait_ms=wait_ms, filter=filter
        )

    async def _range(self, queue: Queue) -> tuple[int, int]:
        self._member.owned_queue(queue)
        return (await offset_ranges(self._connection, {queue.topic}))[queue]

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        if self._is_consuming:
            raise Conflict(
                "another task takes this consumer's messages; call poll, run or run_in_order from one task at a time"
            )
        self._is_consuming = True
        try:
            yield
        finally:
            self._is_consuming = False

    async def _run(
        self,
        calls: HandlerCalls[Sequence[ReceivedMessage], object],
        options: HandlerOptions,
        *,
        ordered: bool = False,
        takes_batches: bool = False,
    ) -> None:
        async def handle_directly(message: ReceivedMessage) -> BaseException | None:
            async with calls.ended([message]) as end:
                return end.failure

        calls.trace(self._connection.telemetry, self._member.group)
        with self._exclusive():
            self._member.set_handler(handle_directly, ordered=ordered)
            try:
                handlers = PullHandlers(self._connection, self._member, calls, options, takes_batches=takes_batches)
                await handlers.run(self._runs)
            finally:
                self._member.set_handler(None, ordered=False)


def _single(
    handler: Callable[[ReceivedMessage], object], options: HandlerOptions
) -> HandlerCalls[Sequence[ReceivedMessage], object]:
    """The calls of a handler of single messages."""
    return HandlerCalls(handler, threads=options.concurrency, argument=lambda messages: messages[0])
