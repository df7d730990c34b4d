"""Closes and deletes lite topics that were unused for the lifetime that their parent sets.

Snodes coordinate through the topic's version. An expired lite topic is closed for senders, and deleted later if its
version is unchanged. A send reopens a closed lite topic, which changes its version, so no accepted message is deleted.
"""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile

from ortoo.common.errors import OrtooError
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock
from ortoo.common.process.long_work import SLICE_ITEMS, slices
from ortoo.snode import log_events
from ortoo.snode.cluster import ClusterView
from ortoo.snode.cluster.routes import Topic
from ortoo.snode.enodes.link import EnodeLinks
from ortoo.snode.rocketmq.lite.subscriptions import LiteSubscriptions
from ortoo.snode.rocketmq.protocol.names import stored_topic

CLOSED_GRACE_S = 60.0
"""Time between closing and deleting a lite topic; longer than any snode needs to learn of the close."""
AT_ONCE = SLICE_ITEMS
"""The lite topics of one call: of a page that is read, and of a change."""
WORK_PER_SWEEP = 10_000
"""The lite topics that one sweep closes, and that it deletes; the next sweeps continue.

Every 10 s there is a sweep, so that a million lite topics end within an hour.
"""
UNUSED_FACTOR = 2
"""Lite topics of a page without an expired one count this many times, so that a sweep reads fewer of them."""
ROWS_OF_A_CALL = 25
"""A page counts at least as this many lite topics, because many parents may have few each."""
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
    """By topic id, the first closed ones first. They are those of few sweeps: each leaves after `CLOSED_GRACE_S`.

    A round through all lite topics may take hours, and would delete them much later.
    """
    _position: tuple[str, str] = field(default=("", ""), init=False)
    """The parent and the lite topic after which the next sweep continues."""
    _silent: set[str] = field(default_factory=set, init=False)
    """The enodes that did not answer in this sweep."""
    _existing: set[tuple[str, str]] = field(default_factory=set, init=False)
    """(client id, lite topic) of subscriptions to lite topics that existed at the last sweep."""

    async def sweep(self) -> None:
        """Close expired lite topics, delete those that have been closed for long enough, and notify subscribers."""
        self._silent.clear()
        with contextlib.suppress(OrtooError):  # no name server answers: the next sweep continues
            await self._delete_closed_topics()
            await self._close_next_topics()
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

    async def _close_next_topics(self) -> None:
        """Close expired lite topics after the position, and then those from the first one. Errors: Unavailable."""
        left = WORK_PER_SWEEP
        parents = self.cluster.directory.parents_with_lifetime()
        began, after = position = self._position
        following = [one for one in parents if one.name >= began] + [one for one in parents if one.name < began]
        for parent in following:
            after = after if (parent.name, after) == position else ""
            while True:
                if left <= 0:
                    self._position = parent.name, after
                    return
                page, next_after = await self.cluster.name_server.list_lite_topics(parent.name, after, AT_ONCE)
                rows = max(len(page.topics), ROWS_OF_A_CALL)
                left -= rows if await self._close_expired(parent, page.topics) else UNUSED_FACTOR * rows
                if not next_after:
                    break
                after = next_after
        self._position = "", ""

    async def _close_expired(self, parent: Topic, lite_topics: Sequence[Topic]) -> bool:
        """Close the expired ones of these lite topics; returns whether there are any. Errors: Unavailable."""
        due = [lite for lite in lite_topics if self._may_have_expired(parent, lite)]
        last_used_ms = await self._last_used_ms(due)
        expired = [lite for lite in due if self._has_expired(parent, last_used_ms.get(lite.topic_id))]
        if expired:
            closed, _ = await self.cluster.name_server.end_lite_topics(close=expired)
            for lite in closed:
                self._closed.pop(lite.topic_id, None)
                self._closed[lite.topic_id] = _Closed(parent.name, lite, self.clock.monotonic_s())
        return bool(expired)

    def _may_have_expired(self, parent: Topic, lite: Topic) -> bool:
        """Whether a lite topic may have expired, as far as this snode remembers its last use."""
        known = self._closed.get(lite.topic_id)
        if known is not None and known.topic.version == lite.version:
            return False
        last_used_ms = max(self._last_messages_ms.get(lite.topic_id, 0), lite.created_at_ms)
        self._remember(lite, last_used_ms)
        return self._has_expired(parent, last_used_ms)

    async def _delete_closed_topics(self) -> None:
        """Delete the lite topics that have been closed for long enough and are still expired. Errors: Unavailable."""
        until_s = self.clock.monotonic_s() - CLOSED_GRACE_S
        ripe = list(takewhile(lambda one: one.since_s <= until_s, islice(self._closed.values(), WORK_PER_SWEEP)))
        for batch in slices(ripe):
            last_used_ms = await self._last_used_ms([one.topic for one in batch])
            expired = []
            for closed in batch:  # an enode that does not answer is asked again when a later sweep finds them closed
                parent = self.cluster.directory.find_topic(closed.parent)
                if parent is not None and self._has_expired(parent, last_used_ms.get(closed.topic.topic_id)):
                    expired.append(closed.topic)
            if expired:
                # Those that a sender opened again, or that another snode deleted, are left out.
                _, deleted = await self.cluster.name_server.end_lite_topics(delete=expired)
                for name in deleted:
                    _log.emit(log_events.LITE_TOPIC_EXPIRED, topic=name)
            for closed in batch:
                del self._closed[closed.topic.topic_id]

    def _has_expired(self, parent: Topic, last_used_ms: int | None) -> bool:
        """Whether a lite topic was unused for the lifetime that its parent sets; None = not known, thus not expired."""
        return last_used_ms is not None and 0 < parent.lite_ttl_ms <= self._now_ms() - last_used_ms

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

    async def _last_used_ms(self, lite_topics: Sequence[Topic]) -> dict[int, int]:
        """When lite topics were last used, by topic id: the time of the newest message, or of the creation.

        If this snode's clock is ahead of the enode's, the times are later by the difference. So one wrong clock ends
        nothing early. Those that have queues on an enode that does not answer, or does not know the topic, are left
        out.
        """
        placed: dict[str, list[Topic]] = {}
        for lite in lite_topics:
            for enode in lite.enodes:
                placed.setdefault(enode, []).append(lite)
        used_ms: dict[int, list[int]] = {lite.topic_id: [] for lite in lite_topics}
        asked = sorted(placed.items())
        answers = await asyncio.gather(*(self._ask_times(enode, here) for enode, here in asked))
        for (_, here), (times_ms, enode_now_ms) in zip(asked, answers, strict=True):
            ahead_ms = max(0, self._now_ms() - enode_now_ms)
            for lite in here:
                if lite.topic_id in times_ms:
                    last_ms = max(lite.created_at_ms, times_ms[lite.topic_id])
                    used_ms[lite.topic_id].append(last_ms + ahead_ms)
        found = {}
        for lite in lite_topics:
            known = used_ms[lite.topic_id]
            if len(known) == len(lite.enodes):
                found[lite.topic_id] = last_used_ms = max(known, default=lite.created_at_ms)
                self._remember(lite, last_used_ms)
        return found

    async def _ask_times(self, enode: str, lite_topics: Sequence[Topic]) -> tuple[dict[int, int], int]:
        """As `GrpcEnodeLink.last_message_times_ms`; without times if the enode does not answer.

        Such an enode is asked again in the next sweep, so that it delays the others once in a sweep.
        """
        if enode not in self._silent:
            try:
                return await self.links.to(enode).last_message_times_ms([one.topic_id for one in lite_topics])
            except OrtooError:
                self._silent.add(enode)
        return {}, 0
