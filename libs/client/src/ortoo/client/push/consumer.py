"""The push consumer: a member of a group that gets whole batches and says what it has processed."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

from ortoo.client.core.closed import Left
from ortoo.client.core.connection import Connection
from ortoo.client.core.filters import Filter, Topics, wanted_topics
from ortoo.client.core.handlers import send_back
from ortoo.client.core.place import Queue
from ortoo.client.core.received import ReceivedBatch, ReceivedMessage
from ortoo.client.core.wire import LANGUAGE, client_version, message_model, start_from, subscription
from ortoo.client.offsets.file import OffsetFile, offset_path
from ortoo.client.offsets.losses import Losses, LostMessages
from ortoo.client.offsets.start_point import StartRule
from ortoo.client.offsets.store import LocalOffsets
from ortoo.client.push.handling import Handler, PushHandlers, SendBack
from ortoo.client.push.push_member import PushMember
from ortoo.common.groups.allocation import AllocationStrategy
from ortoo.common.grpc.fields import write
from ortoo.common.process.background import Background
from ortoo.v1 import consumer_pb2

_KEEP_INTERVAL_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """How much a consumer takes at once, and how often it says what is done."""

    from_first: bool = False
    """Where the group starts in a queue for which it has no offset: the oldest message, or what comes from now on."""
    from_time_ms: int | None = None
    """Instead: the first message stored at or after this time, milliseconds since 1970-01-01 UTC."""
    unfinished_messages_max: int = 32_768
    """How many delivered messages may wait to be acknowledged. A batch comes whole, so it may be one batch more."""
    unfinished_bytes_max: int = 32 << 20
    ack_interval_ms: float = 100.0
    retry_delay_ms: float = 1_000.0
    """In `run`: how soon a failed message is tried again that could not be given back, or is of a broadcast."""
    strategy: AllocationStrategy = AllocationStrategy.AVERAGELY
    """How the members share out queues; all should say the same, the first one by client id decides."""
    configured_queues: tuple[Queue, ...] = ()
    """With AllocationStrategy.CONFIG: the queues this member takes."""
    rooms: tuple[str, ...] = ()
    """With AllocationStrategy.MACHINE_ROOM: the rooms whose queues are shared out."""
    on_loss: Callable[[LostMessages], None] | None = None
    """Called with messages that will not come because they are damaged where they are stored. They are logged anyway,
    and the group's offset moves on behind them."""
    broadcast: bool = False
    """Every member gets every message and keeps its offsets in a file of its own."""
    offsets_folder: Path = field(default_factory=lambda: Path.home() / ".ortoo" / "offsets")
    """With `broadcast`: where that file lies, under the client's id; choose one that stays the same."""
    client_id: str = ""
    """The consumer's name for people; empty = made of host and process."""


class Consumer:
    """One member of a group. Made by `Client.consumer`; an async context manager that leaves the group at its end.

    Read whole batches with `batches()` (fast), or messages with `async for`, and call `ack()` on what is processed.
    What was not acknowledged comes again, to this member or another, when a session ends.
    """

    def __init__(
        self, connection: Connection, group: str, topics: Mapping[str, Filter], settings: ConsumerSettings
    ) -> None:
        """`Client.consumer` is the way in."""
        self._connection = connection
        self._group = group
        self._clock = connection.clock
        self._settings = settings
        self._background = Background(f"consumer {group}")
        self._kept: LocalOffsets | None = None
        """Of a broadcast."""
        client_id = settings.client_id or connection.new_client_id()
        if settings.broadcast:
            client_id = settings.client_id or connection.client_id
            self._kept = LocalOffsets(OffsetFile(offset_path(settings.offsets_folder, client_id, group)))
        self._client_id = client_id
        self._version = 0
        """Of the subscriptions."""
        self._member = PushMember(
            connection,
            _opening(group, topics, settings, client_id=client_id, room=connection.room),
            Losses(settings.on_loss),
            messages_max=settings.unfinished_messages_max,
            bytes_max=settings.unfinished_bytes_max,
            broadcast=self._kept,
            rule=StartRule(settings.from_first, settings.from_time_ms),
        )

    @property
    def queues(self) -> tuple[Queue, ...]:
        """The queues this member has now."""
        return self._member.queues

    @property
    def lost_messages(self) -> int:
        """How many messages could not be delivered because they are damaged where they are stored."""
        return self._member.losses.messages

    async def __aenter__(self) -> Self:
        await self._background.__aenter__()
        self._member.enter()
        self._background.spawn("session", self._member.keep())
        ack_interval_s = self._settings.ack_interval_ms / 1000
        self._background.after("acks", self._member.has_news, ack_interval_s, self._say_progress, clock=self._clock)
        if self._kept is not None:
            self._background.every("offsets", _KEEP_INTERVAL_S, self._kept.persist, clock=self._clock)
        return self

    async def __aexit__(self, *ended: Any) -> None:
        try:
            await self._member.leave()
            if self._kept is not None:
                await self._kept.persist()
        finally:
            await self._background.__aexit__(*ended)

    def subscribe(self, topics: Topics) -> None:
        """Want these topics from now on, with these filters; queues of a topic left out go. Errors: Invalid."""
        wanted = sorted(wanted_topics(topics).items())
        self._version = version = max(self._version + 1, self._clock.now_ms())
        self._member.subscribe([subscription(topic, filter_, version) for topic, filter_ in wanted])

    def suspend(self, *queues: Queue) -> None:
        """Take nothing from these queues from their next batch on, or nothing at all when none is named.

        They stay this consumer's, and it is not slow for that; messages wait for `resume`, or for another member when
        this one leaves. A queue may be named before it is this consumer's.
        """
        self._member.suspend(queues)

    def resume(self, *queues: Queue) -> None:
        """Go on with these queues, or with everything when none is named."""
        self._member.resume(queues)

    async def batches(self) -> AsyncIterator[ReceivedBatch]:
        """Whole batches, in order within each queue, until it is left.

        Errors: what the server refused the session with; Left before it is entered, and when it was left.
        """
        self._member.check()
        with suppress(Left):
            while True:
                yield await self._member.next_batch()

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Messages, in order within each queue."""
        async for batch in self.batches():
            for message in batch:
                if self._member.is_suspended:
                    await self._member.until_resumed()
                yield message

    async def run(self, handler: Handler, *, concurrency: int = 1) -> None:
        """Give each message to `handler`, up to `concurrency` at a time, and acknowledge it when the handler returns.

        A message whose handler raises comes again by the group's back-off, and is parked after the group's attempts;
        `RetryLater` says when. Those behind it go on, but for those of its message group, which keep their order: they
        wait, and their queue with them. Runs until cancelled, or until the session is refused.
        """
        give_back: SendBack | None = None
        if self._kept is None:
            self._member.want_retries()
            give_back = partial(send_back, self._connection, self._group, client_id=self._client_id)
        handlers = PushHandlers(
            self._group,
            handler,
            self._member,
            give_back,
            self._clock,
            concurrency=concurrency,
            retry_delay_ms=self._settings.retry_delay_ms,
        )
        await handlers.run(aiter(self))

    async def _say_progress(self) -> None:
        self._member.report()


def _opening(
    group: str, topics: Mapping[str, Filter], settings: ConsumerSettings, *, client_id: str, room: str
) -> consumer_pb2.OpenSession:
    """The first request of a session."""
    return write(
        consumer_pb2.OpenSession,
        settings,
        group=group,
        client_id=client_id,
        room=room,
        subscriptions=[subscription(topic, topics[topic]) for topic in sorted(topics)],
        start_from=start_from(settings.from_first, settings.from_time_ms),
        start_time_ms=settings.from_time_ms or 0,
        message_model=message_model(broadcast=settings.broadcast),
        client_version=client_version(),
        language=LANGUAGE,
    )
