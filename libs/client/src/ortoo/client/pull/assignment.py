"""The queues that a group member should have: its assignment in the group, or those given to `assign`."""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress

from ortoo.client import log_events
from ortoo.client.core.connection import Connection
from ortoo.client.core.filters import Filter
from ortoo.client.core.queues import RETRY_PREFIX, Queue
from ortoo.client.core.wire import message_model, start_from, subscription
from ortoo.client.produce.routes import readable_queues
from ortoo.client.pull.settings import PullSettings
from ortoo.client.sessions.group_view import GroupView, allocated
from ortoo.client.sessions.session import Session, query_view
from ortoo.common.errors import Invalid, NotFound, OrtooError
from ortoo.common.grpc.messages import write
from ortoo.common.logs.logger import get_logger
from ortoo.v1 import session_pb2

_log = get_logger("consumer")


class Shares:
    """A member's subscriptions, the group's members, and the resulting assignment."""

    def __init__(
        self,
        connection: Connection,
        session: Session,
        group: str,
        topics: Mapping[str, Filter],
        settings: PullSettings,
    ) -> None:
        """Without topics there is no membership; the queues are those of `assign`."""
        self.is_member = bool(topics)
        self.changed = asyncio.Event()
        """Set when the assignment must be computed again."""
        self._group = group
        self._wanted = dict(topics)
        self._version = connection.clock.now_ms()
        """Grows with every change of the subscribed topics."""
        self._retry_topic = RETRY_PREFIX + group
        self._connection = connection
        self._session = session
        self._settings = settings
        self._assigned: tuple[Queue, ...] = ()
        self._view: GroupView | None = None

    @property
    def registration(self) -> session_pb2.RegisterConsumer:
        """The registration of this client as a group member."""
        settings = self._settings
        return write(
            session_pb2.RegisterConsumer,
            settings,
            group=self._group,
            subscriptions=[subscription(topic, self._wanted[topic], self._version) for topic in sorted(self._wanted)],
            consume_type=session_pb2.CONSUME_TYPE_PULL,
            message_model=message_model(broadcast=settings.broadcast),
            start_from=start_from(settings.from_first, settings.from_time_ms),
        )

    @property
    def topics(self) -> set[str]:
        """The topics of all queues that this member may have."""
        return set(self._wanted) if self.is_member else {queue.topic for queue in self._assigned}

    @property
    def has_retry_topic(self) -> bool:
        """Whether this member subscribes to the group's retry topic."""
        return self._retry_topic in self._wanted

    def filter_of(self, topic: str) -> Filter:
        """The filter of a topic."""
        return self._wanted.get(topic, "*")

    def subscribe(self, topics: Mapping[str, Filter]) -> None:
        """Change the subscribed topics. Errors: Invalid for a consumer with assigned queues."""
        if not self.is_member:
            raise Invalid("this consumer has assigned queues and no group; create one with topics", field="topics")
        if self.has_retry_topic:
            topics = {**topics, self._retry_topic: "*"}
        self._wanted = dict(topics)
        self._version = max(self._version + 1, self._connection.clock.now_ms())
        self._session.change(self.registration)
        self.changed.set()

    def assign(self, queues: Iterable[Queue]) -> None:
        """Set the queues. Errors: Invalid for a group member."""
        if self.is_member:
            raise Invalid("the group assigns this consumer's queues; create one without topics", field="queues")
        self._assigned = tuple(dict.fromkeys(queues))
        self.changed.set()

    def members_changed(self, view: GroupView) -> None:
        """Set the current members of the group."""
        self._view = view
        self.changed.set()

    async def ask_for_members(self) -> None:
        """Query the group's members, in case a notification was lost. Errors: Unavailable."""
        try:
            if self.is_member and self._view is not None:
                self._view = await query_view(self._connection, self._group)
        finally:
            self.changed.set()

    async def want_retries(self) -> None:
        """Subscribe to the group's retry topic once it exists."""
        if self._settings.broadcast or self._view is None or self.has_retry_topic:
            return
        with suppress(NotFound):
            if await readable_queues(self._connection, self._retry_topic):
                self.subscribe({**self._wanted, self._retry_topic: "*"})

    async def look(self) -> dict[str, list[Queue]]:
        """The queues that this member should have, for each topic whose queues are known now."""
        if not self.is_member:
            return {topic: [it for it in self._assigned if it.topic == topic] for topic in self.topics}
        shares: dict[str, list[Queue]] = {}
        for topic in self._wanted if self._view is not None else ():
            try:
                shares[topic] = self._share_of(topic, await readable_queues(self._connection, topic))
            except OrtooError as error:
                _log.emit(log_events.ROUTE_LOOKUP_FAILED, topic=topic, reason=str(error))
        return shares

    def _share_of(self, topic: str, queues: list[Queue]) -> list[Queue]:
        if self._view is None or self._settings.broadcast:
            return queues
        return allocated(
            self._view,
            self._session.client_id,
            topic,
            queues,
            configured_queues=self._settings.configured_queues,
            rooms=self._settings.rooms,
        )
