"""One push session on the wire: requests out, events in."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

import grpc

from ortoo.client.core.conversation import Conversation
from ortoo.client.core.filters import Filter, expressions
from ortoo.client.core.place import Queue
from ortoo.client.core.received import ReceivedBatch
from ortoo.common.groups.allocation import AllocationStrategy
from ortoo.common.grpc import bulk_calls
from ortoo.common.grpc.bulk_field import Bulky
from ortoo.common.process.clock import Clock
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.v1 import consumer_pb2, pop_pb2, pull_pb2, topic_pb2

LANGUAGE = "python"


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

    def acknowledged(self, acknowledgements: Sequence[Acknowledgement]) -> None:
        """These offsets are durable."""


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
        elif kind == "acknowledged":
            self._events.acknowledged(
                [Acknowledgement(queue_of(it.queue), it.offset, it.generation) for it in response.acknowledged.offsets]
            )
        elif kind == "opened":
            self.is_opened = True
            self._conversation.heartbeat_s = max(0.1, response.opened.heartbeat_interval_ms / 1000)
        elif kind == "closed":
            self._closed = response.closed
            return True
        return False


def opening(
    group: str,
    topics: Mapping[str, Filter],
    *,
    client_id: str,
    room: str,
    from_first: bool,
    from_time_ms: int | None,
    strategy: AllocationStrategy,
    configured_queues: Sequence[Queue],
    rooms: Sequence[str],
    broadcast: bool = False,
) -> consumer_pb2.OpenSession:
    """The first request of a session."""
    return consumer_pb2.OpenSession(
        group=group,
        client_id=client_id,
        room=room,
        subscriptions=[subscription(topic, wanted) for topic, wanted in sorted(topics.items(), key=lambda it: it[0])],
        start_from=start_from(from_first, from_time_ms),
        start_time_ms=from_time_ms or 0,
        strategy=strategy.value,  # type: ignore[arg-type]
        configured_queues=map(wire_queue, configured_queues),
        rooms=rooms,
        message_model=consumer_pb2.MESSAGE_MODEL_BROADCAST if broadcast else consumer_pb2.MESSAGE_MODEL_CLUSTERING,
        client_version=client_version(),
        language=LANGUAGE,
    )


def start_from(from_first: bool, from_time_ms: int | None) -> "consumer_pb2.StartFrom.ValueType":
    """Where a group without an offset starts, as it travels."""
    if from_time_ms is not None:
        return consumer_pb2.START_FROM_TIME
    return consumer_pb2.START_FROM_FIRST if from_first else consumer_pb2.START_FROM_LAST


def received_batch(delivery: consumer_pb2.Delivery, records: bytes, queue: Queue, **rest: object) -> ReceivedBatch:
    """A delivery's batch, read."""
    return ReceivedBatch(
        queue,
        sealed_batch(delivery, records),
        topic_id=delivery.topic_id,
        first_offset=delivery.first_offset,
        next_offset=delivery.next_offset,
        stored_at_ms=delivery.stored_at_ms,
        rows=delivery.rows,
        **rest,  # type: ignore[arg-type]
    )


def sealed_batch(
    delivery: "consumer_pb2.Delivery | consumer_pb2.FetchResponse | pull_pb2.PulledBatch | pop_pb2.PoppedMessages",
    records: bytes | None = None,
) -> SealedBatch:
    """The sealed batch of a delivery; `records` are its bytes if they came beside it."""
    batch = delivery.batch
    records = batch.records if records is None else records
    return SealedBatch(records, batch.records_crc32c, batch.count, batch.body_inflated_bytes)


def subscription(topic: str, wanted: Filter, version: int = 0) -> consumer_pb2.Subscription:
    """A topic and its filter, as they travel; an older version than known is ignored, 0 never is."""
    tags, sql = expressions(wanted)
    return consumer_pb2.Subscription(topic=topic, tag_expression=tags, sql_expression=sql, version=version)


def wire_queue(queue: Queue) -> topic_pb2.Queue:
    """A queue, as it travels."""
    return topic_pb2.Queue(topic=queue.topic, enode=queue.enode, queue_id=queue.queue_id)


def queue_of(queue: topic_pb2.Queue) -> Queue:
    """A queue that came."""
    return Queue(queue.topic, queue.enode, queue.queue_id)


def client_version() -> str:
    """The version of this client, for people."""
    try:
        return version("ortoo-client")
    except PackageNotFoundError:
        return "unknown"
