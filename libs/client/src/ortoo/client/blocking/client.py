"""The client for programs without an event loop: the same calls, each returning when it has completed."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property

from ortoo.client import app as asynchronous
from ortoo.client.blocking.admin import BlockingAdmin
from ortoo.client.blocking.consumers import BlockingConsumer, BlockingPopConsumer, BlockingPullConsumer
from ortoo.client.blocking.facade import BlockingFacade, ClosableFacade, blocking, entering, iterating, opening
from ortoo.client.blocking.loop_thread import LoopThread, new_loop_thread
from ortoo.client.core.queues import Receipt
from ortoo.client.core.received import ReceivedMessage
from ortoo.client.pop.popped import PoppedMessage
from ortoo.client.produce.producer import Producer as AsyncProducer
from ortoo.client.produce.transactions import Transaction as AsyncTransaction
from ortoo.client.produce.transactions import TransactionalProducer as AsyncTransactionalProducer
from ortoo.client.produce.transactions import TransactionCheck, TransactionVerdict
from ortoo.common.records.message import Message


class BlockingProducer(ClosableFacade[AsyncProducer]):
    """Sends messages to one topic; see `ortoo.client.Producer`."""

    send = blocking(AsyncProducer.send)
    send_once = blocking(AsyncProducer.send_once)
    request = blocking(AsyncProducer.request)
    flush = blocking(AsyncProducer.flush)

    def send_many(self, messages: Iterable[Message | bytes]) -> list[Receipt]:
        """Send many messages and wait until all are stored.

        Errors: the first failure (other messages may be stored).
        """
        given = list(messages)

        async def send() -> list[Receipt]:
            return await (await self._wrapped.send_many(given))

        return self._thread.run(send(), self._timeout_s)


class BlockingTransaction(BlockingFacade[AsyncTransaction]):
    """Messages that wait for a verdict; see `ortoo.client.Transaction`."""

    def __init__(self, thread: LoopThread, wrapped: AsyncTransaction) -> None:
        """Applications use `TransactionalProducer.begin`."""
        super().__init__(thread, wrapped)
        self.transaction_id, self.message_ids, self.queue = wrapped.transaction_id, wrapped.message_ids, wrapped.queue

    commit = blocking(AsyncTransaction.commit)
    rollback = blocking(AsyncTransaction.rollback)


class BlockingTransactionalProducer(ClosableFacade[AsyncTransactionalProducer]):
    """Begins transactions in one topic; see `ortoo.client.TransactionalProducer`."""

    transaction = entering(AsyncTransactionalProducer.transaction, BlockingTransaction)

    @property
    def registered(self) -> bool:
        """Whether the server has registered this producer, so that the producer gets checks."""
        return self._wrapped.registered.is_set()

    def begin(self, *messages: Message, check_after_ms: int = 0) -> BlockingTransaction:
        """Store messages that consumers see only after `commit`."""
        transaction = self._thread.run(self._wrapped.begin(*messages, check_after_ms=check_after_ms), self._timeout_s)
        return BlockingTransaction(self._thread, transaction)


class BlockingClient(ClosableFacade[asynchronous.Client]):
    """A connected client: makes producers and consumers, and has the operator's calls as `admin`. Made by `connect`."""

    @cached_property
    def admin(self) -> BlockingAdmin:
        """The operator's calls."""
        return BlockingAdmin(self._thread, self._wrapped.admin)

    @property
    def late_replies(self) -> int:
        """Number of replies that came after their request had ended, and were dropped."""
        return self._wrapped.late_replies

    def processing(self, *messages: ReceivedMessage | PoppedMessage, group: str = "") -> AbstractContextManager[None]:
        """The span of the processing of received messages; see `ortoo.client.Client.processing`."""
        return self._wrapped.processing(*messages, group=group)

    producer = opening(asynchronous.Client.producer, BlockingProducer)
    consumer = opening(asynchronous.Client.consumer, BlockingConsumer)
    pull_consumer = opening(asynchronous.Client.pull_consumer, BlockingPullConsumer)
    pop_consumer = opening(asynchronous.Client.pop_consumer, BlockingPopConsumer)
    recall = blocking(asynchronous.Client.recall)
    ping = blocking(asynchronous.Client.ping)
    fetch = iterating(asynchronous.Client.fetch)

    def transactional_producer(
        self, topic: str, group: str, checker: Callable[[TransactionCheck], TransactionVerdict]
    ) -> BlockingTransactionalProducer:
        """A producer whose messages wait for a verdict; `checker` runs on a separate thread."""
        return _open_checked(self, topic, group, checker)

    def _close(self, error: BaseException | None, timeout_s: float | None = None) -> None:
        self._thread.close(timeout_s)  # closes everything that this client opened and that is still open


_open_checked = opening(asynchronous.Client.transactional_producer, BlockingTransactionalProducer)


def connect(
    addresses: str | Sequence[str] = "",
    *,
    profile: str = "",
    client_id: str = "",
    zone: str = "",
    access_key: str = "",
    secret_key: str = "",
    tls_ca_file: str = "",
    tls_certificate_file: str = "",
    tls_key_file: str = "",
    start_timeout_s: float = 0.0,
    proxy: str | None = None,
    telemetry: bool = True,
) -> BlockingClient:
    """Connect to a cluster through one or more snodes, host:port each; see `ortoo.client.connect`.

    Close the client, or use it as a `with` block.
    """
    thread = new_loop_thread()
    try:
        opened = thread.open(
            asynchronous.connect(
                addresses,
                profile=profile,
                client_id=client_id,
                zone=zone,
                access_key=access_key,
                secret_key=secret_key,
                tls_ca_file=tls_ca_file,
                tls_certificate_file=tls_certificate_file,
                tls_key_file=tls_key_file,
                start_timeout_s=start_timeout_s,
                proxy=proxy,
                telemetry=telemetry,
            )
        )
    except BaseException:
        thread.close()
        raise
    return BlockingClient(thread, opened.value)
