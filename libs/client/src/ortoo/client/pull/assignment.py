"""The queues that a group member should have: its assignment in the group, or the queues given to `assign`."""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress

from ortoo.client import log_events
from ortoo.client.core.connection import Connection
from ortoo.client.core.filters import Filter
from ortoo.client.core.queues import Queue
from ortoo.client.core.wire import message_model, start_from, subscription
from ortoo.client.produce.routes import readable_queues
from ortoo.client.pull.settings import PullSettings
from ortoo.client.sessions.group_view import GroupView, allocate_queues
from ortoo.client.sessions.session import Session, query_group_view
from ortoo.common.errors import Invalid, NotFound, OrtooError
from ortoo.common.groups.group_topics import RETRY_PREFIX
from ortoo.common.grpc.messages import write
from ortoo.common.logs.logger import get_logger
from ortoo.v1 import session_pb2

_log = get_logger("consumer")


class QueueAssignment:
    """A member's subscriptions, the group's members, and the resulting assignment."""

    def __init__(
        self,
        connection: Connection,
        session: Session,
        group: str,
        topics: Mapping[str, Filter],
        settings: PullSettings,
    ) -> None:
        """Without topics, the consumer is no group member and has the queues given to `assign`."""
        self.is_member = bool(topics)
        self.changed = asyncio.Event()
        """Set when the assignment must be computed again."""
        self._group = group
        self._subscriptions = dict(topics)
        self._version = connection.clock.now_ms()
        """Grows with every change of the subscribed topics."""
        self._retry_topic = RETRY_PREFIX + group
        self._connection = connection
        self._session = session
        self._settings = settings
        self._assigned: tuple[Queue, ...] = ()
        self._group_view: GroupView | None = None

    @property
    def registration(self) -> session_pb2.RegisterConsumer:
        """The registration of this client as a group member."""
        settings = self._settings
        return write(
            session_pb2.RegisterConsumer,
            settings,
            zones=settings.zones,
            group=self._group,
            subscriptions=[
                subscription(topic, self._subscriptions[topic], self._version) for topic in sorted(self._subscriptions)
            ],
            consume_type=session_pb2.CONSUME_TYPE_PULL,
            message_model=message_model(broadcast=settings.broadcast),
            start_from=start_from(settings.from_beginning, settings.from_time_ms),
        )

    @property
    def topics(self) -> set[str]:
        """The topics of all queues that this member may have."""
        return set(self._subscriptions) if self.is_member else {queue.topic for queue in self._assigned}

    @property
    def has_retry_topic(self) -> bool:
        """Whether this member subscribes to the group's retry topic."""
        return self._retry_topic in self._subscriptions

    def filter_of(self, topic: str) -> Filter:
        """The filter of a subscribed topic."""
        return self._subscriptions.get(topic, "*")

    def subscribe(self, topics: Mapping[str, Filter]) -> None:
        """Change the subscribed topics. Errors: Invalid for a consumer without a group."""
        if not self.is_member:
            raise Invalid(
                "this consumer has no group, only the queues given to `assign`; create one with topics", field="topics"
            )
        if self.has_retry_topic:
            topics = {**topics, self._retry_topic: "*"}
        self._subscriptions = dict(topics)
        self._version = max(self._version + 1, self._connection.clock.now_ms())
        self._session.update_registration(self.registration)
        self.changed.set()

    def assign(self, queues: Iterable[Queue]) -> None:
        """Set the queues. Errors: Invalid for a group member."""
        if self.is_member:
            raise Invalid("the group assigns this consumer's queues; create a consumer without topics", field="queues")
        self._assigned = tuple(dict.fromkeys(queues))
        self.changed.set()

    def set_group_view(self, view: GroupView) -> None:
        """Set the current members of the group."""
        self._group_view = view
        self.changed.set()

    async def refresh_members(self) -> None:
        """Query the group's members, because a notification of a change may have been lost. Errors: Unavailable."""
        try:
            if self.is_member and self._group_view is not None:
                self._group_view = await query_group_view(self._connection, self._group)
        finally:
            self.changed.set()

    async def subscribe_retry_topic(self) -> None:
        """Subscribe to the group's retry topic once it exists."""
        if self._settings.broadcast or self._group_view is None or self.has_retry_topic:
            return
        with suppress(NotFound):
            if await readable_queues(self._connection, self._retry_topic):
                self.subscribe({**self._subscriptions, self._retry_topic: "*"})

    async def assigned_queues(self) -> dict[str, list[Queue]]:
        """The queues that are assigned to this member, for each topic whose queues are known now."""
        if not self.is_member:
            return {topic: [it for it in self._assigned if it.topic == topic] for topic in self.topics}
        assigned: dict[str, list[Queue]] = {}
        for topic in self._subscriptions if self._group_view is not None else ():
            try:
                assigned[topic] = self._assigned_of(topic, await readable_queues(self._connection, topic))
            except OrtooError as error:
                self._connection.retry_log.emit(_log, log_events.ROUTE_LOOKUP_FAILED, error, topic=topic)
        return assigned

    def _assigned_of(self, topic: str, queues: list[Queue]) -> list[Queue]:
        if self._group_view is None or self._settings.broadcast:
            return queues
        return allocate_queues(
            self._group_view,
            self._session.client_id,
            topic,
            queues,
            configured_queues=self._settings.configured_queues,
            zones=self._settings.zones,
        )
