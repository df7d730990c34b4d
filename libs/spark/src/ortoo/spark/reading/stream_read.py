"""The source of a streaming query.

Spark keeps offsets in its checkpoint but asks this object for the first ones: twice when a query is new, and again when
it is started anew before its first batch was committed. So the first batch of a new query is empty. It fixes the start
in the checkpoint, and from then on nobody asks again. One object lives on the driver as long as the query runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow

from ortoo.client import DataLoss, OrtooError, Queue, Unavailable
from ortoo.common.errors import Invalid
from ortoo.common.process.logs import get_logger
from ortoo.spark.core.group_offsets import commit_group, ensure_group
from ortoo.spark.core.link import Link, link_to
from ortoo.spark.core.offsets import Offsets
from ortoo.spark.core.read_options import ReadOptions
from ortoo.spark.reading.batch_read import MessageTask, TaskReader
from ortoo.spark.reading.bounds import start_offsets
from ortoo.spark.reading.data_loss import readable
from ortoo.spark.reading.limits import MessageSize, limited
from ortoo.spark.reading.planning import plan
from ortoo.spark.reading.topic_state import Range, TopicState, current_state

_POLL_S = 0.05
_IDLE_SHARE = 0.1
_IDLE_AGE_S = 0.5
"""An idle query looks less often: after a tenth of the time in which nothing came, and at the latest after this."""
_log = get_logger("spark")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics batch by batch, up to limits, from offsets that Spark keeps."""

    def __init__(self, options: ReadOptions, schema: Any) -> None:
        """Read `options` as rows of `schema`, a pyspark StructType. Errors: Invalid."""
        if options.view != "messages":
            raise Invalid("a stream reads messages; read views as batches", field="view")
        self._options = options
        self._tasks = TaskReader(options, schema)
        self._first: Offsets | None = None
        self._pinned = False
        self._target: Offsets | None = None
        self._cached: tuple[float, TopicState] | None = None
        self._changed_s = 0.0
        self._waiting_since_s: float | None = None
        self._size = MessageSize()
        self._group_is_there = False

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a new query starts. The same answer however often it is asked."""
        if self._first is None:
            link = self._link()
            state = current_state(link, self._options)
            if state.missing:
                away = ", ".join(sorted({queue.enode for queue in state.missing}))
                raise Unavailable(f"the enodes {away} are away, so nobody can say where a new query starts; try again")
            self._first = Offsets(start_offsets(link, self._options, state), dict(state.topic_ids))
        return self._first.to_json()

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's name
        """The limit that the options ask for."""
        return ReadMaxRows(self._options.max_offsets) if self._options.max_offsets else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix where the query will end: everything that is stored now."""
        state = self._state(fresh=True)
        self._target = Offsets({queue: held.end for queue, held in state.ranges.items()}, dict(state.topic_ids))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """What is stored now; Spark shows it in its progress, and lag is the difference to the end offsets."""
        if self._cached is None:
            return None
        state = self._cached[1]
        return Offsets({queue: held.end for queue, held in state.ranges.items()}, dict(state.topic_ids)).to_json()

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """How far the next batch goes: within the limits, and never behind `start`."""
        if self._first is not None and not self._pinned:
            self._pinned = True
            if start == self._first.to_json():
                return start
        at = Offsets.of_json(start)
        link, options = self._link(), self._options
        deadline_s = link.clock.monotonic_s() + (0 if self._target else options.latest_wait_ms / 1000)
        while True:
            ends = self._ends(at, limit).to_json()
            rest_s = deadline_s - link.clock.monotonic_s()
            if ends != start or rest_s <= 0:
                return ends
            link.sleep(min(max(self._fresh_s(), _POLL_S), rest_s))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Any]:
        """The tasks of a batch: the same ones when the batch is repeated. Errors: DataLoss, as the policy says."""
        self._pinned = True  # a batch that was planned before is repeated: the start is in the checkpoint already
        begin, stop = Offsets.of_json(start), Offsets.of_json(end)
        wanted: dict[Queue, Range] = {}
        for queue, offset in stop.queues.items():
            if begin.topic_ids.get(queue.topic, 0) not in (0, stop.topic_ids.get(queue.topic, 0)):
                continue  # this batch only moves to the new topic of the same name
            first = begin.queues.get(queue)
            if first is None:
                first = self._begin(queue)
            if offset > first:
                wanted[queue] = Range(first, offset)
        if not wanted:
            return []
        cut = self._checked(wanted, begin, stop)
        slices = plan(
            cut,
            stop.topic_ids,
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records,
            max_queues_per_task=self._options.max_queues_per_task,
        )
        return [MessageTask(task) for task in slices]

    def read(self, partition: Any) -> Iterator[Any]:
        """The Arrow batches of one task."""
        return self._tasks.batches(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """A batch is done: tell the consumer group that only shows progress, if one is named."""
        if self._options.consumer_group:
            try:
                if not self._group_is_there:
                    ensure_group(self._link(), self._options.consumer_group)
                    self._group_is_there = True
                commit_group(self._link(), self._options.consumer_group, Offsets.of_json(end).queues)
            except OrtooError as error:
                _log.warning("the group's offsets are not moved", group=self._options.consumer_group, why=str(error))

    def stop(self) -> None:
        """Nothing to do: the connection ends with its process."""

    def _link(self) -> Link:
        return link_to(self._options.addresses)

    def _state(self, *, fresh: bool = False) -> TopicState:
        """What the topics hold, asked anew when the last answer is too old."""
        now_s = self._link().clock.monotonic_s()
        if fresh or self._cached is None or now_s - self._cached[0] > self._age_max_s(now_s):
            state = current_state(self._link(), self._options, missing_allowed=True)
            if self._cached is None or state != self._cached[1]:
                self._changed_s = now_s
            self._cached = (now_s, state)
        return self._cached[1]

    def _age_max_s(self, now_s: float) -> float:
        """How old an answer may be: `metadataMaxAgeMs`, and more while nothing new comes for seconds."""
        idle_s = now_s - self._changed_s
        return max(self._options.metadata_max_age_ms / 1000, min(idle_s * _IDLE_SHARE, _IDLE_AGE_S))

    def _ends(self, at: Offsets, limit: Any) -> Offsets:
        """The end of the next batch."""
        state, options = self._state(), self._options
        deleted = sorted(set(at.topic_ids) - set(state.topic_ids))
        if deleted and not options.pattern and options.on_data_loss == "fail":
            raise self._gone(deleted, at, "the topic was deleted")
        recreated = {topic for topic, number in at.topic_ids.items() if state.topic_ids.get(topic, number) != number}
        if recreated and options.on_data_loss == "fail":
            raise self._gone(sorted(recreated), at, "the topic was deleted and created again")
        latest = self._latest(at, state, recreated)
        ids = dict(at.topic_ids) | dict(state.topic_ids)
        starts = {queue: at.queues.get(queue, self._begin(queue)) for queue in latest}
        starts |= {queue: self._restart(queue, state) for queue in latest if queue.topic in recreated}
        if recreated:
            # The first batch after it only moves the start; what the new topic holds comes with the next one.
            return Offsets(starts, ids)
        if self._target is None and self._holds_back(starts, latest):
            return at
        rows = 0 if isinstance(limit, ReadAllAvailable) else getattr(limit, "max_rows", 0) or options.max_offsets
        ends = limited(starts, latest, rows) if rows else latest
        if options.max_bytes and not isinstance(limit, ReadAllAvailable):
            ends = limited(starts, ends, self._messages_max(starts, ends))
        return Offsets(ends, ids)

    def _latest(self, at: Offsets, state: TopicState, recreated: set[str]) -> dict[Queue, int]:
        """How far reading could go: queues of enodes that are away stay where they are, new ones are taken in."""
        latest = {queue: offset for queue, offset in at.queues.items() if queue.topic not in recreated}
        for queue, held in state.ranges.items():
            target = held.end if self._target is None else self._target.queues.get(queue)
            if target is not None:
                latest[queue] = max(target, latest.get(queue, 0))
        return latest

    def _fresh_s(self) -> float:
        """For how long the last answer is not asked again."""
        now_s = self._link().clock.monotonic_s()
        return 0.0 if self._cached is None else self._cached[0] + self._age_max_s(now_s) - now_s

    def _begin(self, queue: Queue) -> int:
        """Where a queue starts that the query has not seen: with its first message."""
        held = self._state().ranges.get(queue)
        return held.begin if held is not None else 0

    def _restart(self, queue: Queue, state: TopicState) -> int:
        held = state.ranges[queue]
        return held.end if self._options.on_data_loss == "latest" else held.begin

    @staticmethod
    def _gone(topics: list[str], at: Offsets, reason: str) -> DataLoss:
        queue, offset = min((queue, offset) for queue, offset in at.queues.items() if queue.topic in topics)
        return DataLoss(
            f"queue {queue.queue_id} of {queue.topic} on {queue.enode} was read up to {offset}, but {reason}; "
            "to go on with what there is now set failOnDataLoss=false",
            field="failOnDataLoss",
        )

    def _holds_back(self, starts: Mapping[Queue, int], latest: Mapping[Queue, int]) -> bool:
        """Whether to wait for more, as `minOffsetsPerTrigger` says, until `maxTriggerDelay` is over."""
        options, now_s = self._options, self._link().clock.monotonic_s()
        new = sum(latest[queue] - starts[queue] for queue in latest)
        if not options.min_offsets or new >= options.min_offsets or new == 0:
            self._waiting_since_s = None
            return bool(options.min_offsets) and new == 0
        if self._waiting_since_s is None:
            self._waiting_since_s = now_s
        if now_s - self._waiting_since_s < options.max_delay_ms / 1000:
            return True
        self._waiting_since_s = None
        return False

    def _messages_max(self, starts: Mapping[Queue, int], ends: Mapping[Queue, int]) -> int:
        """How many messages `maxBytesPerTrigger` allows, by the size of those where the batch begins."""
        self._size = self._size.sampled(self._link(), starts, ends)
        return max(self._size.messages(self._options.max_bytes), 1)

    def _checked(self, wanted: dict[Queue, Range], begin: Offsets, stop: Offsets) -> dict[Queue, Range]:
        """The wanted ranges without what is lost; losses are logged with their numbers."""
        state = self._state()
        away = state.missing | {
            queue for queue in wanted if queue not in state.ranges and queue.topic in state.topic_ids
        }
        cut: dict[Queue, Range] = {}
        for queue, asked in wanted.items():
            if queue in away and queue not in state.ranges:
                cut[queue] = asked  # its enode may come back while the task waits
                continue
            known = stop.topic_ids.get(queue.topic)
            recreated = known is not None and state.topic_ids.get(queue.topic, known) != known
            part = readable(queue, asked, state.ranges.get(queue), self._options.on_data_loss, recreated=recreated)
            for loss in part.losses:
                _log.warning("messages are lost", what=str(loss))
            cut[queue] = Range(part.begin, part.end)
        return cut
