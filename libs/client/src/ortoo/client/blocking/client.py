"""The client for programs without an event loop: the same calls, each returning when it has completed."""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from ortoo.client import app as asynchronous
from ortoo.client.blocking.admin import Admin
from ortoo.client.blocking.consumers import Consumer, PopConsumer, PullConsumer
from ortoo.client.blocking.facade import Facade, OpenFacade, blocking, entering, iterating, opening
from ortoo.client.blocking.loop_thread import LoopThread, new_loop_thread
from ortoo.client.core.queues import Receipt
from ortoo.client.produce.producer import Producer as AsyncProducer
from ortoo.client.produce.transactions import Transaction as AsyncTransaction
from ortoo.client.produce.transactions import TransactionalProducer as AsyncTransactionalProducer
from ortoo.client.produce.transactions import TransactionCheck, Verdict
from ortoo.common.records.message import Message


class Producer(OpenFacade[AsyncProducer]):
    """Sends messages to one topic; see `ortoo.client.Producer`."""

    send = blocking(AsyncProducer.send)
    send_once = blocking(AsyncProducer.send_once)
    flush = blocking(AsyncProducer.flush)

    def send_many(self, messages: Iterable[Message | bytes]) -> list[Receipt]:
        """Send many messages and wait until all are stored. Errors: the first failure (others may be stored)."""
        taken = list(messages)

        async def send() -> list[Receipt]:
            return await (await self._behind.send_many(taken))

        return self._thread.wait(send(), self._limit_s)


class Transaction(Facade[AsyncTransaction]):
    """Messages that wait for a verdict; see `ortoo.client.Transaction`."""

    def __init__(self, thread: LoopThread, behind: AsyncTransaction) -> None:
        """Applications use `TransactionalProducer.begin`."""
        super().__init__(thread, behind)
        self.transaction_id, self.message_ids, self.queue = behind.transaction_id, behind.message_ids, behind.queue

    commit = blocking(AsyncTransaction.commit)
    roll_back = blocking(AsyncTransaction.roll_back)


class TransactionalProducer(OpenFacade[AsyncTransactionalProducer]):
    """Begins transactions in one topic; see `ortoo.client.TransactionalProducer`."""

    transaction = entering(AsyncTransactionalProducer.transaction, Transaction)

    @property
    def known(self) -> bool:
        """Whether the server has registered this producer, so that it can send it checks."""
        return self._behind.known.is_set()

    def begin(self, *messages: Message, check_after_ms: int = 0) -> Transaction:
        """Store messages that consumers see only after `commit`."""
        begun = self._thread.wait(self._behind.begin(*messages, check_after_ms=check_after_ms), self._limit_s)
        return Transaction(self._thread, begun)


class Client(OpenFacade[asynchronous.Client]):
    """A connected client: makes producers and consumers, and has the operator's calls as `admin`. Made by `connect`."""

    def __init__(self, thread: LoopThread, behind: asynchronous.Client) -> None:
        """Applications get a client from `connect`."""
        super().__init__(thread, behind)
        self.admin = Admin(thread, behind.admin)
        """The operator's calls."""

    producer = opening(asynchronous.Client.producer, Producer)
    consumer = opening(asynchronous.Client.consumer, Consumer)
    pull_consumer = opening(asynchronous.Client.pull_consumer, PullConsumer)
    pop_consumer = opening(asynchronous.Client.pop_consumer, PopConsumer)
    recall = blocking(asynchronous.Client.recall)
    fetch = iterating(asynchronous.Client.fetch)

    def transactional_producer(
        self, topic: str, group: str, checker: Callable[[TransactionCheck], Verdict]
    ) -> TransactionalProducer:
        """A producer whose messages wait for a verdict; `checker` runs on a separate thread."""

        async def check(question: TransactionCheck) -> Verdict:
            return await asyncio.to_thread(checker, question)

        return _open_checked(self, topic, group, check)

    def _end(self, error: BaseException | None) -> None:
        self._thread.close()  # closes everything that this client opened and that is still open


_open_checked = opening(asynchronous.Client.transactional_producer, TransactionalProducer)


def connect(
    addresses: str | Sequence[str] = "",
    *,
    profile: str = "",
    client_id: str = "",
    room: str = "",
    access_key: str = "",
    secret_key: str = "",
    tls_ca_file: str = "",
    tls_certificate_file: str = "",
    tls_key_file: str = "",
) -> Client:
    """Connect to a cluster through one or more snodes, host:port each; see `ortoo.client.connect`.

    Close it, or use it as a `with` block.
    """
    thread = new_loop_thread()
    try:
        opened = thread.open(
            asynchronous.connect(
                addresses,
                profile=profile,
                client_id=client_id,
                room=room,
                access_key=access_key,
                secret_key=secret_key,
                tls_ca_file=tls_ca_file,
                tls_certificate_file=tls_certificate_file,
                tls_key_file=tls_key_file,
            )
        )
    except BaseException:
        thread.close()
        raise
    return Client(thread, opened.value)
