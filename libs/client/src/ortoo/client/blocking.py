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

from ortoo.client import client as asynchronous
from ortoo.client.admin import Admin as AsyncAdmin
from ortoo.client.blocking_groups import GroupAdmin
from ortoo.client.blocking_pull import PullConsumer
from ortoo.client.consumer import Consumer as AsyncConsumer
from ortoo.client.consumer import ConsumerSettings
from ortoo.client.descriptions import (
    ClusterInfo,
    DelayedMessage,
    FoundMessages,
    GroupInfo,
    GroupLag,
    OpenTransaction,
    StoredMessage,
    TopicDescription,
    TopicInfo,
)
from ortoo.client.filters import Filter, Topics
from ortoo.client.handler_threads import HandlerThreads, in_threads
from ortoo.client.loop_thread import LoopThread
from ortoo.client.place import Queue, Receipt
from ortoo.client.pop_consumer import PopConsumer as AsyncPopConsumer
from ortoo.client.pop_consumer import PopSettings
from ortoo.client.popped import PoppedMessage
from ortoo.client.producer import Producer as AsyncProducer
from ortoo.client.producer import ProducerSettings
from ortoo.client.pull_settings import PullSettings
from ortoo.client.received import ReceivedBatch, ReceivedMessage
from ortoo.client.transactions import Transaction as AsyncTransaction
from ortoo.client.transactions import TransactionalProducer as AsyncTransactionalProducer
from ortoo.client.transactions import TransactionCheck, Verdict
from ortoo.common.message import Message

__all__ = ["Admin", "Client", "Consumer", "GroupAdmin", "Producer", "PullConsumer", "TransactionalProducer", "connect"]


class Producer:
    """Sends messages to one topic; see `ortoo.client.Producer`."""

    def __init__(self, thread: LoopThread, producer: AsyncProducer) -> None:
        """`Client.producer` is the way in."""
        self._thread = thread
        self._producer = producer

    def send(self, message: Message | bytes) -> Receipt:
        """Send one message and wait until it is stored."""
        return self._thread.wait(self._producer.send(message))

    def send_many(self, messages: Iterable[Message | bytes]) -> list[Receipt]:
        """Send many messages and wait until all are stored. Errors: the first failure; the others may be stored."""
        taken = list(messages)

        async def send() -> list[Receipt]:
            return await (await self._producer.send_many(taken))

        return self._thread.wait(send())

    def flush(self) -> None:
        """Wait until every message taken so far has its outcome."""
        self._thread.wait(self._producer.flush())


class TransactionalProducer:
    """Begins transactions in one topic; see `ortoo.client.TransactionalProducer`."""

    def __init__(self, thread: LoopThread, producer: AsyncTransactionalProducer) -> None:
        """`Client.transactional_producer` is the way in."""
        self._thread = thread
        self._producer = producer

    @contextmanager
    def transaction(self, *messages: Message, check_after_ms: int = 0) -> Iterator[AsyncTransaction]:
        """Begin; commit at the end of the block, or roll back when it raises."""
        with self._thread.inside(self._producer.transaction(*messages, check_after_ms=check_after_ms)) as begun:
            yield begun


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

    def batches(self) -> Iterator[ReceivedBatch]:
        """Whole batches, in order within each queue."""
        return self._thread.iterate(self._consumer.batches())

    def subscribe(self, topics: Topics) -> None:
        """Want these topics from now on."""
        self._thread.soon(self._consumer.subscribe, topics)

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

    def __iter__(self) -> Iterator[PoppedMessage]:
        """Messages as they come, for ever."""
        while True:
            yield from self.pop()

    def pop(self, messages_max: int = 0, wait_ms: float | None = None) -> list[PoppedMessage]:
        """Take messages, waiting for the first; empty when none came in time."""
        return self._thread.wait(self._consumer.pop(messages_max, wait_ms))

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


class Admin:
    """An operator's calls; see `ortoo.client.Admin`."""

    def __init__(self, thread: LoopThread, admin: AsyncAdmin) -> None:
        """`Client.admin` is the way in."""
        self._thread = thread
        self._admin = admin
        self.groups = GroupAdmin(thread, admin.groups)
        """What concerns groups and clients."""

    def create_topic(self, name: str, *, queue_count: int = 0, permission: str = "read_write") -> TopicInfo:
        """Create a topic with so many queues on each enode; 0 = 4."""
        return self._thread.wait(self._admin.create_topic(name, queue_count=queue_count, permission=permission))

    def list_topics(self) -> list[TopicInfo]:
        """All topics, by name."""
        return self._thread.wait(self._admin.list_topics())

    def describe_topic(self, name: str) -> TopicDescription:
        """One topic with what its queues hold."""
        return self._thread.wait(self._admin.describe_topic(name))

    def update_topic(
        self,
        name: str,
        *,
        read_queue_count: int = 0,
        write_queue_count: int = 0,
        permission: str = "",
        add_enodes: Sequence[str] = (),
    ) -> TopicInfo:
        """Change a topic; 0 and empty leave as it is."""
        return self._thread.wait(
            self._admin.update_topic(
                name,
                read_queue_count=read_queue_count,
                write_queue_count=write_queue_count,
                permission=permission,
                add_enodes=add_enodes,
            )
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its messages."""
        self._thread.wait(self._admin.delete_topic(name))

    def list_groups(self) -> list[GroupInfo]:
        """All groups, by name."""
        return self._thread.wait(self._admin.list_groups())

    def lag(self, group: str, topic: str) -> GroupLag:
        """How far a group is behind."""
        return self._thread.wait(self._admin.lag(group, topic))

    def describe_cluster(self) -> ClusterInfo:
        """The processes of the cluster."""
        return self._thread.wait(self._admin.describe_cluster())

    def find_messages(
        self, topic: str, *, key: str = "", message_id: str = "", begin_ms: int = 0, end_ms: int = 0, limit: int = 0
    ) -> FoundMessages:
        """Messages with a key, or the one with an id; the newest first."""
        found = self._admin.find_messages(
            topic, key=key, message_id=message_id, begin_ms=begin_ms, end_ms=end_ms, limit=limit
        )
        return self._thread.wait(found)

    def list_delayed(self, topic: str, *, from_ms: int = 0, limit: int = 100) -> list[DelayedMessage]:
        """The delayed messages of a topic, by time."""
        return self._thread.wait(self._admin.list_delayed(topic, from_ms=from_ms, limit=limit))

    def list_transactions(
        self, *, topic: str = "", producer_group: str = "", parked_only: bool = False, limit: int = 100
    ) -> list[OpenTransaction]:
        """Open transactions, the oldest first."""
        listed = self._admin.list_transactions(
            topic=topic, producer_group=producer_group, parked_only=parked_only, limit=limit
        )
        return self._thread.wait(listed)

    def end_transaction(self, transaction_id: str, verdict: Verdict) -> None:
        """Commit or roll back in the producer's stead."""
        self._thread.wait(self._admin.end_transaction(transaction_id, verdict))

    def resume_transaction(self, transaction_id: str) -> None:
        """Ask the producers about a parked transaction again."""
        self._thread.wait(self._admin.resume_transaction(transaction_id))

    def tail(
        self, topic: str, *, from_first: bool = False, follow: bool = True, messages_max: int = 0, wanted: Filter = "*"
    ) -> Iterator[StoredMessage]:
        """Messages of all queues of a topic."""
        source = self._admin.tail(topic, from_first=from_first, follow=follow, messages_max=messages_max, wanted=wanted)
        return self._thread.iterate(source)


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
        self, queue: Queue, from_offset: int = 0, to_offset: int = 0, *, wanted: Filter = "*"
    ) -> Iterator[ReceivedBatch]:
        """Batches of one queue, read outside any group."""
        return self._thread.iterate(self._client.fetch(queue, from_offset, to_offset, wanted=wanted))


@contextmanager
def connect(
    addresses: str | Sequence[str] = "localhost:8081", *, client_id: str = "", room: str = ""
) -> Iterator[Client]:
    """Connect to a cluster through one or more snodes, host:port each; see `ortoo.client.connect`."""
    thread = LoopThread()
    try:
        with thread.inside(asynchronous.connect(addresses, client_id=client_id, room=room)) as client:
            yield Client(thread, client)
    finally:
        thread.close()
