"""ReplyService: replies to requests."""

from dataclasses import dataclass

from ortoo.common.errors import Invalid, Unavailable
from ortoo.common.errors.status import error_of, rpc_errors
from ortoo.common.groups.requests import check_correlation_id
from ortoo.common.grpc.errors import Context
from ortoo.snode.clients.replies import REPLY_TIMEOUT_S, ReplyRouter
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.cluster.wire import decode_message
from ortoo.snode.policy import Policy
from ortoo.v1 import reply_pb2 as pb
from ortoo.v1 import reply_pb2_grpc, session_pb2

NAME = pb.DESCRIPTOR.services_by_name["ReplyService"].full_name
FORWARD_MARGIN_S = 1.0


@dataclass(eq=False)
class ReplyService(reply_pb2_grpc.ReplyServiceServicer):
    """The service by which consumers reply to requests."""

    runtime: Runtime
    replies: ReplyRouter
    policy: Policy

    async def Reply(self, request: pb.ReplyRequest, context: Context) -> pb.ReplyResponse:
        """Give a reply to its requester, which may be connected to another snode."""
        if not request.topic:
            raise Invalid("is missing; give the topic to which the request was sent", field="topic")
        check_correlation_id(request.correlation_id, "correlation_id")
        decode_message(request.message).check()
        requester = await self.replies.find(request.reply_to)
        if address := self.replies.other_snode(requester):
            if request.local_only:
                raise Unavailable("the requester has moved to another snode; retry", field="reply_to")
            request.local_only = True
            channel = await self.policy.forwarding_channel(self.runtime.channels.channel_to(address))
            with rpc_errors(f"snode {requester.snode}", is_internal=True):
                return await reply_pb2_grpc.ReplyServiceStub(channel).Reply(
                    request, timeout=REPLY_TIMEOUT_S + FORWARD_MARGIN_S
                )
        command = session_pb2.Command(
            command_id=self.runtime.randomness.id_text(),
            timeout_ms=int(REPLY_TIMEOUT_S * 1000),
            deliver_reply=session_pb2.DeliverReply(
                topic=request.topic, correlation_id=request.correlation_id, message=request.message
            ),
        )
        result = await self.replies.deliver(requester, command.command_id, command)
        if result.HasField("failure"):
            raise error_of(result.failure)
        return pb.ReplyResponse(late=result.reply_outcome == session_pb2.REPLY_OUTCOME_LATE)
