"""Commands of operators to RocketMQ's clients, over their telemetry streams."""

from collections.abc import Callable
from dataclasses import dataclass

from apache.rocketmq.v2.definition_pb2 import Code, Status
from apache.rocketmq.v2.service_pb2 import (
    PrintThreadStackTraceCommand,
    ReconnectEndpointsCommand,
    TelemetryCommand,
    VerifyMessageCommand,
)
from ortoo.common.errors import Conflict, Unavailable, Unsupported
from ortoo.common.process.clock import Clock
from ortoo.common.records.message import Message
from ortoo.snode.rocketmq.clients.table import Clients, CommandStream
from ortoo.snode.rocketmq.presence.results import Results
from ortoo.snode.rocketmq.protocol.messages import Delivery, delivered


@dataclass(frozen=True, slots=True)
class Verified:
    """What a client's listener made of one message."""

    succeeded: bool
    duration_ms: int
    error: str = ""


class Commanding:
    """Tells one client what to do, and waits for what it answers."""

    def __init__(self, clients: Clients, results: Results, clock: Clock) -> None:
        self._clients = clients
        self._results = results
        self._clock = clock

    def knows(self, client_id: str) -> bool:
        """Whether this is one of RocketMQ's clients at this snode."""
        return self._clients.get(client_id) is not None

    async def stack(self, client_id: str, timeout_s: float) -> str:
        """What the threads of a client do. Errors: Unavailable, Unsupported, Conflict."""
        answer = await self._ask(
            client_id,
            timeout_s,
            lambda nonce: TelemetryCommand(print_thread_stack_trace_command=PrintThreadStackTraceCommand(nonce=nonce)),
        )
        # The C++ client gives no status with its text.
        if answer.HasField("status"):
            _check(client_id, answer.status)
        return answer.thread_stack_trace.thread_stack_trace

    async def verify(self, client_id: str, message: Message, to: Delivery, timeout_s: float) -> Verified:
        """Run a client's listener on one message. Errors: Unavailable, Unsupported, Conflict."""
        began_s = self._clock.monotonic_s()
        answer = await self._ask(
            client_id,
            timeout_s,
            lambda nonce: TelemetryCommand(
                verify_message_command=VerifyMessageCommand(nonce=nonce, message=delivered(message, to))
            ),
        )
        took_ms = int((self._clock.monotonic_s() - began_s) * 1000)
        if answer.status.code == Code.FAILED_TO_CONSUME_MESSAGE:
            return Verified(False, took_ms, answer.status.message or "the listener failed")
        _check(client_id, answer.status)
        return Verified(True, took_ms)

    def reconnect(self, client_id: str) -> None:
        """Tell a client to connect anew; it answers nothing. Errors: Unavailable, Overloaded."""
        command = ReconnectEndpointsCommand(nonce=self._results.number())
        self._stream(client_id).say(TelemetryCommand(reconnect_endpoints_command=command))

    async def _ask(self, client_id: str, timeout_s: float, made: Callable[[str], TelemetryCommand]) -> TelemetryCommand:
        stream = self._stream(client_id)
        return await self._results.ask(lambda nonce: stream.say(made(nonce)), timeout_s)

    def _stream(self, client_id: str) -> CommandStream:
        client = self._clients.get(client_id)
        if client is None or client.stream is None:
            raise Unavailable(
                f"client {client_id} has no telemetry stream to this snode now, so it hears no commands; try again",
                field="client_id",
            )
        return client.stream


def _check(client_id: str, status: Status) -> None:
    if status.code in (Code.NOT_IMPLEMENTED, Code.UNSUPPORTED, Code.VERIFY_FIFO_MESSAGE_UNSUPPORTED):
        raise Unsupported(f"client {client_id} does not know the command: {_words(status)}")
    if status.code != Code.OK:
        raise Conflict(f"client {client_id} did not do it: {_words(status)}")


def _words(status: Status) -> str:
    return status.message or Code.Name(status.code)
