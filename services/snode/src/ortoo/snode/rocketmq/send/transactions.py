"""Transactions of RocketMQ's clients: half messages, verdicts, and checks of open transactions."""

from functools import partial

from apache.rocketmq.v2 import service_pb2 as pb
from apache.rocketmq.v2.definition_pb2 import TransactionResolution, TransactionSource
from ortoo.common.errors import Overloaded
from ortoo.common.groups.handle import HandleKind, read_handle
from ortoo.common.records.batch import open_batch
from ortoo.snode.cluster.directory import DirectoryCache
from ortoo.snode.enodes.link import HalfVerdict, VerdictSource
from ortoo.snode.rocketmq.clients.table import ConnectedClient
from ortoo.snode.rocketmq.protocol.caller import Caller
from ortoo.snode.rocketmq.protocol.codes import ok_status
from ortoo.snode.rocketmq.protocol.messages import DeliveryInfo, SentMessage, write_message
from ortoo.snode.rocketmq.protocol.names import check_same_topic, topic_name
from ortoo.snode.send.transactions import CheckSender, StartedTransaction, TransactionCheckCall, TransactionProcessor

VERDICTS = {
    TransactionResolution.COMMIT: HalfVerdict.COMMIT,
    TransactionResolution.ROLLBACK: HalfVerdict.ROLL_BACK,
}


class TransactionActivity:
    """The call EndTransaction, half messages, and checks. The producer group of a topic has the topic's name."""

    def __init__(self, transactions: TransactionProcessor, directory: DirectoryCache) -> None:
        self._transactions = transactions
        self._directory = directory
        self._check_senders: dict[str, CheckSender] = {}
        """By client id, the functions that send checks to listening clients."""

    async def begin(self, topic: str, sent: SentMessage) -> StartedTransaction:
        """Store a message that stays invisible until the transaction ends. Errors: as `TransactionProcessor.begin`."""
        check_after_ms = (sent.recovery_s or 0) * 1000
        return await self._transactions.begin(topic, [sent.message], topic, check_after_ms=check_after_ms)

    async def end(self, caller: Caller, request: pb.EndTransactionRequest) -> pb.EndTransactionResponse:
        """Record the verdict on a transaction; an undecided verdict changes nothing. On return the verdict is durable.

        Errors: GrpcProxyError, Invalid, NotFound for a missing transaction.
        """
        handle = read_handle(request.transaction_id, HandleKind.TRANSACTION, "transaction_id", self._directory.seals)
        check_same_topic(topic_name(request.topic), self._directory.topic_name(handle.topic_id))
        verdict = VERDICTS.get(request.resolution)
        if verdict is not None:
            is_check = request.source == TransactionSource.SOURCE_SERVER_CHECK
            source = VerdictSource.CHECK if is_check else VerdictSource.PRODUCER
            await self._transactions.end(request.transaction_id, verdict, source)
        return pb.EndTransactionResponse(status=ok_status())

    def watch_transactions(self, client: ConnectedClient) -> None:
        """Start to send a client the checks of the topics to which it sends."""
        if client.stream is None or len(client.checked_topics) == len(client.published_topics):
            return
        ask = self._check_senders.setdefault(client.client_id, partial(self._send_check, client))
        for topic in sorted(client.published_topics - client.checked_topics):
            self._transactions.add_producer(topic, ask)
            client.checked_topics.add(topic)

    def unwatch_transactions(self, client: ConnectedClient) -> None:
        """Stop sending checks to a client, until `watch_transactions` is called again."""
        ask = self._check_senders.pop(client.client_id, None)
        while ask is not None and client.checked_topics:
            self._transactions.remove_producer(client.checked_topics.pop(), ask)

    def _send_check(self, client: ConnectedClient, check: TransactionCheckCall) -> bool:
        if (
            client.stream is None
            or check.topic not in client.published_topics
            or not client.principal.may_send_to(check.topic)
        ):
            return False
        for message in open_batch(check.batch).messages():
            place = DeliveryInfo(
                check.topic, "", check.half.queue_id, 0, check.half.stored_at_ms, "", is_transaction=True
            )
            command = pb.RecoverOrphanedTransactionCommand(
                message=write_message(message, place), transaction_id=check.transaction_id
            )
            try:
                client.stream.send(pb.TelemetryCommand(recover_orphaned_transaction_command=command))
            except Overloaded:
                break  # the next check retries
        return True
