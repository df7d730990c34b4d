"""Sends: each message is checked and stored, and has its own entry in the answer."""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from apache.rocketmq.v2 import definition_pb2
from apache.rocketmq.v2.definition_pb2 import Code, MessageType
from apache.rocketmq.v2.service_pb2 import SendMessageRequest, SendMessageResponse, SendResultEntry
from ortoo.common.directory.topic import MessageType as MessageKind
from ortoo.common.errors import OrtooError, Overloaded
from ortoo.common.grpc.enum_values import name_of
from ortoo.common.process.clock import Clock
from ortoo.common.records.sealed_batch import MESSAGES_MAX
from ortoo.snode.cluster.routes import Topic
from ortoo.snode.rocketmq.clients.routes import ACCEPTED_TYPES
from ortoo.snode.rocketmq.clients.table import ClientTable, ConnectedClient
from ortoo.snode.rocketmq.lite.topics import LiteTopics
from ortoo.snode.rocketmq.protocol.caller import Caller
from ortoo.snode.rocketmq.protocol.codes import GrpcProxyError, ok_status
from ortoo.snode.rocketmq.protocol.messages import LITE, TRANSACTION, SentMessage, read_message
from ortoo.snode.rocketmq.protocol.names import topic_name
from ortoo.snode.rocketmq.send.recall_message import join_handle
from ortoo.snode.rocketmq.send.transactions import TransactionActivity
from ortoo.snode.send.ambiguous_outcome import AmbiguousOutcome
from ortoo.snode.send.publisher import Publisher, PublishReceipt
from ortoo.snode.send.queue_choice import DEDUP_ID
from ortoo.snode.topics.creation import ProducerTopics

_UNUSUAL = frozenset((TRANSACTION, LITE))
"""The types of messages that take more than one step."""


@dataclass(frozen=True, slots=True)
class SendMessageActivity:
    """The call SendMessage."""

    topics: ProducerTopics
    publisher: Publisher
    transactions: TransactionActivity
    lite_topics: LiteTopics
    clients: ClientTable
    clock: Clock

    async def send(self, caller: Caller, request: SendMessageRequest) -> SendMessageResponse:
        """Store all messages of a request; a refused request stores none.

        Errors: GrpcProxyError, and those of the publisher.
        """
        topic = await self.topics.topic(_single_topic(request.messages))
        now_ms = self.clock.now_ms()
        sent = [read_message(message, at, now_ms, caller.peer) for at, message in enumerate(request.messages)]
        _check_types(topic, sent)
        client = self._touch(caller, topic)
        if any(one.message_type == TRANSACTION for one in sent):
            self.transactions.watch_transactions(client)
            return await self._begin(topic.name, sent)
        return _response(await self._publish(topic, sent))

    def start(
        self, caller: Caller, request: SendMessageRequest, done: Callable[[SendMessageResponse | Exception], None]
    ) -> bool:
        """Begin to store the one message of a usual request, and call `done` at the end; False for other requests.

        Errors: those of `send`, before anything was stored.
        """
        if len(request.messages) != 1:
            return False
        message = request.messages[0]
        topic = self.topics.known_topic(topic_name(message.topic))
        if topic is None:
            return False
        sent = read_message(message, 0, self.clock.now_ms(), caller.peer)
        if sent.message_type in _UNUSUAL or DEDUP_ID in sent.message.properties:
            return False
        _check_types(topic, (sent,))
        self._touch(caller, topic)
        self.publisher.store_one(
            topic,
            sent.message,
            lambda stored: done(stored if isinstance(stored, Exception) else _response((stored,))),
        )
        return True

    def _touch(self, caller: Caller, topic: Topic) -> ConnectedClient:
        """Record that the caller is alive, and sends to this topic."""
        client = self.clients.touch(caller, self.clock.monotonic_s())
        if topic.name not in client.published_topics:
            with contextlib.suppress(Overloaded):  # it may send; a later message may register it
                self.clients.add_published_topics(client, {topic.name})
        return client

    async def _publish(self, topic: Topic, sent: Sequence[SentMessage]) -> list[PublishReceipt]:
        if topic.message_type is not MessageKind.LITE:
            return await self.publisher.store(topic, [one.message for one in sent], None)
        names = sorted({one.lite_topic for one in sent})
        queues = {name: await self.lite_topics.ensure(topic, name, for_write=True) for name in names}
        receipts: dict[int, PublishReceipt] = {}
        outcome = AmbiguousOutcome()
        for name, queue in queues.items():
            rows = [row for row, one in enumerate(sent) if one.lite_topic == name]
            try:
                stored = await self.publisher.publish(queue.topic, [sent[row].message for row in rows], queue)
            except OrtooError as error:
                raise outcome.error_for_sender(error) from None
            outcome.add_attempt(None)
            receipts.update(zip(rows, stored, strict=True))
        return [receipts[row] for row in range(len(sent))]

    async def _begin(self, topic: str, sent: Sequence[SentMessage]) -> SendMessageResponse:
        """Begin one transaction for each message. Errors: GrpcProxyError if only some belong to transactions."""
        if any(one.message_type != TRANSACTION for one in sent):
            raise GrpcProxyError(
                Code.MESSAGE_CORRUPTED, "only some messages are transaction messages; send them separately"
            )
        entries, outcome = [], AmbiguousOutcome()
        for one in sent:
            try:
                transaction = await self.transactions.begin(topic, one)
            except OrtooError as error:
                raise outcome.error_for_sender(error) from None
            outcome.add_attempt(None)
            [message_id] = transaction.message_ids
            entries.append(
                SendResultEntry(status=ok_status(), message_id=message_id, transaction_id=transaction.transaction_id)
            )
        return SendMessageResponse(status=ok_status(), entries=entries)


def _response(receipts: Iterable[PublishReceipt]) -> SendMessageResponse:
    response = SendMessageResponse(status=ok_status())
    for receipt in receipts:
        entry = response.entries.add(
            status=response.status,
            message_id=receipt.message_id,
            transaction_id=receipt.message_id,  # as RocketMQ
            offset=receipt.offset,
        )
        if receipt.recall_handle:
            entry.recall_handle = join_handle(receipt.recall_handle, receipt.message_id)
    return response


def _single_topic(messages: Sequence[definition_pb2.Message]) -> str:
    if not 1 <= len(messages) <= MESSAGES_MAX:
        raise GrpcProxyError(Code.MESSAGE_CORRUPTED, f"{len(messages)} messages; send 1 to {MESSAGES_MAX} at once")
    name = topic_name(messages[0].topic)
    for at, message in enumerate(messages[1:], 1):
        if message.topic.name != name:
            raise GrpcProxyError(
                Code.MESSAGE_CORRUPTED,
                f"messages[{at}] is for topic {message.topic.name!r}, messages[0] for {name!r}; give one topic",
            )
    return name


def _check_types(topic: Topic, sent: Sequence[SentMessage]) -> None:
    for at, one in enumerate(sent):
        if one.message_type not in ACCEPTED_TYPES[topic.message_type]:
            kind = name_of(MessageType, one.message_type)
            raise GrpcProxyError(
                Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                f"messages[{at}] has type {kind}, which topic {topic.name} does not accept",
            )
