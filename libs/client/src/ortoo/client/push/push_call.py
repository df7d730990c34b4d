"""One push session on the wire: requests out, events in."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import grpc

from ortoo.client.core.conversation import Conversation
from ortoo.client.core.place import Queue
from ortoo.client.core.wire import queue_of, wire_queue
from ortoo.common.grpc import bulk_calls
from ortoo.common.grpc.bulk_field import Bulky
from ortoo.common.process.clock import Clock
from ortoo.v1 import consumer_pb2


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """Everything before `offset` of a queue is processed."""

    queue: Queue
    offset: int
    generation: int


class PushEvents(Protocol):
    """Who hears what the server says."""

    def assigned(self, generation: int, queues: Sequence[Queue]) -> None:
        """These are the session's queues now."""

    def delivered(self, delivery: consumer_pb2.Delivery, records: bytes, queue: Queue) -> None:
        """A batch with these bytes came, or an offset moved on."""


class PushCall:
    """A session with one snode. `run` ends when the session does."""

    def __init__(self, channel: grpc.aio.Channel, peer: str, events: PushEvents, *, clock: Clock) -> None:
        """Tell `events` what the snode at `peer` says."""
        self.is_opened = False
        """Whether the snode has opened the session: then it works, and a break is no sign of one that does not."""
        self._channel = channel
        self._events = events
        self._closed = consumer_pb2.SessionClosed()
        self._conversation: Conversation[consumer_pb2.PushRequest, Bulky] = Conversation(
            peer, self._hear, lambda: consumer_pb2.PushRequest(heartbeat=consumer_pb2.Heartbeat()), clock=clock
        )

    def open(self, opening: consumer_pb2.OpenSession) -> None:
        """Join the group; said first."""
        self._say(open=opening)

    def grant(self, messages: int, size_bytes: int) -> None:
        """Let the server send more."""
        self._say(credit=consumer_pb2.Credit(messages=messages, bytes=size_bytes))

    def acknowledge(self, acknowledgements: Sequence[Acknowledgement]) -> None:
        """Say what is processed."""
        offsets = [
            consumer_pb2.AcknowledgedOffset(queue=wire_queue(it.queue), offset=it.offset, generation=it.generation)
            for it in acknowledgements
        ]
        self._say(acknowledge=consumer_pb2.Acknowledge(offsets=offsets))

    def subscribe(self, subscriptions: Sequence[consumer_pb2.Subscription]) -> None:
        """Want something else from now on."""
        self._say(subscribe=consumer_pb2.Subscribe(subscriptions=subscriptions))

    def suspend(self, queues: Collection[Queue], *, everything: bool) -> None:
        """Take nothing of these queues, or of any; what was said before counts no more."""
        self._say(suspend=consumer_pb2.Suspend(everything=everything, queues=map(wire_queue, queues)))

    def leave(self) -> None:
        """Leave the group after everything said so far."""
        self._say(close=consumer_pb2.CloseSession())

    async def run(self) -> consumer_pb2.SessionClosed:
        """Converse until the server closes the session. Errors: what the server refused it with; Unavailable."""
        await self._conversation.run(bulk_calls.push(self._channel))
        return self._closed

    def _say(self, **event: Any) -> None:
        self._conversation.say(consumer_pb2.PushRequest(**event))

    def _hear(self, bulky: Bulky) -> bool:
        response, (records,) = bulky
        kind = response.WhichOneof("event")
        if kind == "delivery":
            self._events.delivered(response.delivery, records, queue_of(response.delivery.queue))
        elif kind == "assignment":
            queues = [queue_of(queue) for queue in response.assignment.queues]
            self._events.assigned(response.assignment.generation, queues)
        elif kind == "opened":
            self.is_opened = True
            self._conversation.heartbeat_s = max(0.1, response.opened.heartbeat_interval_ms / 1000)
        elif kind == "closed":
            self._closed = response.closed
            return True
        return False
