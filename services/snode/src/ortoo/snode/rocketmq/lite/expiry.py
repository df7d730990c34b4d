"""Closes and deletes lite topics that were unused for the lifetime that their parent sets.

Snodes coordinate through the topic's version. An expired lite topic is closed for senders, and deleted later if its
version is unchanged. A send reopens a closed lite topic, which changes its version, so no accepted message is deleted.
"""

import contextlib
from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import islice

from ortoo.common.directory.topic import Permission
from ortoo.common.errors import Conflict, NotFound, OrtooError
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock
from ortoo.snode import log_events
from ortoo.snode.cluster import ClusterView
from ortoo.snode.cluster.routes import Queue, Topic
from ortoo.snode.enodes.link import EnodeLinks, FetchBatchesRequest
from ortoo.snode.rocketmq.lite.subscriptions import LiteSubscriptions
from ortoo.snode.rocketmq.protocol.names import stored_topic

CLOSED_GRACE_S = 60.0
"""Time between closing and deleting a lite topic; longer than any snode needs to learn of the close."""
CHECKS_PER_SWEEP_MAX = 200
"""Maximum of lite topics that one sweep checks; the next sweeps check the others."""
PAGE_SIZE, PAGES_PER_SWEEP_MAX = 1_000, 5
"""The lite topics that one sweep reads from a name server; the next sweeps read the others."""
TIMES_MAX = 100_000
"""Maximum of lite topics whose last message is remembered. Others are checked each time that they are read."""
_log = get_logger("lite topics")


@dataclass(frozen=True, slots=True)
class _Closed:
    """A lite topic that is closed for senders."""

    parent: str
    topic: Topic
    since_s: float
    """The time since which this snode has seen it closed, in the version of `topic`."""


@dataclass(slots=True, eq=False)
class LiteExpiry:
    """Ends lite topics whose lifetime has passed. Every snode does this; repeated work does no harm."""

    cluster: ClusterView
    links: EnodeLinks
    subscriptions: LiteSubscriptions
    clock: Clock
    _started_at: tuple[int, float] | None = field(default=None, init=False)
    """The wall clock and the monotonic clock at the first sweep."""
    _last_messages_ms: OrderedDict[int, int] = field(default_factory=OrderedDict, init=False)
    """When each lite topic was last used, by topic id; the least recently read are removed."""
    _closed: dict[int, _Closed] = field(default_factory=dict, init=False)
    """By topic id, the first closed ones first. Each leaves after `CLOSED_GRACE_S`, so the number is small.

    A round through all lite topics may take hours, and would delete them much later.
    """
    _position: tuple[str, str] = field(default=("", ""), init=False)
    """The parent and the lite topic after which the next sweep continues."""
    _existing: set[tuple[str, str]] = field(default_factory=set, init=False)
    """(client id, lite topic) of subscriptions to lite topics that existed at the last sweep."""

    async def sweep(self) -> None:
        """Close expired lite topics, delete those that have been closed for long enough, and notify subscribers."""
        with contextlib.suppress(OrtooError):  # no name server answers: the next sweep continues
            await self._delete_closed_topics()
            await self._check_next_topics()
        subscribed = {
            (client_id, name): stored_topic(known.parent, name)
            for client_id, known in self.subscriptions.items()
            for name in known.lite_topics
        }
        await self.cluster.watch.find_lite_topics(set(subscribed.values()))
        find_topic = self.cluster.directory.find_topic
        existing = {place for place, stored in subscribed.items() if find_topic(stored) is not None}
        for client_id, name in sorted((self._existing - existing) & subscribed.keys()):
            self.subscriptions.notify_unsubscribed(client_id, name)
        self._existing = existing

    async def _check_next_topics(self) -> None:
        """Check the lite topics after the position, and then those from the first one. Errors: Unavailable."""
        checks = pages = 0
        parents = [one for one in self.cluster.directory.topics() if one.lite_ttl_ms]
        began, after = self._position
        following = [one for one in parents if one.name >= began] + [one for one in parents if one.name < began]
        for parent in following:
            after = after if parent.name == began and not pages else ""
            while True:
                if pages == PAGES_PER_SWEEP_MAX:
                    self._position = parent.name, after
                    return
                pages += 1
                page, next_after = await self.cluster.name_server.list_lite_topics(parent.name, after, PAGE_SIZE)
                for lite in page.topics:
                    checks += await self._check_if_due(parent, lite)
                    if checks == CHECKS_PER_SWEEP_MAX:
                        self._position = parent.name, lite.name
                        return
                if not next_after:
                    break
                after = next_after
        self._position = "", ""

    async def _check_if_due(self, parent: Topic, lite: Topic) -> bool:
        """Check a lite topic that may have expired; returns whether it was checked."""
        known = self._closed.get(lite.topic_id)
        if known is not None and known.topic.version == lite.version:
            return False
        last_message_ms = self._last_messages_ms.get(lite.topic_id, 0)
        self._remember(lite, last_message_ms)
        if max(last_message_ms, lite.created_at_ms) + parent.lite_ttl_ms > self._now_ms():
            return False
        with contextlib.suppress(OrtooError):  # unreachable, or changed concurrently: a later sweep retries
            if await self._is_expired(parent, lite):
                if lite.writable:
                    lite = await self.cluster.name_server.set_permission(lite.name, Permission.READ_ONLY)
                self._closed.pop(lite.topic_id, None)
                self._closed[lite.topic_id] = _Closed(parent.name, lite, self.clock.monotonic_s())
        return True

    async def _delete_closed_topics(self) -> None:
        """Delete the lite topics that have been closed for long enough and are still expired. Errors: Unavailable."""
        until_s = self.clock.monotonic_s() - CLOSED_GRACE_S
        for topic_id, closed in list(islice(self._closed.items(), CHECKS_PER_SWEEP_MAX)):
            if closed.since_s > until_s:
                return
            parent, lite = self.cluster.directory.find_topic(closed.parent), closed.topic
            is_expired = False
            with contextlib.suppress(OrtooError):  # unreachable: a later sweep finds it closed
                is_expired = parent is not None and parent.lite_ttl_ms > 0 and await self._is_expired(parent, lite)
            with contextlib.suppress(Conflict, NotFound):  # a sender opened it again, or another snode deleted it
                if is_expired:
                    await self.cluster.name_server.delete_topic(lite.name, version=lite.version)
                    _log.emit(log_events.LITE_TOPIC_EXPIRED, topic=lite.name)
            del self._closed[topic_id]

    async def _is_expired(self, parent: Topic, lite: Topic) -> bool:
        """Whether no message was stored for the parent's lifetime, as the enode knows. Errors: Unavailable."""
        last_message_ms = await self._last_message_ms(lite)
        self._remember(lite, last_message_ms)
        return last_message_ms + parent.lite_ttl_ms <= self._now_ms()

    def _remember(self, lite: Topic, last_message_ms: int) -> None:
        self._last_messages_ms[lite.topic_id] = last_message_ms
        self._last_messages_ms.move_to_end(lite.topic_id)
        if len(self._last_messages_ms) > TIMES_MAX:
            self._last_messages_ms.popitem(last=False)

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
