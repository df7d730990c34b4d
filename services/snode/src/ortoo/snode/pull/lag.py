"""The lag of a group in messages and, for autoscalers, the age of its oldest waiting message."""

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import DataLoss, Invalid, OutOfRange
from ortoo.common.process.clock import Clock
from ortoo.snode.cluster.routes import Queue, Topic
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.enodes.link import EnodeLinks, FetchBatchesRequest, LagByState, QueueRange
from ortoo.snode.pull.backlogs import BacklogReader, GroupBacklogs
from ortoo.snode.pull.offsets import query_stored_offsets
from ortoo.snode.pull.queue_reader import QueueReader, missing_enodes


@dataclass(frozen=True, slots=True)
class GroupQueueLag:
    """The lag of a group in one queue, with the group's offset (-1 = none yet) and the end of the queue."""

    queue: Queue
    committed_offset: int
    end_offset: int
    messages: int


@dataclass(frozen=True, slots=True)
class GroupLag:
    """The lag of a group in one topic, and the messages of all its topics that wait in retries."""

    queues: Sequence[GroupQueueLag]
    backlog: LagByState
    """The messages of the topic by state, without those of the group's own topics."""
    retries: LagByState
    """The messages in the group's retry topic and dead-letter topic. Nothing if the topic is one of these."""
    unreachable_enodes: Sequence[str] = ()
    """The enodes whose queues are missing, because they could not be reached."""

    @property
    def messages(self) -> int:
        """The messages that the group still has to process."""
        return sum(one.messages for one in self.queues) + self.retries.retrying

    @property
    def by_state(self) -> LagByState:
        """The messages by state, with those that wait in retries."""
        return self.backlog.merged(self.retries)


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

    def __init__(
        self, watch: DirectoryWatch, links: EnodeLinks, reader: QueueReader, backlogs: BacklogReader, clock: Clock
    ) -> None:
        self._watch = watch
        self._links = links
        self._reader = reader
        self._backlogs = backlogs
        self._clock = clock

    async def lag_of_available(self, group: str, topic_name: str, known: GroupBacklogs | None = None) -> GroupLag:
        """The lag of a group in each readable queue of a topic whose enode is reachable, and the other enodes.

        `known` has the backlogs of the group if they were already read.

        Errors: NotFound, Invalid.
        """
        check_group_name(group)
        topic = await self._watch.topic(topic_name)
        ranges = await self._reader.queue_ranges(topic)
        backlogs = known if known is not None else await self._backlogs.read(group, topic)
        lag = await self._compare(group, topic, ranges, backlogs)
        return dataclasses.replace(lag, unreachable_enodes=missing_enodes(topic, ranges))

    async def lag_of_all(self, group: str, topic_name: str) -> GroupLag:
        """The lag of a group in every readable queue of a topic.

        Errors: as `lag_of_available`; Unavailable if an enode is unreachable.
        """
        check_group_name(group)
        topic = await self._watch.topic(topic_name)
        ranges = await self._reader.all_queue_ranges(topic, "the lag is unknown, which does not mean that it is 0")
        return await self._compare(group, topic, ranges, await self._backlogs.read(group, topic, need_all=True))

    async def _compare(
        self, group: str, topic: Topic, ranges: dict[Queue, QueueRange], backlogs: GroupBacklogs
    ) -> GroupLag:
        lags: list[GroupQueueLag] = []
        for queue, offset in (await query_stored_offsets(self._links, group, topic, ranges)).items():
            held, committed = ranges[queue], -1 if offset is None else offset
            behind = max(0, held.end_offset - max(committed, held.begin_offset))
            # A group that pops may have finished messages behind its first unfinished one.
            unfinished = backlogs.of_queue(topic, queue)
            lags.append(GroupQueueLag(queue, committed, held.end_offset, behind if unfinished is None else unfinished))
        if topic.owner_group != group:
            return GroupLag(lags, backlogs.of_topic(topic), backlogs.retries)
        delayed = backlogs.of_topic(topic).retrying - sum(one.messages for one in lags)
        return GroupLag(lags, backlogs.of_topic(topic), LagByState(retrying=max(0, delayed)))

    async def lag_messages(self, trigger: ScalerTrigger) -> int:
        """The number of messages that the trigger's group still has to process.

        Errors: NotFound (topic), Unavailable if an enode is unreachable.
        """
        return (await self.lag_of_all(trigger.group, trigger.topic)).messages

    async def oldest_age_s(self, trigger: ScalerTrigger) -> int:
        """The seconds since the oldest waiting message was stored; 0 if none waits. Errors: as `lag_messages`."""
        lag = await self.lag_of_all(trigger.group, trigger.topic)
        waiting = [queue for queue in lag.queues if queue.messages]
        topic = await self._watch.topic(trigger.topic)
        stored_at_ms = await asyncio.gather(*(self._stored_at_ms(topic.topic_id, queue) for queue in waiting))
        oldest_ms = min((at for at in (*stored_at_ms, lag.retries.oldest_at_ms) if at), default=0)
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
