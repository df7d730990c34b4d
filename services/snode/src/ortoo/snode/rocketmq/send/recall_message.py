"""Recall of delayed messages."""

import base64
import binascii
from dataclasses import dataclass

from apache.rocketmq.v2.definition_pb2 import Code
from apache.rocketmq.v2.service_pb2 import RecallMessageRequest, RecallMessageResponse
from ortoo.common.directory.topic import MessageType
from ortoo.common.errors import Conflict, NotFound
from ortoo.common.groups.handle import HandleKind, read_handle
from ortoo.snode.cluster import ClusterView
from ortoo.snode.rocketmq.protocol.caller import Caller
from ortoo.snode.rocketmq.protocol.codes import GrpcProxyError, ok_status
from ortoo.snode.rocketmq.protocol.names import check_same_topic, topic_name
from ortoo.snode.send.delayed import DelayedMessages

SEPARATOR = "."


@dataclass(frozen=True, slots=True)
class RecallMessageActivity:
    """The call RecallMessage."""

    cluster: ClusterView
    delayed: DelayedMessages

    async def recall(self, caller: Caller, request: RecallMessageRequest) -> RecallMessageResponse:
        """Recall a delayed message. Errors: GrpcProxyError, Invalid for a wrong handle."""
        topic = await self.cluster.watch.topic(topic_name(request.topic))
        if topic.message_type not in (MessageType.UNSPECIFIED, MessageType.DELAY):
            message = f"topic {topic.name} takes {topic.message_type.name} messages, which cannot be recalled"
            raise GrpcProxyError(Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, message)
        handle, message_id = split_handle(request.recall_handle)
        read = read_handle(handle, HandleKind.DELAYED, "recall_handle", self.cluster.directory.seals)
        check_same_topic(topic.name, self.cluster.directory.topic_name(read.topic_id))
        try:
            await self.delayed.recall(handle)
        except (NotFound, Conflict) as gone:
            raise GrpcProxyError(Code.PRECONDITION_FAILED, str(gone)) from None
        return RecallMessageResponse(status=ok_status(), message_id=message_id)


def join_handle(recall_handle: str, message_id: str) -> str:
    """The recall handle for a producer, made of Ortoo's recall handle and the message id."""
    return recall_handle + SEPARATOR + base64.urlsafe_b64encode(message_id.encode()).decode()


def split_handle(text: str) -> tuple[str, str]:
    """Split a producer's recall handle into Ortoo's recall handle and the message id.

    Errors: GrpcProxyError with BAD_REQUEST.
    """
    handle, separator, encoded = text.partition(SEPARATOR)
    try:
        if not separator:
            raise ValueError("two parts")
        return handle, base64.urlsafe_b64decode(encoded).decode()
    except (binascii.Error, ValueError):
        raise GrpcProxyError(
            Code.BAD_REQUEST, "this is not a recall handle; give the recall handle that the send returned"
        ) from None
