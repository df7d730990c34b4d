"""Commands of AdminService/CallClient for clients of RocketMQ's protocol, over their telemetry streams."""

from dataclasses import dataclass

from apache.rocketmq.v2 import service_pb2 as pb
from apache.rocketmq.v2.definition_pb2 import Code, Status
from ortoo.common.errors import Conflict, Invalid, NotFound, OrtooError, Unsupported
from ortoo.common.errors.status import failure_of
from ortoo.common.grpc.enum_values import name_of
from ortoo.common.process.clock import Clock
from ortoo.common.records.message import Message
from ortoo.snode.cluster.wire import decode_message
from ortoo.snode.pull.message_search import MessageSearch, SearchRequest
from ortoo.snode.rocketmq.presence.telemetry import TelemetryActivity
from ortoo.snode.rocketmq.protocol.messages import DeliveryInfo, write_message
from ortoo.v1.session_pb2 import Command, CommandResult, ConsumeMessage, ConsumeResult

WAIT_S = 5.0
"""Timeout of a command."""


@dataclass(frozen=True, slots=True)
class RocketmqCommands:
    """Sends operators' commands to clients of RocketMQ's protocol, and returns the results."""

    telemetry: TelemetryActivity
    search: MessageSearch
    clock: Clock

    def has_client(self, client_id: str) -> bool:
        """Whether a client of RocketMQ's protocol with this id is connected to this snode."""
        return self.telemetry.clients.get(client_id) is not None

    async def call(self, client_id: str, command: Command) -> CommandResult:
        """Send a command to a client; returns the result, which may be the client's refusal.

        Errors: Unavailable if the client does not answer, Invalid and NotFound for the message of the command.
        """
        timeout_s = min(command.timeout_ms / 1000 or WAIT_S, WAIT_S)
        try:
            match command.WhichOneof("command"):
                case "print_stack":
                    return await self._print_stack(client_id, timeout_s)
                case "consume_message":
                    return await self._consume_message(client_id, command.consume_message, timeout_s)
                case "reconnect":
                    reconnect = pb.ReconnectEndpointsCommand()
                    self.telemetry.send(client_id, pb.TelemetryCommand(reconnect_endpoints_command=reconnect))
                    return CommandResult()
                case kind:
                    raise Unsupported(
                        f"RocketMQ's clients do not support {kind or 'an empty command'}; they support print_stack, "
                        "consume_message and reconnect"
                    )
        except OrtooError as error:
            if error.retriable or isinstance(error, Invalid | NotFound):
                raise
            return CommandResult(failure=failure_of(error))

    async def _print_stack(self, client_id: str, timeout_s: float) -> CommandResult:
        command = pb.TelemetryCommand(print_thread_stack_trace_command=pb.PrintThreadStackTraceCommand())
        answer = await self.telemetry.call(client_id, command, timeout_s)
        # The C++ client sends its text without a status.
        if answer.HasField("status"):
            _check(client_id, answer.status)
        return CommandResult(stack=answer.thread_stack_trace.thread_stack_trace)

    async def _consume_message(self, client_id: str, command: ConsumeMessage, timeout_s: float) -> CommandResult:
        """Run a client's listener on one message."""
        message, place = await self._find_message(command)
        began_s = self.clock.monotonic_s()
        verify = pb.VerifyMessageCommand(message=write_message(message, place))
        answer = await self.telemetry.call(client_id, pb.TelemetryCommand(verify_message_command=verify), timeout_s)
        consumed = ConsumeResult(succeeded=True, duration_ms=int((self.clock.monotonic_s() - began_s) * 1000))
        if answer.status.code == Code.FAILED_TO_CONSUME_MESSAGE:
            consumed.succeeded, consumed.error = False, answer.status.message or "the listener failed"
        else:
            _check(client_id, answer.status)
        return CommandResult(consumed=consumed)

    async def _find_message(self, command: ConsumeMessage) -> tuple[Message, DeliveryInfo]:
        """The message of the command, or the stored one with its id."""
        queue = command.queue
        if not queue.topic:
            raise Invalid("is missing; give at least the topic of the message", field="consume_message.queue.topic")
        if command.HasField("message"):
            where = (command.offset, command.stored_at_ms, command.message_id)
            return decode_message(command.message), DeliveryInfo(queue.topic, queue.enode, queue.queue_id, *where)
        found = (await self.search.find(queue.topic, SearchRequest("", command.message_id, 0, 0, 1))).messages
        if not found:
            raise NotFound(
                f"topic {queue.topic} has no message {command.message_id}", field="consume_message.message_id"
            )
        [one] = found
        return one.message, DeliveryInfo(*one.queue, one.offset, one.stored_at_ms, one.message_id)


def _check(client_id: str, status: Status) -> None:
    reason = status.message or name_of(Code, status.code)
    if status.code in (Code.NOT_IMPLEMENTED, Code.UNSUPPORTED, Code.VERIFY_FIFO_MESSAGE_UNSUPPORTED):
        raise Unsupported(f"client {client_id} does not know the command: {reason}")
    if status.code != Code.OK:
        raise Conflict(f"client {client_id} refused the command: {reason}")
