"""Sends of RocketMQ's clients: errors of requests for several lite topics."""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from apache.rocketmq.v2.definition_pb2 import LITE, TRANSACTION, Code
from ortoo.common.directory.topic import MessageType, Permission, Placement
from ortoo.common.errors import Invalid, OrtooError, Unavailable
from ortoo.common.process.clock import SystemClock
from ortoo.common.records.message import Message
from ortoo.snode.cluster.routes import Queue, Topic
from ortoo.snode.rocketmq.protocol.codes import GrpcProxyError
from ortoo.snode.rocketmq.protocol.messages import SentMessage
from ortoo.snode.rocketmq.send.send_message import SendMessageActivity
from ortoo.snode.send.publisher import PublishReceipt
from ortoo.snode.send.transactions import StartedTransaction

PARENT = Topic("t", 77, 1, Permission.READ_WRITE, (Placement("e", 4, 4),), message_type=MessageType.LITE)
SENT = [SentMessage(Message(b"x"), LITE, lite_topic=name) for name in ("a", "b", "full")]


class Storage:
    """Creates a topic for each lite topic but one, and stores messages until it refuses one."""

    def __init__(self, refusals: dict[str, OrtooError]) -> None:
        self.stored: list[str] = []
        self._refusals = refusals

    async def ensure(self, parent: Topic, lite_topic: str, *, for_write: bool) -> Queue:
        if lite_topic == "full":
            raise GrpcProxyError(Code.LITE_TOPIC_QUOTA_EXCEEDED, "the quota is used up")
        return Queue(lite_topic, "e", 0)

    async def publish(self, topic: str, messages: Sequence[Message], queue: Queue) -> list[PublishReceipt]:
        if topic in self._refusals:
            raise self._refusals[topic]
        self.stored.append(topic)
        return [PublishReceipt("", queue, row) for row, _ in enumerate(messages)]


def sending_to(storage: Storage) -> SendMessageActivity:
    some = cast(Any, storage)
    return SendMessageActivity(some, some, some, some, some, SystemClock())


async def test_a_lite_topic_that_cannot_be_made_refuses_the_request_before_anything_is_stored() -> None:
    """G11: the last of three exceeds the quota, and nothing of the first two is stored."""
    storage = Storage({})
    with pytest.raises(GrpcProxyError):
        await sending_to(storage)._publish(PARENT, SENT)
    assert storage.stored == []


@pytest.mark.parametrize(("refused", "told"), [("a", Invalid), ("b", Unavailable)])
async def test_of_lite_topics_that_have_their_messages_nobody_says_that_nothing_was_stored(
    refused: str, told: type[OrtooError]
) -> None:
    """A refusal of the second does not refuse the request; one of the first does (G11)."""
    storage = Storage({refused: Invalid("its queue takes no messages", field="queue.topic")})
    with pytest.raises(OrtooError) as raised:
        await sending_to(storage)._publish(PARENT, SENT[:2])
    assert type(raised.value) is told
    assert storage.stored == (["a"] if refused == "b" else [])


@pytest.mark.parametrize(("refused", "told"), [(b"a", Invalid), (b"b", Unavailable)])
async def test_of_transactions_of_which_one_is_begun_nobody_says_that_nothing_was_stored(
    refused: bytes, told: type[OrtooError]
) -> None:
    """G11: its producer gets checks of the begun one."""

    class Begins:
        async def begin(self, topic: str, sent: SentMessage) -> StartedTransaction:
            if sent.message.body == refused:
                raise Invalid("a message of a transaction cannot be delayed as well", field="messages.deliver_at_ms")
            return StartedTransaction("handle", ("id",), Queue(topic, "e", 0))

    some = cast(Any, Begins())
    sending = SendMessageActivity(some, some, some, some, some, SystemClock())
    with pytest.raises(OrtooError) as raised:
        await sending._begin("t", [SentMessage(Message(body), TRANSACTION) for body in (b"a", b"b")])
    assert type(raised.value) is told
