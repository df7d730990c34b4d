"""The client for programs without an event loop: the same calls, each returning when it is done.

    with connect("localhost:8081") as mq:
        with mq.producer("orders") as producer:
            receipt = producer.send(Message(b"hello"))
        with mq.consumer("billing", "orders") as consumer:
            for message in consumer:
                consumer.ack(message)

One thread runs the event loop of each connection; calls may come from any thread. Leaving the block ends the thread.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from ortoo.client import app as asynchronous
from ortoo.client.blocking.admin import Admin
from ortoo.client.blocking.groups import GroupAdmin
from ortoo.client.blocking.handler_threads import HandlerThreads, in_threads
from ortoo.client.blocking.loop_thread import LoopThread
from ortoo.client.blocking.pull import PullConsumer
from ortoo.client.core.filters import Filter, Topics
from ortoo.client.core.place import Queue, Receipt
from ortoo.client.core.received import ReceivedBatch, ReceivedMessage
from ortoo.client.pop.consumer import PopConsumer as AsyncPopConsumer
from ortoo.client.pop.consumer import PopSettings
from ortoo.client.pop.popped import PoppedMessage
from ortoo.client.produce.producer import Producer as AsyncProducer
from ortoo.client.produce.producer import ProducerSettings
from ortoo.client.produce.transactions import Transaction as AsyncTransaction
from ortoo.client.produce.transactions import TransactionalProducer as AsyncTransactionalProducer
from ortoo.client.produce.transactions import TransactionCheck, Verdict
from ortoo.client.pull.settings import PullSettings
from ortoo.client.push.consumer import Consumer as AsyncConsumer
from ortoo.client.push.consumer import ConsumerSettings
from ortoo.common.records.message import Message

__all__ = [
    "Admin",
    "Client",
    "Consumer",
    "GroupAdmin",
    "PopConsumer",
    "Producer",
    "PullConsumer",
    "Transaction",
    "TransactionalProducer",
    "connect",
]


class Producer:
    """Sends messages to one topic; see `ortoo.client.Producer`."""

    def __init__(self, thread: LoopThread, producer: AsyncProducer) -> None:
        """`Client.producer` is the way in."""
        self._thread = thread
        self._producer = producer

    def send(self, message: Message | bytes) -> Receipt:
        """Send one message and wait until it is stored."""
        return self._thread.wait(self._producer.send(message))

    def send_once(self, message: Message | bytes, dedup_id: str) -> Receipt:
        """Send a message that is stored once, however often one with this id is sent within the window."""
        return self._thread.wait(self._producer.send_once(message, dedup_id))

    def send_many(self, messages: Iterable[Message | bytes]) -> list[Receipt]:
        """Send many messages and wait until all are stored. Errors: the first failure; the others may be stored."""
        taken = list(messages)

        async def send() -> list[Receipt]:
            return await (await self._producer.send_many(taken))

        return self._thread.wait(send())

    def flush(self) -> None:
        """Wait until every message taken so far has its outcome."""
        self._thread.wait(self._producer.flush())


class Transaction:
    """Messages that wait for a verdict; see `ortoo.client.Transaction`."""

    def __init__(self, thread: LoopThread, begun: AsyncTransaction) -> None:
        """`TransactionalProducer.begin` is the way in."""
        self.transaction_id, self.message_ids, self.queue = begun.transaction_id, begun.message_ids, begun.queue
        self._thread = thread
        self._begun = begun

    def commit(self) -> None:
        """Have the messages delivered; when this returns it is final."""
        self._thread.wait(self._begun.commit())

    def roll_back(self) -> None:
        """Have the messages forgotten."""
        self._thread.wait(self._begun.roll_back())


class TransactionalProducer:
    """Begins transactions in one topic; see `ortoo.client.TransactionalProducer`."""

    def __init__(self, thread: LoopThread, producer: AsyncTransactionalProducer) -> None:
        """`Client.transactional_producer` is the way in."""
        self._thread = thread
        self._producer = producer

    @property
    def known(self) -> bool:
        """Whether the server knows this producer and may ask it."""
        return self._producer.known.is_set()

    def begin(self, *messages: Message, check_after_ms: int = 0) -> Transaction:
        """Store messages that nobody sees before `commit`."""
        begun = self._thread.wait(self._producer.begin(*messages, check_after_ms=check_after_ms))
        return Transaction(self._thread, begun)

    @contextmanager
    def transaction(self, *messages: Message, check_after_ms: int = 0) -> Iterator[Transaction]:
        """Begin; commit at the end of the block, or roll back when it raises."""
        with self._thread.inside(self._producer.transaction(*messages, check_after_ms=check_after_ms)) as begun:
            yield Transaction(self._thread, begun)


class Consumer:
    """A member of a group; see `ortoo.client.Consumer`. Acknowledge with `ack` of this object, from any thread."""

    def __init__(self, thread: LoopThread, consumer: AsyncConsumer) -> None:
        """`Client.consumer` is the way in."""
        self._thread = thread
        self._consumer = consumer
        self._handlers = HandlerThreads(thread)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Messages, in order within each queue."""
        for batch in self.batches():
            yield from batch

    @property
    def queues(self) -> tuple[Queue, ...]:
        """The queues this member has now."""
        return self._consumer.queues

    @property
    def lost_messages(self) -> int:
        """How many messages could not be delivered because they are damaged where they are stored."""
        return self._consumer.lost_messages

    def batches(self) -> Iterator[ReceivedBatch]:
        """Whole batches, in order within each queue."""
        return self._thread.iterate(self._consumer.batches())

    def subscribe(self, topics: Topics) -> None:
        """Want these topics from now on."""
        self._thread.soon(self._consumer.subscribe, topics)

    def suspend(self, *queues: Queue) -> None:
        """Take nothing from these queues from their next batch on, or nothing at all when none is named."""
        self._thread.soon(self._consumer.suspend, *queues)

    def resume(self, *queues: Queue) -> None:
        """Go on with these queues, or with everything when none is named."""
        self._thread.soon(self._consumer.resume, *queues)

    def ack(self, received: ReceivedMessage | ReceivedBatch) -> None:
        """A message, or a whole batch, is processed."""
        self._thread.soon(received.ack)

    def run(self, handler: Callable[[ReceivedMessage], None], *, concurrency: int = 1) -> None:
        """Give each message to `handler`, in so many threads, and acknowledge it when it returns; until `stop`."""
        self._handlers.run(
            concurrency, lambda pool: self._consumer.run(in_threads(pool, handler), concurrency=concurrency)
        )

    def stop(self) -> None:
        """Let `run` return; call it from another thread, or from a handler."""
        self._handlers.stop()


class PopConsumer:
    """A worker of a group; see `ortoo.client.PopConsumer`. Settle messages with the methods of this object."""

    def __init__(self, thread: LoopThread, consumer: AsyncPopConsumer) -> None:
        """`Client.pop_consumer` is the way in."""
        self._thread = thread
        self._consumer = consumer
        self._handlers = HandlerThreads(thread)

    def __iter__(self) -> Iterator[PoppedMessage]:
        """Messages as they come, for ever."""
        while True:
            yield from self.pop()

    def pop(self, messages_max: int = 0, wait_ms: float | None = None) -> list[PoppedMessage]:
        """Take messages, waiting for the first; empty when none came in time."""
        return self._thread.wait(self._consumer.pop(messages_max, wait_ms))

    def run(self, handler: Callable[[PoppedMessage], None], *, concurrency: int = 1) -> None:
        """Give each message to `handler`, in so many threads, and acknowledge it when it returns; until `stop`."""
        self._handlers.run(
            concurrency, lambda pool: self._consumer.run(in_threads(pool, handler), concurrency=concurrency)
        )

    def stop(self) -> None:
        """Let `run` return; call it from another thread, or from a handler."""
        self._handlers.stop()

    def ack(self, message: PoppedMessage) -> None:
        """A message is processed."""
        self._thread.wait(message.ack())

    def give_back(
        self, message: PoppedMessage, delay_ms: float | None = None, *, counts: bool = True, error: str = ""
    ) -> None:
        """A message shall come again."""
        self._thread.wait(message.give_back(delay_ms, counts=counts, error=error))

    def park(self, message: PoppedMessage, error: str = "") -> None:
        """Put a message into the dead-letter topic."""
        self._thread.wait(message.park(error))


class Client:
    """What an application has of a cluster. Made by `connect`."""

    def __init__(self, thread: LoopThread, client: asynchronous.Client) -> None:
        """`connect` is the way in."""
        self.admin = Admin(thread, client.admin)
        """What operators do."""
        self._thread = thread
        self._client = client

    @contextmanager
    def producer(self, topic: str, settings: ProducerSettings | None = None) -> Iterator[Producer]:
        """A producer for one topic; leaving the block flushes it."""
        with self._thread.inside(self._client.producer(topic, settings)) as producer:
            yield Producer(self._thread, producer)

    @contextmanager
    def transactional_producer(
        self, topic: str, group: str, checker: Callable[[TransactionCheck], Verdict]
    ) -> Iterator[TransactionalProducer]:
        """A producer whose messages wait for a verdict; `checker` runs on a thread of its own."""

        async def check(question: TransactionCheck) -> Verdict:
            return await asyncio.to_thread(checker, question)

        with self._thread.inside(self._client.transactional_producer(topic, group, check)) as producer:
            yield TransactionalProducer(self._thread, producer)

    @contextmanager
    def consumer(self, group: str, topics: Topics, settings: ConsumerSettings | None = None) -> Iterator[Consumer]:
        """A member of `group`; leaving the block acknowledges and leaves the group."""
        with self._thread.inside(self._client.consumer(group, topics, settings)) as consumer:
            yield Consumer(self._thread, consumer)

    @contextmanager
    def pop_consumer(
        self, group: str, topic: str, wanted: Filter = "*", settings: PopSettings | None = None
    ) -> Iterator[PopConsumer]:
        """A worker of `group`; leaving the block gives back what is not settled."""
        with self._thread.inside(self._client.pop_consumer(group, topic, wanted, settings)) as consumer:
            yield PopConsumer(self._thread, consumer)

    def recall(self, recall_handle: str) -> None:
        """Forget a delayed message, by the handle in its receipt."""
        self._thread.wait(self._client.recall(recall_handle))

    @contextmanager
    def pull_consumer(
        self, group: str, topics: Topics | None = None, settings: PullSettings | None = None
    ) -> Iterator[PullConsumer]:
        """A member of `group` that pulls; leaving the block stores its offsets and leaves the group."""
        with self._thread.inside(self._client.pull_consumer(group, topics, settings)) as consumer:
            yield PullConsumer(self._thread, consumer)

    def fetch(
        self, queue: Queue, from_offset: int = 0, to_offset: int = 0, *, follow: bool = False, wanted: Filter = "*"
    ) -> Iterator[ReceivedBatch]:
        """Batches of one queue, read outside any group."""
        return self._thread.iterate(self._client.fetch(queue, from_offset, to_offset, follow=follow, wanted=wanted))


@contextmanager
def connect(
    addresses: str | Sequence[str] = "localhost:8081",
    *,
    client_id: str = "",
    room: str = "",
    access_key: str = "",
    secret_key: str = "",
) -> Iterator[Client]:
    """Connect to a cluster through one or more snodes, host:port each; see `ortoo.client.connect`."""
    thread = LoopThread()
    try:
        connecting = asynchronous.connect(
            addresses, client_id=client_id, room=room, access_key=access_key, secret_key=secret_key
        )
        with thread.inside(connecting) as client:
            yield Client(thread, client)
    finally:
        thread.close()
