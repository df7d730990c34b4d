"""apache.rocketmq.v2: each call read, passed to the gateway and answered in the protocol's words."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeVar

from apache.rocketmq.v2 import admin_pb2
from apache.rocketmq.v2 import service_pb2 as pb
from apache.rocketmq.v2.admin_pb2_grpc import AdminServicer
from apache.rocketmq.v2.definition_pb2 import Status
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceServicer
from ortoo.common.errors import Forbidden, Invalid
from ortoo.common.logs import logger as logs
from ortoo.common.process.containment import told_as
from ortoo.snode.rocketmq.protocol.caller import Caller, Context
from ortoo.snode.rocketmq.protocol.codes import Refused, status_of
from ortoo.snode.rocketmq.rpc.gateway import Gateway

NAME = pb.DESCRIPTOR.services_by_name["MessagingService"].full_name
ADMIN_NAME = admin_pb2.DESCRIPTOR.services_by_name["Admin"].full_name
LOG_LEVELS = {
    admin_pb2.ChangeLogLevelRequest.TRACE: "debug",
    admin_pb2.ChangeLogLevelRequest.DEBUG: "debug",
    admin_pb2.ChangeLogLevelRequest.INFO: "info",
    admin_pb2.ChangeLogLevelRequest.WARN: "warning",
    admin_pb2.ChangeLogLevelRequest.ERROR: "error",
}


Q = TypeVar("Q")
A = TypeVar("A")
"""An answer; every one of the protocol carries a status."""


def _answered(
    answer: Callable[..., A], part: Callable[[Gateway], Callable[[Caller, Q], Awaitable[A]]]
) -> Any:  # a callable type says nothing of its arguments' names, which the servicer's methods have
    """A handler that gives the answer of `part`, or one that says in its status why there is none."""

    async def handler(service: "MessagingService", request: Q, context: Context) -> A:
        try:
            return await part(service.gateway)(service.gateway.admit(context), request)
        except Exception as error:
            return answer(status=_status(error))

    return handler


def _streamed(
    answer: Callable[..., A], part: Callable[[Gateway], Callable[[Caller, Q], AsyncGenerator[A, None]]]
) -> Any:
    """A handler that gives all answers of `part`; a last one says in its status why it broke off."""

    async def handler(service: "MessagingService", request: Q, context: Context) -> AsyncIterator[A]:
        try:
            frames = part(service.gateway)(service.gateway.admit(context), request)
            async with aclosing(frames):  # whoever calls this off waits for what the part does at its end
                async for frame in frames:
                    yield frame
        except Exception as error:
            yield answer(status=_status(error))

    return handler


class MessagingService(MessagingServiceServicer):
    """What RocketMQ's official clients call. A business error is a status in the answer, never gRPC's."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway

    QueryRoute = _answered(pb.QueryRouteResponse, lambda gateway: gateway.routing.route)
    """The queues of a topic."""
    Heartbeat = _answered(pb.HeartbeatResponse, lambda gateway: gateway.presence.heartbeat)
    """Keep a client registered."""
    SendMessage = _answered(pb.SendMessageResponse, lambda gateway: gateway.sending.send)
    """Send; durable when it answers OK."""
    QueryAssignment = _answered(pb.QueryAssignmentResponse, lambda gateway: gateway.routing.assign)
    """What a push consumer receives from."""
    ReceiveMessage = _streamed(pb.ReceiveMessageResponse, lambda gateway: gateway.receiving.receive)
    """Wait for messages and lease them."""
    AckMessage = _answered(pb.AckMessageResponse, lambda gateway: gateway.settling.ack)
    """Messages are done."""
    ChangeInvisibleDuration = _answered(
        pb.ChangeInvisibleDurationResponse, lambda gateway: gateway.settling.change_invisible
    )
    """A message comes back later or sooner."""
    ForwardMessageToDeadLetterQueue = _answered(
        pb.ForwardMessageToDeadLetterQueueResponse, lambda gateway: gateway.settling.park
    )
    """A message is given up."""
    RecallMessage = _answered(pb.RecallMessageResponse, lambda gateway: gateway.recalling.recall)
    """Take a delayed message back."""
    PullMessage = _streamed(pb.PullMessageResponse, lambda gateway: gateway.offsets.pull)
    """Read from an offset."""
    UpdateOffset = _answered(pb.UpdateOffsetResponse, lambda gateway: gateway.offsets.update)
    """Commit an offset."""
    GetOffset = _answered(pb.GetOffsetResponse, lambda gateway: gateway.offsets.get)
    """The group's committed offset."""
    QueryOffset = _answered(pb.QueryOffsetResponse, lambda gateway: gateway.offsets.query)
    """An offset of a queue."""
    EndTransaction = _answered(pb.EndTransactionResponse, lambda gateway: gateway.transacting.end)
    """Commit or roll back."""
    SyncLiteSubscription = _answered(pb.SyncLiteSubscriptionResponse, lambda gateway: gateway.lite.sync)
    """Say which lite topics to receive."""
    NotifyClientTermination = _answered(pb.NotifyClientTerminationResponse, lambda gateway: gateway.presence.leave)
    """Leave in good order."""

    async def Telemetry(
        self, request_iterator: AsyncIterator[pb.TelemetryCommand], context: Context
    ) -> AsyncIterator[pb.TelemetryCommand]:
        """Settings and commands, for as long as the client lives."""
        await context.send_initial_metadata(())  # the Rust client waits for it before it says anything
        try:
            caller = self.gateway.admit(context)
        except (Refused, Forbidden) as refused:
            yield pb.TelemetryCommand(status=status_of(refused))
            raise Invalid(refused.message, field="x-mq-client-id") from None
        async for command in self.gateway.telemetry.converse(caller, request_iterator):
            yield command


class RocketmqAdmin(AdminServicer):
    """apache.rocketmq.v2.Admin, which RocketMQ's console calls."""

    async def ChangeLogLevel(
        self, request: admin_pb2.ChangeLogLevelRequest, context: Context
    ) -> admin_pb2.ChangeLogLevelResponse:
        """Change how much this process logs."""
        level = LOG_LEVELS.get(request.level)
        if level is None:
            raise Invalid(f"{request.level} is no level; give TRACE, DEBUG, INFO, WARN or ERROR", field="level")
        logs.configure(level=level)
        words = f"this snode logs {level} and above until it is started again"
        return admin_pb2.ChangeLogLevelResponse(remark=words)


def _status(error: Exception) -> Status:
    return status_of(error if isinstance(error, Refused) else told_as(error, "a call of the protocol"))
