"""The conversation on a client's telemetry stream: settings are answered at once, commands are forwarded."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from apache.rocketmq.v2.definition_pb2 import Settings
from apache.rocketmq.v2.service_pb2 import TelemetryCommand
from ortoo.common.errors import Invalid, OrtooError, Overloaded, Unavailable
from ortoo.common.grpc.errors import translate_error
from ortoo.common.grpc.layers.call_memory import current_memory_share
from ortoo.common.process.containment import Scope
from ortoo.snode.cluster.directory import DirectoryCache
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.rocketmq.clients.registration import ClientRegistration
from ortoo.snode.rocketmq.clients.settings_reply import NODE_JS, make_settings_reply
from ortoo.snode.rocketmq.clients.table import ClientTable, CommandStream, ConnectedClient, check_size
from ortoo.snode.rocketmq.protocol.caller import Caller
from ortoo.snode.rocketmq.protocol.codes import GrpcProxyError, ok_status, status_of
from ortoo.snode.rocketmq.protocol.names import group_name, topic_name
from ortoo.snode.rocketmq.send.transactions import TransactionActivity

CLOSE_TIMEOUT_S = 2.0
"""Time for a client that has not read for long to receive the reason why its stream ends."""
SETTINGS_RESEND_DELAYS_S = (1.0, 2.0, 7.0)
"""Delays after which the settings are repeated, for a client that may have missed the first answer."""
RESPONSE_KINDS = ("thread_stack_trace", "verify_message_result", "verify_message_command")
"""Commands that are answers. With the last one the Node.js client reports that it does not know a command."""


@dataclass(frozen=True, slots=True)
class TelemetryActivity:
    """The telemetry streams of all clients of this snode."""

    clients: ClientTable
    directory: DirectoryCache
    transactions: TransactionActivity
    registration: ClientRegistration
    runtime: Runtime
    _pending_commands: dict[str, asyncio.Future[TelemetryCommand]] = field(default_factory=dict, init=False)
    """By nonce, the commands that wait for an answer."""

    async def run_stream(
        self, caller: Caller, requests: AsyncIterator[TelemetryCommand]
    ) -> AsyncIterator[TelemetryCommand]:
        """Yield the commands for a client until the client or the server ends the stream.

        Errors: those of the client's settings, Overloaded.
        """
        stream = CommandStream(current_memory_share())
        scope = self.runtime.background.scope("Telemetry", failed=stream.end)
        scope.start("listen", self._listen(caller, requests, stream, scope))
        try:
            with self.runtime.stream_ages.track(stream.end):
                while (command := await stream.next()) is not None:
                    yield command
            if stream.error is not None:
                raise stream.error
        finally:
            scope.cancel()
            client = self.clients.get(caller.client_id)
            if client is not None and client.stream is stream:
                client.stream, client.has_lost_stream = None, True
                self.transactions.unwatch_transactions(client)

    def send(self, client_id: str, command: TelemetryCommand) -> str:
        """Send a command to a client under a new nonce.

        Errors: Unavailable if the client has no telemetry stream to this snode, Overloaded.
        """
        client = self.clients.get(client_id)
        if client is None or client.stream is None:
            raise Unavailable(
                f"client {client_id} has no telemetry stream to this snode now, so it can receive no command; retry",
                field="client_id",
            )
        kind = command.WhichOneof("command")
        assert kind is not None
        nonce = self.runtime.randomness.id_text()
        getattr(command, kind).nonce = nonce
        client.stream.send(command)
        return nonce

    async def call(self, client_id: str, command: TelemetryCommand, timeout_s: float) -> TelemetryCommand:
        """Send a command to a client; returns its answer.

        Errors: as `send`, or Unavailable if the client does not answer. Some kinds of client never answer.
        """
        nonce = self.send(client_id, command)
        response: asyncio.Future[TelemetryCommand] = asyncio.get_running_loop().create_future()
        self._pending_commands[nonce] = response
        try:
            async with asyncio.timeout(timeout_s):
                return await response
        except TimeoutError:
            raise Unavailable(
                f"the client did not answer the command within {timeout_s:g} s; some kinds of client never answer"
            ) from None
        finally:
            del self._pending_commands[nonce]

    async def _listen(
        self, caller: Caller, requests: AsyncIterator[TelemetryCommand], stream: CommandStream, scope: Scope
    ) -> None:
        try:
            async for request in requests:
                await self._on_request(caller, request, stream, scope)
            stream.end()
        except Overloaded as error:
            stream.end(error)
            # The status follows queued commands, so a client that still does not read never receives it.
            await self.runtime.clock.sleep(CLOSE_TIMEOUT_S)
            if (share := current_memory_share()) is not None:
                share.terminate()
        except (GrpcProxyError, OrtooError) as error:
            stream.end_with(TelemetryCommand(status=status_of(error)), Invalid(str(error), field="settings"))
        except asyncio.CancelledError:
            stream.end()
            raise
        except Exception as error:
            stream.end(translate_error(error, "Telemetry"))

    async def _on_request(self, caller: Caller, request: TelemetryCommand, stream: CommandStream, scope: Scope) -> None:
        client = self.clients.touch(caller, self.runtime.clock.monotonic_s())
        kind = request.WhichOneof("command")
        if kind == "settings":
            client.peer = caller.peer()
            await self._on_settings(client, request.settings, stream, scope)
        elif kind in RESPONSE_KINDS:  # otherwise it is a command of a newer client, unknown to this server
            response = self._pending_commands.get(getattr(request, kind).nonce)
            if response is not None and not response.done():
                response.set_result(request)

    async def _on_settings(
        self, client: ConnectedClient, settings: Settings, stream: CommandStream, scope: Scope
    ) -> None:
        """Store the client's settings, and answer. Errors: GrpcProxyError, Invalid, Overloaded."""
        check_size(settings)
        if settings.HasField("subscription"):
            part = settings.subscription
            client.group = group_name(part.group)
            for entry in part.subscriptions:
                topic_name(entry.topic)  # a wrong filter is refused later, at ReceiveMessage
        elif settings.HasField("publishing"):
            self.clients.add_published_topics(client, {topic_name(topic) for topic in settings.publishing.topics})
        else:
            raise Invalid("neither `publishing` nor `subscription` is set; set one of them", field="settings")
        self.clients.set_settings(client, settings)
        client.client_type = settings.client_type
        is_new = client.stream is not stream
        client.stream, client.has_lost_stream = stream, False
        self.transactions.watch_transactions(client)
        await self.registration.register(client)
        reply = make_settings_reply(settings, client.language, self.directory.group(client.group))
        command = TelemetryCommand(status=ok_status(), settings=reply)
        stream.send(command)
        if is_new and client.language == NODE_JS:
            # A client may start to listen after the answer arrived; then it would wait for ever.
            scope.start("settings again", self._resend_settings(stream, command))

    async def _resend_settings(self, stream: CommandStream, command: TelemetryCommand) -> None:
        for wait_s in SETTINGS_RESEND_DELAYS_S:
            await self.runtime.clock.sleep(wait_s)
            if stream.is_ended:
                return
            stream.send(command)
