"""Messages that a consumer of offsets could not process: copied for later, where they lie."""

from collections.abc import Sequence
from dataclasses import dataclass

from ortoo.common.groups.delay_levels import delay_ms_of_level
from ortoo.common.groups.pop import PopRules, SendBackWish
from ortoo.snode.cluster.directory import check_readable
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.enodes.pool import EnodeLinks
from ortoo.snode.topics.group_settings import GroupSettings
from ortoo.snode.topics.group_topics import GroupTopics, dead_letter_topic, retry_topic

PARK_LEVEL = -1


@dataclass(frozen=True, slots=True)
class SentBack:
    """What a consumer gives back."""

    group: str
    queue: Queue
    offsets: Sequence[int]
    delay_level: int
    """0 = by the deliveries so far, -1 = park."""
    attempts_max: int
    """0 = as the group says."""


@dataclass(slots=True, eq=False)
class SendingBack:
    """Has the enode copy messages into the group's retry topic, or into its dead-letter topic."""

    watch: DirectoryWatch
    links: EnodeLinks
    settings: GroupSettings
    group_topics: GroupTopics

    async def send_back(self, sent: SentBack) -> list[str]:
        """Copy; returns the messages' ids when the copies are durable. Errors: Invalid, NotFound, Unavailable."""
        topic = await self.watch.topic(sent.queue.topic)
        check_readable(topic, sent.queue)
        park = sent.delay_level == PARK_LEVEL
        delays_ms = self.settings.of(sent.group).retry.delays_ms
        if sent.delay_level > 0:
            delays_ms = (delay_ms_of_level(sent.delay_level),)
        enode = sent.queue.enode
        retry_id = await self.group_topics.ensure(retry_topic(sent.group), enode)
        letters_id = await self.group_topics.ensure(dead_letter_topic(sent.group), enode)
        attempts_max = sent.attempts_max or self.settings.of(sent.group).attempts_max
        rules = PopRules(attempts_max=attempts_max, dead_letter_topic_id=letters_id)
        wish = SendBackWish(
            sent.group, topic.topic_id, sent.queue.queue_id, tuple(sent.offsets), retry_id, delays_ms, park, rules
        )
        return await self.links.to(enode).send_back(wish)
