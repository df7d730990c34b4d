"""A simulated cluster with topics that change, and Spark as a streaming query sees it: calls in order, a checkpoint."""

import inspect
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable

from ortoo.client import NotFound, OutOfRange, Queue, QueueInfo, TopicDescription, TopicInfo, Unavailable
from ortoo.client.admin.topics import (
    TopicPlacement,
)
from ortoo.common.errors.status import failure_of
from ortoo.spark.core.offsets import SourceOffsets
from ortoo.spark.reading.data_loss import Loss
from ortoo.spark.reading.slice_reader import Remainder, read_slice
from ortoo.spark.reading.stream_read import StreamReader

MESSAGE_BYTES = 10
ENODES = ("a", "b")


class Crash(Exception):
    """The driver is killed here."""


@dataclass
class QueueLife:
    """Messages of one queue, each a number that no other message has."""

    messages: list[int] = field(default_factory=list)
    begin: int = 0


@dataclass
class TopicLife:
    """One topic of one id."""

    topic_id: int
    queues: dict[Queue, QueueLife]


class World:
    """Topics by name, deleted topics, and all messages that were ever sent."""

    def __init__(self) -> None:
        """Start without topics."""
        self.topics: dict[str, TopicLife] = {}
        self.deleted: list[tuple[str, TopicLife]] = []
        self.ever: dict[tuple[int, Queue], dict[int, int]] = {}
        """Topic id and queue to its messages: number to offset."""
        self.away: set[str] = set()
        self.group: dict[Queue, int] = {}
        self._ids = self._sent = 0

    def create(self, name: str) -> None:
        self._ids += 1
        self.topics[name] = TopicLife(self._ids, {Queue(name, enode, 0): QueueLife() for enode in ENODES})

    def grow(self, name: str) -> None:
        queues = self.topics[name].queues
        queues[Queue(name, ENODES[len(queues) % 2], len(queues) // 2)] = QueueLife()

    def send(self, name: str, at: int, count: int) -> None:
        topic = self.topics[name]
        queue, life = sorted(topic.queues.items())[at % len(topic.queues)]
        for _ in range(count):
            self._sent += 1
            self.ever.setdefault((topic.topic_id, queue), {})[self._sent] = len(life.messages)
            life.messages.append(self._sent)

    def expire(self, name: str, at: int, count: int) -> None:
        life = sorted(self.topics[name].queues.items())[at % len(self.topics[name].queues)][1]
        life.begin = min(life.begin + count, len(life.messages))

    def delete(self, name: str) -> None:
        self.deleted.append((name, self.topics.pop(name)))

    def purge(self, at: int) -> None:
        """A deleted topic can no longer be restored."""
        self.deleted.pop(at % len(self.deleted))

    def undelete(self, at: int) -> None:
        name, topic = self.deleted[at % len(self.deleted)]
        if name not in self.topics:
            self.deleted.remove((name, topic))
            self.topics[name] = topic


class FakeLink:
    """A `Link` to a World."""

    def __init__(self, world: World) -> None:
        """Time advances only by `sleep`."""
        self.world = world
        self.now_s = 0.0
        self.clock = SimpleNamespace(monotonic_s=lambda: self.now_s)
        self.admin = self.topics = self
        self.connection = SimpleNamespace(retries=0, call=self._called)
        self.when_available = lambda attempt: attempt()  # an enode that is down stays down during a call
        self.unavailable_timeout_s = 0.0

    def run(self, answer: Any) -> Any:
        """The answer; coroutines of the client do not wait here."""
        if not inspect.iscoroutine(answer):
            return answer
        try:
            answer.send(None)
        except StopIteration as done:
            return done.value
        raise AssertionError("it waits")

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.world.away.clear()  # enodes are up again after a wait

    def list_topics(self) -> list[Any]:
        return [SimpleNamespace(name=name) for name in self.world.topics]

    def list_deleted_topics(self) -> list[Any]:
        return [SimpleNamespace(topic=SimpleNamespace(topic_id=topic.topic_id)) for _, topic in self.world.deleted]

    def describe_topics(self, names: Sequence[str]) -> list[TopicDescription]:
        return [self.describe_topic(name) for name in names if name in self.world.topics]

    def describe_group(self, group: str) -> None:
        del group

    def describe_topic(self, name: str) -> TopicDescription:
        if name not in self.world.topics:
            raise NotFound(f"no topic {name}")
        topic = self.world.topics[name]
        counts = {enode: sum(queue.enode == enode for queue in topic.queues) for enode in ENODES}
        placements = tuple(TopicPlacement(enode, count, count) for enode, count in counts.items())
        held = tuple(
            QueueInfo(queue, life.begin, len(life.messages))
            for queue, life in sorted(topic.queues.items())
            if queue.enode not in self.world.away
        )
        return TopicDescription(TopicInfo(name, topic.topic_id, "read_write", placements, 0), held)

    async def _called(self, stub: Any, method: str, request: Any) -> Any:
        return self.call(stub, method, request)

    def call(self, stub: Any, method: str, request: Any) -> Any:
        del stub
        if method == "CommitOffsets":
            for item in request.offsets:
                self.world.group[Queue(item.queue.topic, item.queue.enode, item.queue.queue_id)] = item.offset
            return SimpleNamespace(refused=())
        if method == "MeasureQueues":
            return self._measure(request)
        assert method == "QueryQueues"
        described = self.describe_topic(request.topic).queues
        return SimpleNamespace(
            queues=[
                SimpleNamespace(queue=each.queue, begin_offset=each.begin_offset, end_offset=each.end_offset)
                for each in described
            ]
        )

    def _measure(self, request: Any) -> Any:
        """Each message is a stored batch of MESSAGE_BYTES."""
        sizes, refused = [], []
        for one in request.queues:
            queue = Queue(one.queue.topic, one.queue.enode, one.queue.queue_id)
            topic = self.world.topics.get(queue.topic)
            if queue.enode in self.world.away or topic is None or queue not in topic.queues:
                refused.append(SimpleNamespace(queue=one.queue, failure=failure_of(Unavailable("away"))))
                continue
            count = min(max(one.bytes_max // MESSAGE_BYTES, 1), len(topic.queues[queue].messages) - one.from_offset)
            size = SimpleNamespace(
                queue=one.queue, end_offset=one.from_offset + count, size_bytes=count * MESSAGE_BYTES
            )
            sizes.append(size)
        return SimpleNamespace(sizes=sizes, refused=refused)

    def fetch(self, queue: Queue, begin: int, end: int, *_: object) -> Iterator[Any]:
        self.world.away.discard(queue.enode)
        topic = self.world.topics.get(queue.topic)
        if topic is None or queue not in topic.queues:
            raise NotFound(f"no queue {queue}")
        life = topic.queues[queue]
        if begin < life.begin or begin > len(life.messages):
            raise OutOfRange("not there")
        while begin < min(end, len(life.messages)):
            stop = min(begin + 3, end, len(life.messages))
            batch = life.messages[begin:stop]
            yield SimpleNamespace(
                topic_id=topic.topic_id,
                next_offset=stop,
                numbers=batch,
                sealed=SimpleNamespace(count=len(batch)),
                size_bytes=len(batch) * MESSAGE_BYTES,
            )
            begin = stop


class Spark:
    """One query and its checkpoint. `happens` is called wherever the world may change, and may raise Crash."""

    def __init__(self, world: World, link: FakeLink, reader: Callable[[], StreamReader]) -> None:
        """`reader` makes a source for each run, with the options of that run."""
        self.world, self.link = world, link
        self._reader = reader
        self.offsets: list[dict[str, Any]] = []
        self.batches: list[list[int]] = []
        """The rows of each committed batch."""
        self.owed: dict[tuple[int, Queue], int] = {}
        """Topic id and queue to the first offset that the query must read."""
        self.reported: set[int] = set()
        self.rows_max = 1_000
        """Largest number of rows of a batch, unless Spark requests everything."""
        self.happens: Callable[[], None] = lambda: None
        self.events_left = 12
        """Number of events that may still happen."""
        self._once = False

    def run(self, trigger: str = "available_now") -> None:
        """Run until nothing is new; the default trigger is stopped soon. Errors: Crash, and those of the source."""
        reader = self._reader()
        self._listen(reader)
        if trigger == "available_now":
            reader.prepareForTriggerAvailableNow()
        self._once = self._once or trigger == "once"  # its planned batches may be left to another run
        limit = ReadAllAvailable() if trigger == "once" else reader.getDefaultReadLimit()
        self.happens()
        if len(self.offsets) > len(self.batches):
            self._batch(reader)
        for _ in range(3 if trigger == "default" else 200):
            start = self.offsets[-1] if self.offsets else reader.initialOffset()
            self.happens()
            end = json.loads(json.dumps(reader.latestOffset(start, limit)))
            reader.reportLatestOffset()
            self.happens()
            if self.offsets and end == self.offsets[-1]:
                return
            ends = SourceOffsets.of_json(end)
            for due in (ends,) if ends.start is None else (ends.start, ends):
                for queue, offset in due.queues.items():
                    self.owed.setdefault((due.topic_ids[queue.topic], queue), offset)
            self.offsets.append(end)
            self.happens()
            if len(self.offsets) > 1:
                reader.commit(self.offsets[-2])
            self._batch(reader)
            if trigger == "once":
                return
        assert trigger == "default", "the query comes to no end"

    def position(self, topic_id: int, queue: Queue) -> int:
        """The offset of the checkpoint in a queue; -1 if it has none."""
        if not self.offsets:
            return -1
        newest = SourceOffsets.of_json(self.offsets[-1])
        return newest.queues.get(queue, -1) if newest.topic_ids.get(queue.topic) == topic_id else -1

    def _batch(self, reader: StreamReader) -> None:
        at = len(self.batches)
        start = self.offsets[at - 1] if at else reader.initialOffset()
        rows: list[int] = []
        for task in reader.partitions(start, self.offsets[at]):
            self.happens()
            for part in task.slices:
                rest = Remainder(self.link, part, reader._options.on_data_loss)  # type: ignore[arg-type]
                rest._report_loss = lambda loss, topic_id=part.topic_id: self._report(topic_id, loss)  # type: ignore[method-assign, misc]
                for each in read_slice(self.link, rest, columns=(), filter="*", timeout_ms=1_000):  # type: ignore[arg-type]
                    rows += each.numbers  # type: ignore[attr-defined]
        self.happens()
        assert self._once or len(rows) <= self.rows_max, "the batch is larger than its limits"
        self.batches.append(rows)

    def _listen(self, reader: StreamReader) -> None:
        ids: dict[str, int] = {}
        go_on, checked = reader._next, reader._clip_ranges

        def following(at: SourceOffsets, unlimited: bool) -> SourceOffsets:
            ids.clear()
            ids.update(at.topic_ids)
            return go_on(at, unlimited)

        def checking(requested: Any, stop: SourceOffsets) -> Any:
            ids.clear()
            ids.update(stop.topic_ids)
            return checked(requested, stop)

        def telling(losses: Sequence[Loss]) -> None:
            for loss in losses:
                self._report(ids[loss.queue.topic], loss)

        reader._next, reader._clip_ranges, reader._report_losses = following, checking, telling  # type: ignore[method-assign]

    def _report(self, topic_id: int, loss: Loss) -> None:
        ever = self.world.ever.get((topic_id, loss.queue), {})
        if loss.end is not None:
            assert set(range(loss.begin, loss.end)) <= set(ever.values()), f"{loss}: these never were"
        self.reported |= {
            number for number, at in ever.items() if at >= loss.begin and (loss.end is None or at < loss.end)
        }
