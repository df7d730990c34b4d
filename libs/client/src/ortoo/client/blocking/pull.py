"""The pull consumer for programs without an event loop."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from ortoo.client.blocking.handler_threads import HandlerThreads, in_threads
from ortoo.client.blocking.loop_thread import LoopThread
from ortoo.client.core.filters import Filter, Topics
from ortoo.client.core.place import Queue
from ortoo.client.core.received import ReceivedBatch, ReceivedMessage
from ortoo.client.pull.consumer import PullConsumer as AsyncPullConsumer
from ortoo.client.pull.handling import Handling
from ortoo.client.pull.handling_in_order import CommitVerdict
from ortoo.client.pull.pulling import Pulled

T = TypeVar("T")
Handler = Callable[[ReceivedMessage], None]
OrderedHandler = Callable[[ReceivedMessage], CommitVerdict | None]
BatchHandler = Callable[[Sequence[ReceivedMessage]], int | None]


class PullConsumer:
    """A member of a group that pulls; see `ortoo.client.PullConsumer`. Acknowledge with `ack` of this object."""

    def __init__(self, thread: LoopThread, consumer: AsyncPullConsumer) -> None:
        """`Client.pull_consumer` is the way in."""
        self._thread = thread
        self._consumer = consumer
        self._handlers = HandlerThreads(thread)

    @property
    def queues(self) -> tuple[Queue, ...]:
        """The queues this consumer has now, sorted."""
        return self._inside(lambda: self._consumer.queues)

    def assign(self, queues: Iterable[Queue]) -> None:
        """Have exactly these queues from now on."""
        self._inside(lambda: self._consumer.assign(queues))

    def subscribe(self, topics: Topics) -> None:
        """Want these topics from now on."""
        self._inside(lambda: self._consumer.subscribe(topics))

    def suspend(self, *queues: Queue) -> None:
        """Take nothing from these queues, or from any when none is named."""
        self._inside(lambda: self._consumer.suspend(*queues))

    def resume(self, *queues: Queue) -> None:
        """Go on with these queues, or with everything when none is named."""
        self._inside(lambda: self._consumer.resume(*queues))

    def poll(self, timeout_ms: float | None = None) -> ReceivedBatch | None:
        """The next batch; None when there is none for so long."""
        return self._thread.wait(self._consumer.poll(timeout_ms))

    def batches(self) -> Iterator[ReceivedBatch]:
        """Whole batches, in order within each queue."""
        return self._thread.iterate(self._consumer.batches())

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Messages, in order within each queue."""
        for batch in self.batches():
            yield from batch

    def ack(self, received: ReceivedMessage | ReceivedBatch) -> None:
        """A message, or a whole batch, is processed."""
        self._thread.soon(received.ack)

    def run(self, handler: Handler, handling: Handling | None = None) -> None:
        """Give each message to `handler`, in many threads, and acknowledge it when it returns; until `stop`."""
        chosen = handling or Handling()
        self._handlers.run(chosen.concurrency, lambda pool: self._consumer.run(in_threads(pool, handler), chosen))

    def run_batches(self, handler: BatchHandler, handling: Handling) -> None:
        """As `run`, with several messages of a queue at once; the handler returns how many are processed."""
        self._handlers.run(
            handling.concurrency, lambda pool: self._consumer.run_batches(in_threads(pool, handler), handling)
        )

    def run_in_order(self, handler: OrderedHandler, handling: Handling | None = None) -> None:
        """Give the messages of each queue to `handler` one after another, in threads; until `stop`."""
        chosen = handling or Handling()
        self._handlers.run(
            chosen.concurrency, lambda pool: self._consumer.run_in_order(in_threads(pool, handler), chosen)
        )

    def stop(self) -> None:
        """Let `run` return; call it from another thread, or from a handler."""
        self._handlers.stop()

    def position(self, queue: Queue) -> int:
        """The next offset that will be pulled."""
        return self._inside(lambda: self._consumer.position(queue))

    def seek(self, queue: Queue, offset: int) -> None:
        """Go on at another offset, forward or back."""
        self._inside(lambda: self._consumer.seek(queue, offset))

    def seek_to_begin(self, queue: Queue) -> None:
        """Go on at the first offset that is still stored."""
        self._thread.wait(self._consumer.seek_to_begin(queue))

    def seek_to_end(self, queue: Queue) -> None:
        """Go on with what comes from now on."""
        self._thread.wait(self._consumer.seek_to_end(queue))

    def search(self, queue: Queue, time_ms: int) -> int:
        """The first offset stored at or after a time."""
        return self._thread.wait(self._consumer.search(queue, time_ms))

    def commit(self) -> None:
        """Store now how far each queue is processed."""
        self._thread.wait(self._consumer.commit())

    def committed(self, queue: Queue) -> int | None:
        """What the group has stored for a queue; None if nothing."""
        return self._thread.wait(self._consumer.committed(queue))

    def pull(
        self, queue: Queue, offset: int, *, messages_max: int = 32, wait_ms: float = 0.0, wanted: Filter = "*"
    ) -> Pulled:
        """Pull once and say what came, as the server said it."""
        return self._thread.wait(
            self._consumer.pull(queue, offset, messages_max=messages_max, wait_ms=wait_ms, wanted=wanted)
        )

    def _inside(self, work: Callable[[], T]) -> T:
        async def do() -> T:
            return work()

        return self._thread.wait(do())
