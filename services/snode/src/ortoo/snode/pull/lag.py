"""The lag of a group in messages and, for autoscalers, the age of its oldest waiting message."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import DataLoss, Invalid, OutOfRange
from ortoo.common.process.clock import Clock
from ortoo.snode.cluster.routes import Queue, Topic
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.enodes.link import EnodeLinks, FetchBatchesRequest, QueueRange
from ortoo.snode.pull.offsets import query_stored_offsets
from ortoo.snode.pull.queue_reader import QueueReader


@dataclass(frozen=True, slots=True)
class GroupQueueLag:
    """The lag of a group in one queue, with the group's offset (-1 = none yet) and the end of the queue."""

    queue: Queue
    committed_offset: int
    end_offset: int
    messages: int


LAG, AGE = "lag", "oldest-age-seconds"
LAG_THRESHOLD = 100
METADATA_KEYS = ("group", "topic", "lagThreshold", "oldestAgeSeconds", "activationLag")


@dataclass(frozen=True, slots=True)
class ScalerTrigger:
    """A trigger of KEDA: the group, the topic, and the target values per replica of the consumer."""

    group: str
    topic: str
    lag_threshold: int = LAG_THRESHOLD
    """Target of waiting messages per replica."""
    oldest_age_s: int = 0
    """Maximum age of the oldest message per replica; 0 = the age is not used."""
    activation_lag: int = 0
    """Number of waiting messages up to which no replica needs to run."""

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str]) -> "ScalerTrigger":
        """Parse the metadata of a KEDA ScaledObject. Errors: Invalid, naming the key."""
        for key in metadata.keys() - set(METADATA_KEYS):
            raise Invalid(f"is unknown; expected one of {', '.join(METADATA_KEYS)}", field=f"scalerMetadata.{key}")
        for key in ("group", "topic"):
            if not metadata.get(key):
                raise Invalid("is missing: give the group and the topic of the lag", field=f"scalerMetadata.{key}")
        return cls(
            metadata["group"],
            metadata["topic"],
            _number(metadata, "lagThreshold", LAG_THRESHOLD, 1),
            _number(metadata, "oldestAgeSeconds", 0, 0),
            _number(metadata, "activationLag", 0, 0),
        )

    @property
    def targets(self) -> dict[str, int]:
        """The target value per replica of each metric, by name."""
        return {LAG: self.lag_threshold} | ({AGE: self.oldest_age_s} if self.oldest_age_s else {})


class ConsumerLag:
    """Computes the lag of groups from committed offsets and the ends of queues, for the whole cluster."""

    def __init__(self, watch: DirectoryWatch, links: EnodeLinks, reader: QueueReader, clock: Clock) -> None:
        self._watch = watch
        self._links = links
        self._reader = reader
        self._clock = clock

    async def lag_of_available(self, group: str, topic_name: str) -> list[GroupQueueLag]:
        """The lag of a group in each readable queue of a topic whose enode is reachable. Errors: NotFound, Invalid."""
        check_group_name(group)
        topic = await self._watch.topic(topic_name)
        return await self._compare(group, topic, await self._reader.queue_ranges(topic))

    async def lag_of_all(self, group: str, topic_name: str) -> list[GroupQueueLag]:
        """The lag of a group in every readable queue of a topic.

        Errors: as `lag_of_available`; Unavailable if an enode is unreachable.
        """
        check_group_name(group)
        topic = await self._watch.topic(topic_name)
        ranges = await self._reader.all_queue_ranges(topic, "the lag is unknown, which does not mean that it is 0")
        return await self._compare(group, topic, ranges)

    async def _compare(self, group: str, topic: Topic, ranges: dict[Queue, QueueRange]) -> list[GroupQueueLag]:
        lags: list[GroupQueueLag] = []
        for queue, offset in (await query_stored_offsets(self._links, group, topic, ranges)).items():
            held, committed = ranges[queue], -1 if offset is None else offset
            behind = held.end_offset - max(committed, held.begin_offset)
            lags.append(GroupQueueLag(queue, committed, held.end_offset, max(0, behind)))
        return lags

    async def lag_messages(self, trigger: ScalerTrigger) -> int:
        """The lag of the trigger's group in messages.

        Errors: NotFound (topic), Unavailable if an enode is unreachable.
        """
        return sum(queue.messages for queue in await self.lag_of_all(trigger.group, trigger.topic))

    async def oldest_age_s(self, trigger: ScalerTrigger) -> int:
        """The seconds since the oldest waiting message was stored; 0 if none waits. Errors: as `lag_messages`."""
        waiting = [queue for queue in await self.lag_of_all(trigger.group, trigger.topic) if queue.messages]
        topic = await self._watch.topic(trigger.topic)
        stored_at_ms = await asyncio.gather(*(self._stored_at_ms(topic.topic_id, queue) for queue in waiting))
        oldest_ms = min((at for at in stored_at_ms if at), default=0)
        return max(0, self._clock.now_ms() - oldest_ms) // 1000 if oldest_ms else 0

    async def is_active(self, trigger: ScalerTrigger) -> bool:
        """Whether KEDA must run at least one replica of the consumer. Errors: as `lag_messages`."""
        return await self.lag_messages(trigger) > trigger.activation_lag

    async def _stored_at_ms(self, topic_id: int, queue: GroupQueueLag) -> int:
        """When the oldest waiting message was stored; 0 = none waits. Expired and damaged messages do not wait."""
        at, link = max(queue.committed_offset, 0), self._links.to(queue.queue.enode)
        while at < queue.end_offset:
            try:
                fetched = await link.fetch(FetchBatchesRequest(topic_id, queue.queue.queue_id, at, bytes_max=1))
            except (OutOfRange, DataLoss) as error:
                behind = error.begin_offset if isinstance(error, OutOfRange) else error.end_offset
                if behind <= at:
                    raise
                at = behind
            else:
                return fetched.batches[0].stored_at_ms if fetched.batches else 0
        return 0


def _number(metadata: Mapping[str, str], key: str, default: int, low: int) -> int:
    text = metadata.get(key, str(default))
    if not (text.isascii() and text.isdecimal() and low <= int(text) < 1 << 53):
        raise Invalid(f"{text!r}; expected a whole number from {low}", field=f"scalerMetadata.{key}")
    return int(text)
