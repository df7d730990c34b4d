"""The reads of an enode, each sent to one replica, as a snode does that does not know the current leader."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from ortoo.common.process.randomness import Randomness
from ortoo.v1 import enode_deferred_pb2 as deferred_pb
from ortoo.v1 import enode_delivery_modes_pb2 as modes_pb
from ortoo.v1 import enode_locks_pb2 as locks_pb
from ortoo.v1 import enode_pb2 as pb
from ortoo.v1 import enode_pop_pb2 as pop_pb
from ortoo.v1 import enode_topics_pb2 as topics_pb
from ortoo.v1 import lag_pb2 as lag_pb
from ortoo.v1.enode_pb2_grpc import EnodeServiceStub
from ortoo.verification.simulation.oracle.reads import Fact, ReadModel, ReadStart

TIMEOUT_S = 2.0
FAR_MS = 1 << 50
"""A time after each message."""
LIST_MAX = 10_000
BYTES_MAX = 1 << 40
"""More than a queue has."""
RECALLED = 2
"""The value of a delayed message that is recalled; 1 = it waits."""


@dataclass(slots=True, eq=False)
class ReadSubjects:
    """The subjects of the reads, and the attempted changes whose outcome is not known yet."""

    topic_id: int = 0
    delayed_topic_id: int = 0
    open_topic_id: int = 0
    queues: int = 2
    commits_group: str = "read-committed"
    pops_group: str = "read-popped"
    leases_group: str = "read-leased"
    locks_group: str = "read-locked"
    begun_commits: dict[int, int] = field(default_factory=dict)
    """Queue to the highest offset that a commit was requested for."""
    delayed: dict[int, str] = field(default_factory=dict)
    """Number of a delayed message to its id."""
    begun_recalls: dict[int, None] = field(default_factory=dict)
    """Delayed messages whose recall was requested."""
    keys: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Key of an acknowledged message to its queue and offset."""
    has_retention: bool = False
    """Whether enodes delete messages that all groups have finished."""


HALVES: Fact = ("number of open transactions",)
MODE: Fact = ("delivery mode of the group that pops",)
GROUP: Fact = ("group with a committed offset",)


def end_of(queue: int) -> Fact:
    """The end offset of a queue."""
    return ("end of queue", str(queue))


def committed_in(queue: int) -> Fact:
    """The committed offset of a queue."""
    return ("committed offset of queue", str(queue))


def done(queue: int, offset: int) -> Fact:
    """Whether the group that pops has finished a message."""
    return ("finished message", str(queue), str(offset))


def delayed_message(number: int) -> Fact:
    """The state of a delayed message."""
    return ("state of delayed message", str(number))


def generation_of(queue: int) -> Fact:
    """The generation of a queue's lock."""
    return ("lock generation of queue", str(queue))


def lease_of(queue: int) -> Fact:
    """The number of the newest lease in a queue."""
    return ("lease number in queue", str(queue))


@dataclass(slots=True, eq=False)
class ReplicaReads:
    """The reads of one replica. Errors of each: those of gRPC."""

    name: str
    stub: EnodeServiceStub
    model: ReadModel
    subjects: ReadSubjects
    chance: Randomness

    async def describe_queues(self, start: ReadStart) -> None:
        """The ends of the queues."""
        answer = await self.stub.DescribeQueues(
            pb.DescribeQueuesRequest(topic_id=self.subjects.topic_id), timeout=TIMEOUT_S
        )
        for one in answer.queues:
            self._seen(start, end_of(one.queue_id), one.end_offset)

    async def describe_queues_of_topics(self, start: ReadStart) -> None:
        """The ends of the queues, by the call for several topics."""
        request = topics_pb.DescribeQueuesOfTopicsRequest(topic_ids=[self.subjects.topic_id])
        for one in (await self.stub.DescribeQueuesOfTopics(request, timeout=TIMEOUT_S)).topics:
            for queue, end in enumerate(one.end_offsets):
                self._seen(start, end_of(queue), end)

    async def measure_queues(self, start: ReadStart) -> None:
        """The end of a queue, as the end of its measured bytes."""
        queue = self._queue()
        measured = topics_pb.MeasuredStoredQueue(
            topic_id=self.subjects.topic_id, queue_id=queue, from_offset=0, bytes_max=BYTES_MAX
        )
        request = topics_pb.MeasureStoredQueuesRequest(queues=[measured])
        for one in (await self.stub.MeasureQueues(request, timeout=TIMEOUT_S)).sizes:
            is_deleted = self.subjects.has_retention and not one.size_bytes  # then the answer is `from_offset`
            if not one.HasField("failure") and not is_deleted:
                self._seen(start, end_of(queue), one.end_offset)

    async def fetch_batches(self, start: ReadStart) -> None:
        """A known message, sometimes from any replica."""
        queue, any_replica = self._queue(), self.chance.below(3) == 0
        if not (end := start.known.get(end_of(queue), 0)):
            return
        offset = self.chance.below(end)
        request = pb.FetchBatchesRequest(
            topic_id=self.subjects.topic_id, queue_id=queue, from_offset=offset, any_replica=any_replica
        )
        async for answer in self.stub.FetchBatches(iter([request]), timeout=TIMEOUT_S):
            if answer.HasField("failure"):
                return
            if not any_replica:
                self._seen(start, end_of(queue), answer.end_offset)
            for one in answer.batches:
                batch = ("batch", str(queue), str(one.first_offset))
                self.model.same(batch, (one.batch.count, one.batch.records_crc32c), self.name)
            return

    async def query_offsets(self, start: ReadStart) -> None:
        """The committed offsets of a group."""
        request = pb.QueryOffsetsRequest(
            topic_id=self.subjects.topic_id, group=self.subjects.commits_group, queue_ids=range(self.subjects.queues)
        )
        for one in (await self.stub.QueryOffsets(request, timeout=TIMEOUT_S)).offsets:
            self._seen(start, committed_in(one.queue_id), max(0, one.offset))

    async def find_offset(self, start: ReadStart) -> None:
        """The end of a queue, as the offset of a time that no message has reached."""
        queue = self._queue()
        request = pb.FindOffsetRequest(topic_id=self.subjects.topic_id, queue_id=queue, stored_at_ms=FAR_MS)
        answer = await self.stub.FindOffset(request, timeout=TIMEOUT_S)
        self._seen(start, end_of(queue), answer.offset)

    async def find_messages(self, _: ReadStart) -> None:
        """The place of a message by its key. The index may lack the newest messages, but its places are right."""
        keys = list(self.subjects.keys)
        if not keys:
            return
        key = keys[self.chance.below(len(keys))]
        request = pb.FindMessagesRequest(topic_id=self.subjects.topic_id, key=key)
        for one in (await self.stub.FindMessages(request, timeout=TIMEOUT_S)).places:
            self.model.same(("place of", key), self.subjects.keys[key], self.name)
            self.model.same(("place of", key), (one.queue_id, one.offset), self.name)

    async def query_locks(self, start: ReadStart) -> None:
        """The generations of the locks of a group. A lock that has expired is missing."""
        request = locks_pb.QueryLocksRequest(topic_id=self.subjects.topic_id, group=self.subjects.locks_group)
        for one in (await self.stub.QueryLocks(request, timeout=TIMEOUT_S)).locks:
            self._seen(start, generation_of(one.queue_id), one.generation)

    async def query_offset_groups(self, start: ReadStart) -> None:
        """Whether the group that committed is listed."""
        request = lag_pb.QueryOffsetGroupsRequest(topic_id=self.subjects.topic_id)
        answer = await self.stub.QueryOffsetGroups(request, timeout=TIMEOUT_S)
        self._seen(start, GROUP, int(self.subjects.commits_group in answer.groups))

    async def list_delayed(self, start: ReadStart) -> None:
        """The delayed messages: those that wait are listed, and recalled ones are not."""
        request = deferred_pb.ListDelayedRequest(topic_id=self.subjects.delayed_topic_id, limit=LIST_MAX)
        answer = await self.stub.ListDelayed(request, timeout=TIMEOUT_S)
        listed = {one.timer_id for one in answer.entries}
        for number in self.subjects.delayed:
            self._seen(start, delayed_message(number), self._delayed_state(number, is_there=number in listed))

    async def find_deferred(self, start: ReadStart) -> None:
        """One delayed message by its id."""
        numbers = list(self.subjects.delayed)
        if not numbers:
            return
        number = numbers[self.chance.below(len(numbers))]
        request = deferred_pb.FindDeferredRequest(
            topic_id=self.subjects.delayed_topic_id, message_id=self.subjects.delayed[number]
        )
        answer = await self.stub.FindDeferred(request, timeout=TIMEOUT_S)
        self._seen(start, delayed_message(number), self._delayed_state(number, is_there=answer.found))

    async def describe_deliveries(self, start: ReadStart) -> None:
        """The state of the messages in the group that pops: finished ones stay finished, also when they are deleted."""
        queue = self._queue()
        request = pop_pb.DescribeDeliveriesRequest(
            topic_id=self.subjects.topic_id,
            group=self.subjects.pops_group,
            queue_id=queue,
            from_offset=0,
            limit=LIST_MAX,
        )
        answer = await self.stub.DescribeDeliveries(request, timeout=TIMEOUT_S)
        self._seen(start, end_of(queue), answer.end_offset)
        finished = dict.fromkeys(range(answer.begin_offset if self.subjects.has_retention else 0))
        for one in answer.ranges:
            if one.phase == pop_pb.DELIVERY_PHASE_DONE:
                finished |= dict.fromkeys(range(one.first_offset, one.first_offset + one.count))
        for fact in start.known:
            if fact[:2] == done(queue, 0)[:2]:
                self._seen(start, fact, int(int(fact[2]) in finished))

    async def describe_lags(self, start: ReadStart) -> None:
        """The lag of the group that commits, which is at least what lies behind its highest requested commit."""
        request = lag_pb.DescribeLagsRequest(group=self.subjects.commits_group)
        for one in (await self.stub.DescribeLags(request, timeout=TIMEOUT_S)).lags:
            for queue, unfinished in sorted(one.unfinished.items()):
                end_at_most = unfinished + self.subjects.begun_commits.get(queue, 0)
                self.model.seen_at_most(start, end_of(queue), end_at_most, f"DescribeLags of {self.name}")

    async def list_halves(self, start: ReadStart) -> None:
        """The open transactions, which no client ends."""
        request = deferred_pb.ListHalvesRequest(topic_id=self.subjects.open_topic_id, limit=LIST_MAX)
        answer = await self.stub.ListHalves(request, timeout=TIMEOUT_S)
        self._seen(start, HALVES, len(answer.halves))

    async def query_modes(self, start: ReadStart) -> None:
        """The delivery mode of the group that pops."""
        request = modes_pb.QueryModesRequest(group=self.subjects.pops_group)
        answer = await self.stub.QueryModes(request, timeout=TIMEOUT_S)
        self._seen(start, MODE, int(any(one.topic_id == self.subjects.topic_id for one in answer.modes)))

    def _seen(self, start: ReadStart, fact: Fact, value: int) -> None:
        self.model.seen(start, fact, value, self.name)

    def _delayed_state(self, number: int, *, is_there: bool) -> int:
        if is_there:
            return 1
        return RECALLED if number in self.subjects.begun_recalls else 0

    def _queue(self) -> int:
        return self.chance.below(self.subjects.queues)


READS: Mapping[str, Callable[[ReplicaReads, ReadStart], Awaitable[None]]] = {
    "DescribeQueues": ReplicaReads.describe_queues,
    "DescribeQueuesOfTopics": ReplicaReads.describe_queues_of_topics,
    "MeasureQueues": ReplicaReads.measure_queues,
    "FetchBatches": ReplicaReads.fetch_batches,
    "QueryOffsets": ReplicaReads.query_offsets,
    "FindOffset": ReplicaReads.find_offset,
    "FindMessages": ReplicaReads.find_messages,
    "QueryLocks": ReplicaReads.query_locks,
    "QueryOffsetGroups": ReplicaReads.query_offset_groups,
    "ListDelayed": ReplicaReads.list_delayed,
    "FindDeferred": ReplicaReads.find_deferred,
    "DescribeDeliveries": ReplicaReads.describe_deliveries,
    "DescribeLags": ReplicaReads.describe_lags,
    "ListHalves": ReplicaReads.list_halves,
    "QueryModes": ReplicaReads.query_modes,
}
"""Each read of EnodeService that is answered from the state, by method."""
