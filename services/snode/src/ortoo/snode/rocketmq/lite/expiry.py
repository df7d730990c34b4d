"""Closes and deletes lite topics that were unused for the lifetime that their parent sets.

Snodes coordinate through the topic's version. An expired lite topic is closed for senders, and deleted later if its
version is unchanged. A send reopens a closed lite topic, which changes its version, so no accepted message is deleted.
"""

import contextlib
from dataclasses import dataclass, field

from ortoo.common.errors import OrtooError
from ortoo.common.groups.group_topics import parent_of_topic
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock
from ortoo.snode import log_events
from ortoo.snode.cluster import ClusterView
from ortoo.snode.cluster.routes import MessageType, Permission, Queue, Topic
from ortoo.snode.enodes.link import EnodeLinks, FetchBatchesRequest
from ortoo.snode.rocketmq.lite.subscriptions import LiteSubscriptions
from ortoo.snode.rocketmq.protocol.names import stored_topic

CLOSED_GRACE_S = 60.0
"""Time between closing and deleting a lite topic; longer than any snode needs to learn of the close."""
CHECKS_PER_SWEEP_MAX = 200
"""Maximum of lite topics that one sweep checks; the next sweeps check the others."""
_log = get_logger("lite topics")


@dataclass(slots=True)
class _LiteTopicState:
    """The observed state of one lite topic."""

    checked_at_s: float = 0.0
    last_message_ms: int = 0
    """When the last message was stored, or when the lite topic was created."""
    closed_version: int = 0
    closed_since_s: float = 0.0
    """The time since which this snode has seen the lite topic closed, in `closed_version`."""


@dataclass(slots=True, eq=False)
class LiteExpiry:
    """Ends lite topics whose lifetime has passed. Every snode does this; repeated work does no harm."""

    cluster: ClusterView
    links: EnodeLinks
    subscriptions: LiteSubscriptions
    clock: Clock
    _started_at: tuple[int, float] | None = field(default=None, init=False)
    """The wall clock and the monotonic clock at the first sweep."""
    _states: dict[int, _LiteTopicState] = field(default_factory=dict, init=False)
    _existing: set[tuple[str, str]] = field(default_factory=set, init=False)
    """(client id, lite topic) of subscriptions to lite topics that existed at the last sweep."""

    async def sweep(self) -> None:
        """Close expired lite topics, delete those that have been closed for long enough, and notify subscribers."""
        now_ms = self._now_ms()
        ending = self._expiring_topics()
        self._states = {lite.topic_id: self._states.get(lite.topic_id) or _LiteTopicState() for _, lite in ending}
        states = [(self._states[lite.topic_id], parent, lite) for parent, lite in ending]
        due = [
            (look, parent, lite)
            for look, parent, lite in states
            if max(look.last_message_ms, lite.created_at_ms) + parent.lite_ttl_ms <= now_ms
        ]
        for look, parent, lite in sorted(due, key=lambda one: one[0].checked_at_s)[:CHECKS_PER_SWEEP_MAX]:
            look.checked_at_s = self.clock.monotonic_s()
            with contextlib.suppress(OrtooError):  # unreachable, or changed concurrently: the next sweep retries
                await self._check_topic(look, parent, lite)
        subscribed = {
            (client_id, name): self.cluster.directory.find_topic(stored_topic(known.parent, name)) is not None
            for client_id, known in self.subscriptions.items()
            for name in known.lite_topics
        }
        existing = {place for place, exists in subscribed.items() if exists}
        for client_id, name in sorted((self._existing - existing) & subscribed.keys()):
            self.subscriptions.notify_unsubscribed(client_id, name)
        self._existing = existing

    def _expiring_topics(self) -> list[tuple[Topic, Topic]]:
        """All lite topics with a lifetime, each with its parent."""
        topics = self.cluster.directory.topics()
        parents = {one.name: one for one in topics if one.message_type is MessageType.LITE and one.lite_ttl_ms}
        if not parents:
            return []
        named = ((parent_of_topic(one.name), one) for one in topics)
        return [(parents[parent], one) for parent, one in named if parent is not None and parent in parents]

    async def _check_topic(self, state: _LiteTopicState, parent: Topic, lite: Topic) -> None:
        """Close or delete a lite topic if it has expired. Errors: Unavailable, Conflict or NotFound if changed."""
        state.last_message_ms = await self._last_message_ms(lite)
        if state.last_message_ms + parent.lite_ttl_ms > self._now_ms():
            return
        if lite.writable:
            await self.cluster.name_server.set_permission(lite.name, Permission.READ_ONLY)
            return
        now_s = self.clock.monotonic_s()
        if state.closed_version != lite.version:
            state.closed_version, state.closed_since_s = lite.version, now_s
        if now_s - state.closed_since_s >= CLOSED_GRACE_S:
            await self.cluster.name_server.delete_topic(lite.name, version=lite.version)
            _log.emit(log_events.LITE_TOPIC_EXPIRED, topic=lite.name)

    def _now_ms(self) -> int:
        """The wall clock without its jumps forward since the first sweep, so that a wrong clock expires nothing."""
        now_ms, now_s = self.clock.now_ms(), self.clock.monotonic_s()
        began_ms, began_s = self._started_at = self._started_at or (now_ms, now_s)
        return min(now_ms, began_ms + int((now_s - began_s) * 1000))

    async def _last_message_ms(self, lite: Topic) -> int:
        """When a lite topic was last used: the time of its newest message or of its creation."""
        return max([lite.created_at_ms, *[await self._stored_at_ms(lite, queue) for queue in lite.read_queues()]])

    async def _stored_at_ms(self, lite: Topic, queue: Queue) -> int:
        link = self.links.to(queue.enode)
        held = [one for one in await link.describe_queues(lite.topic_id) if one.queue_id == queue.queue_id]
        if not held or held[0].begin_offset == held[0].end_offset:
            return 0
        last = await link.fetch(FetchBatchesRequest(lite.topic_id, queue.queue_id, held[0].end_offset - 1, bytes_max=1))
        return max((one.stored_at_ms for one in last.batches), default=0)
