"""Commands of operators to RocketMQ's clients, over their telemetry streams, and the answers by their nonces."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from apache.rocketmq.v2 import service_pb2 as pb
from apache.rocketmq.v2.definition_pb2 import Code, Status
from ortoo.common.errors import Conflict, Unavailable, Unsupported
from ortoo.common.process.clock import Clock
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.message import Message
from ortoo.snode.rocketmq.clients.table import Clients, CommandStream
from ortoo.snode.rocketmq.protocol.messages import Delivery, delivered

WAIT_S = 5.0
"""How long a client may take to answer a command."""


class Results:
    """The commands whose answers are waited for."""

    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness
        self._waiting: dict[str, asyncio.Future[pb.TelemetryCommand]] = {}

    def nonce(self) -> str:
        """A new number for a command."""
        return self._randomness.id_text()

    async def ask(self, say: Callable[[str], None], timeout_s: float) -> pb.TelemetryCommand:
        """Say a command with a new nonce; its answer.

        Errors: those of `say`; Unavailable when the client does not answer, as some kinds of client never do.
        """
        nonce = self.nonce()
        answer: asyncio.Future[pb.TelemetryCommand] = asyncio.get_running_loop().create_future()
        self._waiting[nonce] = answer
        try:
            say(nonce)
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            raise Unavailable(
                f"the client did not answer the command within {timeout_s:g} s; some kinds of client never do"
            ) from None
        finally:
            del self._waiting[nonce]

    def arrived(self, nonce: str, answer: pb.TelemetryCommand) -> None:
        """An answer came; one that nobody waits for is forgotten."""
        future = self._waiting.get(nonce)
        if future is not None and not future.done():
            future.set_result(answer)


@dataclass(frozen=True, slots=True)
class Verified:
    """What a client's listener made of one message."""

    succeeded: bool
    duration_ms: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class Commanding:
    """Tells one client what to do, and waits for what it answers."""

    clients: Clients
    results: Results
    clock: Clock

    def knows(self, client_id: str) -> bool:
        """Whether this is one of RocketMQ's clients at this snode."""
        return self.clients.get(client_id) is not None

    async def stack(self, client_id: str, timeout_s: float) -> str:
        """What the threads of a client do. Errors: Unavailable, Unsupported, Conflict."""
        stream = self._stream(client_id)

        def say(nonce: str) -> None:
            stream.say(
                pb.TelemetryCommand(print_thread_stack_trace_command=pb.PrintThreadStackTraceCommand(nonce=nonce))
            )

        answer = await self.results.ask(say, timeout_s)
        # The C++ client gives no status with its text.
        if answer.HasField("status"):
            _check(client_id, answer.status)
        return answer.thread_stack_trace.thread_stack_trace

    async def verify(self, client_id: str, message: Message, to: Delivery, timeout_s: float) -> Verified:
        """Run a client's listener on one message. Errors: Unavailable, Unsupported, Conflict."""
        began_s = self.clock.monotonic_s()
        stream = self._stream(client_id)

        def say(nonce: str) -> None:
            command = pb.VerifyMessageCommand(nonce=nonce, message=delivered(message, to))
            stream.say(pb.TelemetryCommand(verify_message_command=command))

        answer = await self.results.ask(say, timeout_s)
        took_ms = int((self.clock.monotonic_s() - began_s) * 1000)
        if answer.status.code == Code.FAILED_TO_CONSUME_MESSAGE:
            return Verified(False, took_ms, answer.status.message or "the listener failed")
        _check(client_id, answer.status)
        return Verified(True, took_ms)

    def reconnect(self, client_id: str) -> None:
        """Tell a client to connect anew; it answers nothing. Errors: Unavailable, Overloaded."""
        command = pb.ReconnectEndpointsCommand(nonce=self.results.nonce())
        self._stream(client_id).say(pb.TelemetryCommand(reconnect_endpoints_command=command))

    def _stream(self, client_id: str) -> CommandStream:
        client = self.clients.get(client_id)
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
