"""How groups consume topics: asked at the enodes before a member begins, and changed there by operators."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import Conflict, OrtooError
from ortoo.common.process.clock import Clock
from ortoo.snode.cluster.directory import Directory
from ortoo.snode.cluster.routes import DeliveryMode
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.enodes.pool import EnodeLinks, explained
from ortoo.snode.topics.group_topics import RETRY_PREFIX

TRUST_S = 30.0
"""For so long an enode's word is not asked for again; it refuses later itself, where members take locks or pop."""
TRUSTED_MAX = 50_000


@dataclass(frozen=True, slots=True)
class TopicMode:
    """How a group consumes a topic on an enode."""

    topic: str
    enode: str
    mode: DeliveryMode


class DeliveryModes:
    """The modes of all groups; the enodes keep them."""

    def __init__(self, directory: Directory, watch: DirectoryWatch, links: EnodeLinks, clock: Clock) -> None:
        self._directory = directory
        self._watch = watch
        self._links = links
        self._clock = clock
        self._trusted: OrderedDict[tuple[int, str, DeliveryMode], float] = OrderedDict()

    async def use(self, group: str, topics: Iterable[str], mode: DeliveryMode) -> None:
        """A member of a group begins to consume topics. Errors: Conflict when the group does so in another way.

        An enode that is away is not asked: it refuses by itself when it is back.
        """
        for name in topics:
            if name.startswith(RETRY_PREFIX):
                continue
            topic = await self._watch.topic(name)
            key = (topic.topic_id, group, mode)
            if self._trusted.get(key, 0.0) > self._clock.monotonic_s():
                continue
            for placement in topic.placements:
                try:
                    await self._links.to(placement.enode).use_mode(topic.topic_id, group, mode)
                except Conflict:
                    raise
                except OrtooError as error:
                    if not explained(error).retriable:
                        raise
            self._trusted[key] = self._clock.monotonic_s() + TRUST_S
            while len(self._trusted) > TRUSTED_MAX:
                self._trusted.popitem(last=False)

    async def set(self, group: str, topic_name: str, mode: DeliveryMode, *, force: bool) -> DeliveryMode:
        """Change how a group consumes a topic, on all its enodes; returns how it was.

        Errors: NotFound, Invalid; Conflict while members have messages or queues, unless forced; Unavailable when an
        enode is away: then some may have changed, and the same call goes on.
        """
        check_group_name(group, "group")
        topic = await self._watch.topic(topic_name)
        before = DeliveryMode.UNDECIDED
        for placement in topic.placements:
            try:
                was = await self._links.to(placement.enode).set_mode(topic.topic_id, group, mode, force=force)
            except OrtooError as error:
                raise explained(error) from error
            before = before or was
        for key in [key for key in self._trusted if key[:2] == (topic.topic_id, group)]:
            del self._trusted[key]
        return before

    async def listed(self, group: str) -> list[TopicMode]:
        """How a group consumes its topics, by topic and enode; those of an enode that is away are missing."""
        check_group_name(group, "group")
        names = {topic.topic_id: topic.name for topic in self._directory.topics()}
        found: list[TopicMode] = []
        for entry in self._directory.enodes():
            try:
                rows = await self._links.to(entry.name).modes(group)
            except OrtooError as error:
                if not error.retriable:
                    raise
                continue
            found += [TopicMode(names[topic_id], entry.name, mode) for topic_id, mode in rows if topic_id in names]
        return sorted(found, key=lambda one: (one.topic, one.enode))
