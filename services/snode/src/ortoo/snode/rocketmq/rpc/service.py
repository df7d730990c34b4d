"""apache.rocketmq.v2: each call is decoded, passed to the gateway and answered."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeVar

from apache.rocketmq.v2 import admin_pb2
from apache.rocketmq.v2 import service_pb2 as pb
from apache.rocketmq.v2.admin_pb2_grpc import AdminServicer
from apache.rocketmq.v2.definition_pb2 import Status
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceServicer
from ortoo.common.errors import Forbidden, Invalid
from ortoo.common.grpc.layers.answers import Answers
from ortoo.common.grpc.layers.polls import PollWait
from ortoo.common.grpc.layers.repeats import Key
from ortoo.common.logs import logger as logs
from ortoo.common.process.containment import as_ortoo_error
from ortoo.common.telemetry.call_metrics import report_status
from ortoo.snode.rocketmq.protocol.caller import Caller, Context
from ortoo.snode.rocketmq.protocol.codes import GrpcProxyError, grpc_status_name, status_of
from ortoo.snode.rocketmq.protocol.namespaces import NAMESPACE_HEADER
from ortoo.snode.rocketmq.rpc.activities import MessagingActivities

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
"""An answer of the protocol; every answer has a status."""


def _unary(
    response_type: Callable[..., A], activity: Callable[[MessagingActivities], Callable[[Caller, Q], Awaitable[A]]]
) -> Any:  # a callable type lacks the argument names of the servicer's methods
    """A handler that returns the answer of `activity`. An error becomes the status of an otherwise empty answer."""

    async def handler(service: "MessagingService", request: Q, context: Context) -> A:
        try:
            return await activity(service.activities)(service.activities.authenticate(context), request)
        except Exception as error:
            return response_type(status=_status(error))

    return handler


def _starts(
    handler: Any,
    response_type: Callable[..., A],
    start: Callable[[MessagingActivities], Callable[[Caller, Q, Callable[[Any], None]], bool]],
    *,
    repeats: bool = False,
) -> Any:
    """A handler whose usual calls need no task (`ortoo.common.grpc.layers.direct`).

    With `repeats`, its answers may be `Repeatable`.
    """

    def start_now(service: "MessagingService", request: Q, context: Context, done: Callable[[Any], None]) -> bool:
        try:
            return start(service.activities)(service.activities.authenticate(context), request, done)
        except Exception as error:
            done(response_type(status=_status(error)))
            return True

    handler.start = start_now
    handler.repeats = repeats
    return handler


def _stream(
    response_type: Callable[..., A],
    activity: Callable[[MessagingActivities], Callable[[Caller, Q], AsyncGenerator[A | Answers, None]]],
) -> Any:
    """A handler that yields the answers of `activity`. An error becomes the status of the last answer."""

    async def handler(service: "MessagingService", request: Q, context: Context) -> AsyncIterator[A | Answers]:
        try:
            frames = activity(service.activities)(service.activities.authenticate(context), request)
            async with aclosing(frames):  # a cancellation waits for the clean-up of the part
                async for frame in frames:
                    yield frame
        except Exception as error:
            yield response_type(status=_status(error))

    return handler


Begin = Callable[[bytes, Key, str, PollWait], Callable[[], None] | None]
"""Takes the request, the key of the layers, the namespace of names without one, and the call."""


def _polls(handler: Any, begin: Callable[[MessagingActivities], Begin]) -> Any:
    """A handler whose calls may wait without being made (`ortoo.common.grpc.layers.polls`)."""

    def poll(service: "MessagingService", request: bytes, key: Key, wait: PollWait) -> Callable[[], None] | None:
        namespace = wait.headers.get(NAMESPACE_HEADER, "")
        try:
            return begin(service.activities)(request, key, namespace, wait)
        except Exception:
            return None  # the call reports the error

    handler.poll = poll
    return handler


class MessagingService(MessagingServiceServicer):
    """The service for RocketMQ's official clients. An error is a status in the answer, never a gRPC status."""

    def __init__(self, activities: MessagingActivities) -> None:
        self.activities = activities

    QueryRoute = _starts(
        _unary(pb.QueryRouteResponse, lambda gateway: gateway.route.query_route),
        pb.QueryRouteResponse,
        lambda gateway: gateway.route.start_query_route,
        repeats=True,
    )
    """The queues of a topic."""
    Heartbeat = _starts(
        _unary(pb.HeartbeatResponse, lambda gateway: gateway.client_activity.heartbeat),
        pb.HeartbeatResponse,
        lambda gateway: gateway.client_activity.start_heartbeat,
        repeats=True,
    )
    """Keep a client registered."""
    SendMessage = _starts(
        _unary(pb.SendMessageResponse, lambda gateway: gateway.send_message.send),
        pb.SendMessageResponse,
        lambda gateway: gateway.send_message.start,
    )
    """Send messages. The answer OK means that they are durable."""
    QueryAssignment = _starts(
        _unary(pb.QueryAssignmentResponse, lambda gateway: gateway.route.query_assignment),
        pb.QueryAssignmentResponse,
        lambda gateway: gateway.route.start_query_assignment,
        repeats=True,
    )
    """The queues for a push consumer."""
    ReceiveMessage = _polls(
        _stream(pb.ReceiveMessageResponse, lambda gateway: gateway.receive_message.receive),
        lambda gateway: gateway.idle_polls.begin,
    )
    """Wait for messages and lease them."""
    AckMessage = _polls(
        _starts(
            _unary(pb.AckMessageResponse, lambda gateway: gateway.settlement.ack),
            pb.AckMessageResponse,
            lambda gateway: gateway.settlement.start_ack,
        ),
        lambda gateway: gateway.settlement.begin_ack,
    )
    """Ack messages."""
    ChangeInvisibleDuration = _unary(
        pb.ChangeInvisibleDurationResponse, lambda gateway: gateway.settlement.change_invisible
    )
    """Change when a message is delivered again."""
    ForwardMessageToDeadLetterQueue = _unary(
        pb.ForwardMessageToDeadLetterQueueResponse, lambda gateway: gateway.settlement.park
    )
    """Move a message to the dead letters."""
    RecallMessage = _unary(pb.RecallMessageResponse, lambda gateway: gateway.recall_message.recall)
    """Recall a delayed message."""
    PullMessage = _stream(pb.PullMessageResponse, lambda gateway: gateway.offsets.pull)
    """Read from an offset."""
    UpdateOffset = _unary(pb.UpdateOffsetResponse, lambda gateway: gateway.offsets.update)
    """Commit an offset."""
    GetOffset = _unary(pb.GetOffsetResponse, lambda gateway: gateway.offsets.get)
    """The group's committed offset."""
    QueryOffset = _unary(pb.QueryOffsetResponse, lambda gateway: gateway.offsets.query)
    """An offset of a queue."""
    EndTransaction = _unary(pb.EndTransactionResponse, lambda gateway: gateway.transactions.end)
    """Commit or roll back."""
    SyncLiteSubscription = _unary(pb.SyncLiteSubscriptionResponse, lambda gateway: gateway.lite_subscription.sync)
    """Subscribe to lite topics."""
    NotifyClientTermination = _unary(
        pb.NotifyClientTerminationResponse, lambda gateway: gateway.client_activity.terminate
    )
    """Leave gracefully."""

    async def Telemetry(
        self, request_iterator: AsyncIterator[pb.TelemetryCommand], context: Context
    ) -> AsyncIterator[pb.TelemetryCommand]:
        """Settings and commands, while the client is connected."""
        await context.send_initial_metadata(())  # the Rust client waits for it before it sends anything
        try:
            caller = self.activities.authenticate(context)
        except (GrpcProxyError, Forbidden) as refused:
            yield pb.TelemetryCommand(status=status_of(refused))
            raise Invalid(refused.message, field="x-mq-client-id") from None
        async for command in self.activities.telemetry.run_stream(caller, request_iterator):
            yield command


class RocketmqAdmin(AdminServicer):
    """apache.rocketmq.v2.Admin, which RocketMQ's console calls."""

    async def ChangeLogLevel(
        self, request: admin_pb2.ChangeLogLevelRequest, context: Context
    ) -> admin_pb2.ChangeLogLevelResponse:
        """Change the log level of this process."""
        level = LOG_LEVELS.get(request.level)
        if level is None:
            raise Invalid(f"{request.level} is not a level; give TRACE, DEBUG, INFO, WARN or ERROR", field="level")
        logs.configure(level=level)
        remark = f"this snode logs {level} and above until it is restarted"
        return admin_pb2.ChangeLogLevelResponse(remark=remark)


def _status(error: Exception) -> Status:
    known = error if isinstance(error, GrpcProxyError) else as_ortoo_error(error, "a call of the protocol")
    report_status(grpc_status_name(known))
    return status_of(known)
