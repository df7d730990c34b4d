"""The push consumer: a group member that receives whole batches and acknowledges them."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

from ortoo.client.core.closed import ConsumerClosed, Openable
from ortoo.client.core.connection import Connection
from ortoo.client.core.filters import Filter, TopicFilters, topic_filters
from ortoo.client.core.handlers import nack_messages
from ortoo.client.core.queues import Queue
from ortoo.client.core.received import ReceivedBatch, ReceivedMessage
from ortoo.client.core.wire import LANGUAGE, client_version, message_model, start_from, subscription
from ortoo.client.handling.runs import FINISH_TIMEOUT_S, HandlerRuns
from ortoo.client.offsets.losses import LossLog, LostMessages
from ortoo.client.offsets.offset_file import OffsetFile, offset_path
from ortoo.client.offsets.start_point import StartRule
from ortoo.client.offsets.store import LocalOffsets
from ortoo.client.push.push_handlers import Handler, NackCall, PushHandlers
from ortoo.client.push.push_member import PushMember
from ortoo.common.groups.allocation import AllocationStrategy
from ortoo.common.grpc.messages import write
from ortoo.common.process.background import Background
from ortoo.v1 import consumer_pb2

_PERSIST_INTERVAL_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """Settings of a push consumer."""

    from_beginning: bool = False
    """Start of the group in a queue without an offset: the oldest message if True, otherwise the end."""
    from_time_ms: int | None = None
    """Replaces `from_beginning`: the first message stored at or after this time, milliseconds since 1970-01-01 UTC."""
    unacknowledged_messages_max: int = 131_072
    """Largest number of delivered and unacknowledged messages; may be exceeded by one batch."""
    unacknowledged_bytes_max: int = 32 << 20
    ack_interval_ms: float = 100.0
    retry_delay_ms: float = 1_000.0
    """Delay of a retry in `run`, for a failed message whose nack failed, or of a broadcast."""
    strategy: AllocationStrategy = AllocationStrategy.AVERAGELY
    """Assignment of queues to members; all should set the same, and the first one by client id decides."""
    configured_queues: tuple[Queue, ...] = ()
    """The queues of this member, for AllocationStrategy.CONFIG."""
    zones: tuple[str, ...] = ()
    """The availability zones whose queues are assigned, for AllocationStrategy.MACHINE_ROOM."""
    on_loss: Callable[[LostMessages], None] | None = None
    """Called with messages that are lost because their stored bytes are damaged. They are logged in any case,
    and the group's offset moves past them."""
    broadcast: bool = False
    """Every member gets every message and keeps its offsets in a local file."""
    offsets_folder: Path = field(default_factory=lambda: Path.home() / ".ortoo" / "offsets")
    """Folder of that file, which is named by the client id; choose a fixed `client_id`."""
    client_id: str = ""
    """The consumer's name in reports; empty = made of host and process."""


class Consumer(Openable):
    """A group member. Made by `Client.consumer`; an async context manager that leaves the group on exit.

    Read whole batches with `batches()` (fast), or messages with `async for`, and call `ack()` after processing.
    Unacknowledged messages are delivered again, to this member or another, when a session ends.
    """

    def __init__(
        self, connection: Connection, group: str, topics: Mapping[str, Filter], settings: ConsumerSettings
    ) -> None:
        """Applications use `Client.consumer`."""
        self._connection = connection
        self._group = group
        self._clock = connection.clock
        self._settings = settings
        self._background = Background(f"consumer {group}")
        self._broadcast_offsets: LocalOffsets | None = None
        """Local offsets of a broadcast consumer, otherwise None."""
        client_id = settings.client_id or connection.new_client_id()
        if settings.broadcast:
            client_id = settings.client_id or connection.client_id
            self._broadcast_offsets = LocalOffsets(OffsetFile(offset_path(settings.offsets_folder, client_id, group)))
        self._client_id = client_id
        self._version = 0
        """Version of the subscriptions."""
        self._runs = HandlerRuns()
        self._member = PushMember(
            connection,
            _open_request(group, topics, settings, client_id=client_id, zone=connection.zone),
            LossLog(settings.on_loss),
            messages_max=settings.unacknowledged_messages_max,
            bytes_max=settings.unacknowledged_bytes_max,
            broadcast=self._broadcast_offsets,
            start_rule=StartRule(settings.from_beginning, settings.from_time_ms),
        )

    @property
    def queues(self) -> tuple[Queue, ...]:
        """The queues that are assigned to this member now."""
        return self._member.queues

    @property
    def lost_messages(self) -> int:
        """Number of messages that could not be delivered because their stored bytes are damaged."""
        return self._member.losses.message_count

    async def __aenter__(self) -> Self:
        self._check_first_entry()
        await self._background.__aenter__()
        self._member.open()
        self._background.spawn("session", self._member.run())
        ack_interval_s = self._settings.ack_interval_ms / 1000
        self._background.after(
            "acks", self._member.has_progress, ack_interval_s, self._report_progress, clock=self._clock
        )
        if self._broadcast_offsets is not None:
            self._background.every("offsets", _PERSIST_INTERVAL_S, self._broadcast_offsets.persist, clock=self._clock)
        return self

    async def __aexit__(self, *ended: Any) -> None:
        try:
            await self._member.leave()
            if self._broadcast_offsets is not None:
                await self._broadcast_offsets.persist()
        finally:
            await self._background.__aexit__(*ended)

    def subscribe(self, topics: TopicFilters) -> None:
        """Change the subscribed topics and filters; queues of other topics are released. Errors: Invalid."""
        filters = sorted(topic_filters(topics).items())
        self._version = version = max(self._version + 1, self._clock.now_ms())
        self._member.subscribe([subscription(topic, filter_, version) for topic, filter_ in filters])

    def suspend(self, *queues: Queue) -> None:
        """Stop taking messages from these queues, or from all queues if no queue is given, after their current batch.

        The queues stay assigned, and the consumer does not count as slow because of the suspension. Messages wait for
        `resume`, or for another member after this one leaves. Queues that are not assigned yet may be given too.
        """
        self._member.suspend(queues)

    def resume(self, *queues: Queue) -> None:
        """Resume these queues, or all queues if no queue is given."""
        self._member.resume(queues)

    async def batches(self) -> AsyncIterator[ReceivedBatch]:
        """Whole batches, in order within each queue, until the consumer has left.

        Errors: the reason why the server refused the session, or ConsumerClosed outside the `async with` block.
        """
        self._connection.check_usable()
        self._member.check_open()
        with suppress(ConsumerClosed):
            while True:
                yield await self._member.next_batch()

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Messages, in order within each queue."""
        async for batch in self.batches():
            for message in batch:
                if self._member.is_suspended:
                    await self._member.wait_resumed()
                yield message

    async def run(self, handler: Handler, *, concurrency: int = 1) -> None:
        """Give each message to `handler`, up to `concurrency` at a time, and acknowledge it when the handler returns.

        If `handler` raises, the message is retried by the group's policy, and parked after the group's last attempt.
        `RetryLater` sets the delay. Later messages are not delayed, unless the failed message has a message group. Then
        the rest of its queue waits, so that the message group keeps its order. Runs until cancelled, or until the
        first session is refused. A running consumer whose group is disabled waits until the group is enabled again.
        """
        nack: NackCall | None = None
        if self._broadcast_offsets is None:
            self._member.subscribe_retry_topic()
            nack = partial(nack_messages, self._connection, self._group, client_id=self._client_id)
        handlers = PushHandlers(
            self._group,
            handler,
            self._member,
            nack,
            self._clock,
            concurrency=concurrency,
            retry_delay_ms=self._settings.retry_delay_ms,
            runs=self._runs,
            telemetry=self._connection.telemetry,
        )
        await handlers.run(aiter(self))

    async def stop(self, finish_timeout_s: float = FINISH_TIMEOUT_S) -> None:
        """Begin no further handlers, wait up to `finish_timeout_s` for the running ones, and let `run` return.

        Messages of handlers that have not finished in time stay unacknowledged.
        """
        await self._runs.stop(finish_timeout_s)

    async def _report_progress(self) -> None:
        self._member.report_progress()


def _open_request(
    group: str, topics: Mapping[str, Filter], settings: ConsumerSettings, *, client_id: str, zone: str
) -> consumer_pb2.OpenSession:
    """The first request of a session."""
    return write(
        consumer_pb2.OpenSession,
        settings,
        group=group,
        client_id=client_id,
        zone=zone,
        zones=settings.zones,
        subscriptions=[subscription(topic, topics[topic]) for topic in sorted(topics)],
        start_from=start_from(settings.from_beginning, settings.from_time_ms),
        start_time_ms=settings.from_time_ms or 0,
        message_model=message_model(broadcast=settings.broadcast),
        client_version=client_version(),
        language=LANGUAGE,
    )
