"""Commands of AdminService/CallClient for clients of RocketMQ's protocol."""

from dataclasses import dataclass

from ortoo.common.errors import Invalid, NotFound, OrtooError, Unsupported
from ortoo.common.errors.status import failure_of
from ortoo.common.records.message import Message
from ortoo.snode.cluster.wire import message_of
from ortoo.snode.pull.search import MessageSearch, Wish
from ortoo.snode.rocketmq.presence.commanding import WAIT_S, Commanding
from ortoo.snode.rocketmq.protocol.messages import Delivery
from ortoo.v1 import session_pb2


@dataclass(frozen=True, slots=True)
class RocketmqCommands:
    """Translates a command and what became of it."""

    commanding: Commanding
    search: MessageSearch

    def knows(self, client_id: str) -> bool:
        """Whether this is one of RocketMQ's clients at this snode."""
        return self.commanding.knows(client_id)

    async def call(self, client_id: str, command: session_pb2.Command) -> session_pb2.CommandResult:
        """Make a client do something; what it refuses is in the result.

        Errors: Unavailable when it does not answer; Invalid and NotFound for a message that is not there.
        """
        timeout_s = min(command.timeout_ms / 1000 or WAIT_S, WAIT_S)
        try:
            match command.WhichOneof("command"):
                case "print_stack":
                    return session_pb2.CommandResult(stack=await self.commanding.stack(client_id, timeout_s))
                case "consume_message":
                    return await self._consume(client_id, command.consume_message, timeout_s)
                case "reconnect":
                    self.commanding.reconnect(client_id)
                    return session_pb2.CommandResult()
                case kind:
                    raise Unsupported(
                        f"RocketMQ's clients cannot be told to {kind or 'do nothing'}; they know print_stack, "
                        "consume_message and reconnect"
                    )
        except OrtooError as error:
            if error.retriable or isinstance(error, Invalid | NotFound):
                raise
            return session_pb2.CommandResult(failure=failure_of(error))

    async def _consume(
        self, client_id: str, wish: session_pb2.ConsumeMessage, timeout_s: float
    ) -> session_pb2.CommandResult:
        message, place = await self._found(wish)
        done = await self.commanding.verify(client_id, message, place, timeout_s)
        consumed = session_pb2.ConsumeResult(succeeded=done.succeeded, duration_ms=done.duration_ms, error=done.error)
        return session_pb2.CommandResult(consumed=consumed)

    async def _found(self, wish: session_pb2.ConsumeMessage) -> tuple[Message, Delivery]:
        """The message that came with the command, or the stored one with its id."""
        queue = wish.queue
        if not queue.topic:
            raise Invalid("say where the message lies: at least the topic", field="consume_message.queue.topic")
        if wish.HasField("message"):
            place = Delivery(queue.topic, queue.enode, queue.queue_id, wish.offset, wish.stored_at_ms, wish.message_id)
            return message_of(wish.message), place
        found = (await self.search.find(queue.topic, Wish("", wish.message_id, 0, 0, 1))).messages
        if not found:
            raise NotFound(f"topic {queue.topic} has no message {wish.message_id}", field="consume_message.message_id")
        [one] = found
        at = one.queue
        return one.message, Delivery(at.topic, at.enode, at.queue_id, one.offset, one.stored_at_ms, one.message_id)
