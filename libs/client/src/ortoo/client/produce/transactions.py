"""Transactions: messages that are delivered if and only if the application's own transaction happened.

The producer begins a transaction. The checker returns its verdict if the producer's verdict was lost:

    async def checker(check: TransactionCheck) -> TransactionVerdict:
        is_paid = await db.has_order(check.messages[0].keys[0])
        return TransactionVerdict.COMMIT if is_paid else TransactionVerdict.ROLLBACK


    async def pay(mq: Client) -> None:
        async with mq.transactional_producer("orders", "billing", checker) as producer:
            # An exception in the block rolls back, its end commits.
            async with producer.transaction(Message(b"paid", keys=("17",))):
                await db.pay(17)
"""

import asyncio
import contextlib
import enum
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from ortoo.client import log_events
from ortoo.client.core.closed import Openable
from ortoo.client.core.connection import Connection
from ortoo.client.core.queues import Queue
from ortoo.client.core.wire import wire_queue
from ortoo.client.handling.calls import HandlerCalls
from ortoo.client.produce.producer_settings import ProducerSettings
from ortoo.client.produce.routes import Route, query_route, wait_for_route
from ortoo.client.produce.spans import sending
from ortoo.common.errors import OrtooError, Unavailable
from ortoo.common.errors.status import rpc_errors
from ortoo.common.grpc.messages import read, write
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.background import Background
from ortoo.common.records.message import Message
from ortoo.v1 import enode_deferred_pb2, producer_pb2, record_pb2
from ortoo.v1.producer_pb2_grpc import ProducerServiceStub

ROUTE_INTERVAL_S = 30.0
_log = get_logger("transactions")


class TransactionVerdict(enum.Enum):
    """The outcome of a transaction."""

    COMMIT = "commit"
    """The messages of the transaction are delivered."""
    ROLLBACK = "roll back"
    """The messages of the transaction are never delivered."""
    UNKNOWN = "unknown"
    """Not known yet; a producer of the group gets another check later."""


@dataclass(frozen=True, slots=True)
class TransactionCheck:
    """A request of the server to a producer for the verdict of a transaction."""

    transaction_id: str
    topic: str
    messages: tuple[Message, ...]
    checks: int
    """Number of checks of this transaction, including this one."""
    started_at_ms: int
    """Milliseconds since 1970-01-01 UTC."""


CHECKER_THREADS = 4
"""Threads for a checker that is a plain function."""
TransactionChecker = Callable[[TransactionCheck], Awaitable[TransactionVerdict] | TransactionVerdict]


class Transaction:
    """Messages that wait for a verdict. The first verdict is final."""

    def __init__(self, connection: Connection, transaction_id: str, message_ids: Sequence[str], queue: Queue) -> None:
        """Applications use `TransactionalProducer.begin`."""
        self.transaction_id = transaction_id
        self.message_ids = tuple(message_ids)
        self.queue = queue
        """The queue that the messages will be stored in."""
        self._connection = connection

    async def commit(self) -> None:
        """Deliver the messages. The verdict is final when this call returns. A second call does nothing.

        Errors: Conflict when the transaction was rolled back before. Unavailable when the outcome is unknown; a
        producer of the group then gets a check.
        """
        await end_transaction(self._connection, self.transaction_id, TransactionVerdict.COMMIT)

    async def rollback(self) -> None:
        """Drop the messages. Errors: as `commit`."""
        await end_transaction(self._connection, self.transaction_id, TransactionVerdict.ROLLBACK)


class TransactionalProducer(Openable):
    """Begins transactions in one topic, and answers checks of open transactions of its group.

    Made by `Client.transactional_producer`; an async context manager. Leaving the context manager does not end
    transactions.
    """

    def __init__(self, connection: Connection, topic: str, group: str, checker: TransactionChecker) -> None:
        """Applications use `Client.transactional_producer`."""
        self.registered = asyncio.Event()
        """Set while the server has registered this producer, so that it can send it checks."""
        self._connection = connection
        self._topic = topic
        self._group = group
        self._calls: HandlerCalls[TransactionCheck, TransactionVerdict] = HandlerCalls(checker, threads=CHECKER_THREADS)
        self._client_id = connection.new_client_id()
        self._background = Background(f"transactions {topic}")
        self._route: Route
        self._number = connection.randomness.below(1 << 16)

    async def __aenter__(self) -> Self:
        self._route = await wait_for_route(self._connection, self._topic, ProducerSettings())
        self._check_first_entry()
        await self._background.__aenter__()
        self._background.spawn("checks", self._connection.run_with_failover(self._answer_checks))
        self._background.every("route", ROUTE_INTERVAL_S, self._refresh_route, clock=self._connection.clock)
        return self

    async def __aexit__(self, *ended: Any) -> None:
        await self._background.__aexit__(*ended)

    async def begin(self, *messages: Message, check_after_ms: int = 0) -> Transaction:
        """Store messages that consumers see only after `commit`, all in one queue.

        If no verdict arrives, a producer of the group gets a check after `check_after_ms` (0 = the cluster's setting, 6
        s). Errors: Invalid and NotFound (nothing is stored), Unavailable (no answer).
        """
        with sending(self._connection.telemetry, self._topic) as stamp:
            return await self._begin([stamp(message) for message in messages], check_after_ms)

    async def _begin(self, messages: Sequence[Message], check_after_ms: int) -> Transaction:
        for row, message in enumerate(messages):
            message.check(f"messages[{row}]")
        queue = self._queue(messages)
        request = producer_pb2.BeginTransactionRequest(
            topic=self._topic,
            messages=[write(record_pb2.Message, message) for message in messages],
            producer_group=self._group,
            check_after_ms=check_after_ms,
            queue=wire_queue(queue),
            key=self._connection.randomness.id64(),
        )
        answer = await self._connection.call(ProducerServiceStub, "BeginTransaction", request)
        return Transaction(self._connection, answer.transaction_id, answer.message_ids, queue)

    @contextlib.asynccontextmanager
    async def transaction(self, *messages: Message, check_after_ms: int = 0) -> AsyncIterator[Transaction]:
        """Begin a transaction; commit at the end of the block, or roll back when the block raises."""
        transaction = await self.begin(*messages, check_after_ms=check_after_ms)
        try:
            yield transaction
        except BaseException:
            with contextlib.suppress(OrtooError):  # a check will follow; the error of the block is raised
                await transaction.rollback()
            raise
        await transaction.commit()

    def _queue(self, messages: Sequence[Message]) -> Queue:
        group = messages[0].message_group if messages else None
        if group is not None:
            return self._route.queue_of_group(group)
        self._number += 1
        return self._route.writable[self._number % len(self._route.writable)]

    async def _refresh_route(self) -> None:
        self._route = await query_route(self._connection, self._topic)

    async def _answer_checks(self, address: str) -> bool:
        """Answer the checks of one snode until the stream breaks; returns whether the snode sent anything."""
        request = producer_pb2.WatchTransactionChecksRequest(producer_group=self._group, client_id=self._client_id)
        has_responded = False
        call = ProducerServiceStub(self._connection.channel()).WatchTransactionChecks(request)
        error: OrtooError = Unavailable(f"{address} ended the call")
        try:
            with rpc_errors(address):
                async for check in call:
                    has_responded = True
                    self.registered.set()
                    if check.transaction_id:
                        self._background.spawn("check", self._check(check))
        except OrtooError as failure:
            error = failure
        finally:
            call.cancel()
            self.registered.clear()
        _log.emit(log_events.TRANSACTION_WATCH_RECONNECTING, reason=str(error))
        return has_responded

    async def _check(self, check: producer_pb2.WatchTransactionChecksResponse) -> None:
        transaction_id = check.transaction_id
        async with self._calls.ended(read(TransactionCheck, check)) as end:
            if end.failure is not None:
                _log.emit(log_events.TRANSACTION_CHECKER_FAILED, exc_info=end.failure, transaction=transaction_id)
            elif end.result is not None and end.result is not TransactionVerdict.UNKNOWN:
                source = enode_deferred_pb2.VERDICT_SOURCE_CHECK
                try:
                    await end_transaction(self._connection, transaction_id, end.result, source)
                except OrtooError as error:
                    _log.emit(log_events.TRANSACTION_END_FAILED, reason=str(error))


async def end_transaction(
    connection: Connection,
    transaction_id: str,
    verdict: TransactionVerdict,
    source: "enode_deferred_pb2.VerdictSource.ValueType" = enode_deferred_pb2.VERDICT_SOURCE_PRODUCER,
) -> None:
    """Commit or roll back a transaction. Errors: Invalid, NotFound, Conflict, Unavailable."""
    wire = (
        enode_deferred_pb2.VERDICT_COMMIT
        if verdict is TransactionVerdict.COMMIT
        else enode_deferred_pb2.VERDICT_ROLL_BACK
    )
    request = producer_pb2.EndTransactionRequest(transaction_id=transaction_id, verdict=wire, source=source)
    await connection.call(ProducerServiceStub, "EndTransaction", request)
