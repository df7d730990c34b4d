"""apache.rocketmq.v2.MessagingService: each call read, passed to the gateway and answered in the protocol's words."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol, TypeVar

import grpc

from apache.rocketmq.v2 import service_pb2, service_pb2_grpc
from apache.rocketmq.v2.definition_pb2 import Code, Status
from apache.rocketmq.v2.service_pb2 import TelemetryCommand
from ortoo.common.errors import Forbidden, Invalid, OrtooError
from ortoo.common.process.logs import get_logger
from ortoo.snode.rocketmq.protocol.caller import Caller
from ortoo.snode.rocketmq.protocol.codes import Refused, status_of
from ortoo.snode.rocketmq.rpc.gateway import Gateway

NAME = service_pb2.DESCRIPTOR.services_by_name["MessagingService"].full_name
Context = grpc.aio.ServicerContext[Any, Any]
_log = get_logger("rocketmq")


class Answer(Protocol):
    """Every answer of the protocol carries a status."""

    @property
    def status(self) -> Status:
        """How the call ended."""


A = TypeVar("A", bound=Answer)


class MessagingService(service_pb2_grpc.MessagingServiceServicer):
    """What RocketMQ's official clients call. A business error is a status in the answer, never gRPC's."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def QueryRoute(
        self, request: service_pb2.QueryRouteRequest, context: Context
    ) -> service_pb2.QueryRouteResponse:
        """The queues of a topic."""
        return await self._answered(
            context, service_pb2.QueryRouteResponse, lambda caller: self._gateway.routing.route(caller, request)
        )

    async def Heartbeat(self, request: service_pb2.HeartbeatRequest, context: Context) -> service_pb2.HeartbeatResponse:
        """Keep a client registered."""
        return await self._answered(
            context, service_pb2.HeartbeatResponse, lambda caller: self._gateway.presence.heartbeat(caller, request)
        )

    async def SendMessage(
        self, request: service_pb2.SendMessageRequest, context: Context
    ) -> service_pb2.SendMessageResponse:
        """Send; durable when it answers OK."""
        return await self._answered(
            context, service_pb2.SendMessageResponse, lambda caller: self._gateway.sending.send(caller, request)
        )

    async def QueryAssignment(
        self, request: service_pb2.QueryAssignmentRequest, context: Context
    ) -> service_pb2.QueryAssignmentResponse:
        """What a push consumer receives from."""
        return await self._answered(
            context, service_pb2.QueryAssignmentResponse, lambda caller: self._gateway.routing.assign(caller, request)
        )

    async def ReceiveMessage(
        self, request: service_pb2.ReceiveMessageRequest, context: Context
    ) -> AsyncIterator[service_pb2.ReceiveMessageResponse]:
        """Wait for messages and lease them."""
        try:
            async for frame in self._gateway.receiving.receive(await self._gateway.admit(context), request):
                yield frame
        except Exception as error:
            yield service_pb2.ReceiveMessageResponse(status=_status(error))

    async def AckMessage(
        self, request: service_pb2.AckMessageRequest, context: Context
    ) -> service_pb2.AckMessageResponse:
        """Messages are done."""
        return await self._answered(
            context, service_pb2.AckMessageResponse, lambda caller: self._gateway.settling.ack(caller, request)
        )

    async def ChangeInvisibleDuration(
        self, request: service_pb2.ChangeInvisibleDurationRequest, context: Context
    ) -> service_pb2.ChangeInvisibleDurationResponse:
        """A message comes back later or sooner."""
        return await self._answered(
            context,
            service_pb2.ChangeInvisibleDurationResponse,
            lambda caller: self._gateway.settling.change_invisible(caller, request),
        )

    async def ForwardMessageToDeadLetterQueue(
        self, request: service_pb2.ForwardMessageToDeadLetterQueueRequest, context: Context
    ) -> service_pb2.ForwardMessageToDeadLetterQueueResponse:
        """A message is given up."""
        return await self._answered(
            context,
            service_pb2.ForwardMessageToDeadLetterQueueResponse,
            lambda caller: self._gateway.settling.park(caller, request),
        )

    async def RecallMessage(
        self, request: service_pb2.RecallMessageRequest, context: Context
    ) -> service_pb2.RecallMessageResponse:
        """Take a delayed message back."""
        return await self._answered(
            context, service_pb2.RecallMessageResponse, lambda _: self._gateway.recalling.recall(request)
        )

    async def PullMessage(
        self, request: service_pb2.PullMessageRequest, context: Context
    ) -> AsyncIterator[service_pb2.PullMessageResponse]:
        """Read from an offset."""
        try:
            async for frame in self._gateway.offsets.pull(await self._gateway.admit(context), request):
                yield frame
        except Exception as error:
            yield service_pb2.PullMessageResponse(status=_status(error))

    async def UpdateOffset(
        self, request: service_pb2.UpdateOffsetRequest, context: Context
    ) -> service_pb2.UpdateOffsetResponse:
        """Commit an offset."""
        return await self._answered(
            context, service_pb2.UpdateOffsetResponse, lambda _: self._gateway.offsets.update(request)
        )

    async def GetOffset(self, request: service_pb2.GetOffsetRequest, context: Context) -> service_pb2.GetOffsetResponse:
        """The group's committed offset."""
        return await self._answered(
            context, service_pb2.GetOffsetResponse, lambda _: self._gateway.offsets.get(request)
        )

    async def QueryOffset(
        self, request: service_pb2.QueryOffsetRequest, context: Context
    ) -> service_pb2.QueryOffsetResponse:
        """An offset of a queue."""
        return await self._answered(
            context, service_pb2.QueryOffsetResponse, lambda _: self._gateway.offsets.query(request)
        )

    async def Telemetry(
        self, request_iterator: AsyncIterator[TelemetryCommand], context: Context
    ) -> AsyncIterator[TelemetryCommand]:
        """Settings and commands, for as long as the client lives."""
        await context.send_initial_metadata(())  # the Rust client waits for it before it says anything
        try:
            caller = await self._gateway.admit(context)
        except (Refused, Forbidden) as refused:
            yield TelemetryCommand(status=status_of(refused))
            raise Invalid(refused.message, field="x-mq-client-id") from None
        async for command in self._gateway.telemetry.converse(caller, request_iterator):
            yield command

    async def EndTransaction(
        self, request: service_pb2.EndTransactionRequest, context: Context
    ) -> service_pb2.EndTransactionResponse:
        """Commit or roll back."""
        return await self._answered(
            context, service_pb2.EndTransactionResponse, lambda _: self._gateway.transacting.end(request)
        )

    async def SyncLiteSubscription(
        self, request: service_pb2.SyncLiteSubscriptionRequest, context: Context
    ) -> service_pb2.SyncLiteSubscriptionResponse:
        """Say which lite topics to receive."""
        return await self._answered(
            context, service_pb2.SyncLiteSubscriptionResponse, lambda caller: self._gateway.lite.sync(caller, request)
        )

    async def NotifyClientTermination(
        self, request: service_pb2.NotifyClientTerminationRequest, context: Context
    ) -> service_pb2.NotifyClientTerminationResponse:
        """Leave in good order."""
        return await self._answered(
            context,
            service_pb2.NotifyClientTerminationResponse,
            lambda caller: self._gateway.presence.leave(caller, request),
        )

    async def _answered(self, context: Context, answer: Callable[..., A], call: Callable[[Caller], Awaitable[A]]) -> A:
        """The answer of `call`, or one that says in its status why there is none."""
        try:
            return await call(await self._gateway.admit(context))
        except Exception as error:
            return answer(status=_status(error))


def _status(error: Exception) -> Status:
    if isinstance(error, Refused | OrtooError):
        return status_of(error)
    _log.error("a call of the protocol met a defect", exc_info=error)
    return Status(code=Code.INTERNAL_SERVER_ERROR, message="a defect was met; the snode's log has it")
