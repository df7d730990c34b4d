"""The source of a streaming query. This module queries the cluster, and `StreamOffsets` decides.

The driver has one `StreamReader` while the query runs. Spark stores its offsets in the checkpoint.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, SupportsTriggerAvailableNow

from ortoo.client import Queue
from ortoo.common.errors import Invalid, OrtooError, Unavailable, Unsupported
from ortoo.common.logs.logger import get_logger
from ortoo.spark.core import log_events
from ortoo.spark.core.cluster_options import check_names
from ortoo.spark.core.link import ClusterLink, link_to
from ortoo.spark.core.offsets import FORMAT, SourceOffsets
from ortoo.spark.core.read_options import ReadOptions
from ortoo.spark.reading.batch_limits import BytesLimit
from ortoo.spark.reading.batch_read import TaskReader
from ortoo.spark.reading.bounds import start_offsets
from ortoo.spark.reading.data_loss import Loss, clip_to_stored
from ortoo.spark.reading.stream_offsets import StreamLimits, StreamOffsets, ranges
from ortoo.spark.reading.topic_state import OffsetSpan, TopicState, complete_state, current_state, topics_gone

if TYPE_CHECKING:
    from ortoo.client.offsets.offset_lookup import QueueSize

_NEW_QUERY: Final = {"v": FORMAT, "new": True}
"""The offsets before the first batch. They are never in the checkpoint."""
_POLL_S = 0.05
_IDLE_AGE_FACTOR = 0.1
_IDLE_AGE_MAX_S = 0.5
"""An idle query polls less often: after a tenth of its idle time, and at the latest after this time."""
_GONE_AGE_MAX_S = 60.0
"""A deleted topic leaves the offsets at the latest this time after it can no longer be restored."""
_UNLIMITED = 1 << 62
_log = get_logger("spark")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics batch by batch, within limits, from offsets in Spark's checkpoint."""

    def __init__(self, options: ReadOptions, schema: Any) -> None:
        """Read `options` as rows of `schema`, a pyspark StructType. Errors: Invalid."""
        if options.view != "messages":
            raise Invalid("a stream reads messages; read views as batches", field="view")
        self._options = options
        self._tasks = TaskReader(options, schema)
        self._by_bytes = BytesLimit(options.max_bytes, self._measure)
        limits = StreamLimits(
            options.max_offsets,
            options.min_offsets,
            options.max_delay_ms / 1000,
            self._by_bytes if options.max_bytes else None,
        )
        self._offsets = StreamOffsets(options.on_data_loss, limits, options.reads)
        self._deleted: tuple[float, set[int]] = (0.0, set())
        self._gone: frozenset[int] = frozenset()
        self._cached: tuple[float, TopicState] | None = None
        self._changed_s = 0.0
        self._end: SourceOffsets | None = None
        self._losses = self._lost = 0
        self._start: SourceOffsets | None = None
        self._committed: SourceOffsets | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """A mark for the start of a new query, which `latestOffset` finds.

        Spark requests it for a repeated first batch too. The end of that batch has its start, so that a deleted topic
        or an enode that is down does not matter here.
        """
        return dict(_NEW_QUERY)

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's name
        """The read limit of the options. It is never ReadAllAvailable, which Spark itself uses for Trigger.Once."""
        if self._options.max_bytes and not self._options.max_offsets:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadMaxRows(self._options.max_offsets or _UNLIMITED)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Set the end of the query to the present ends of the queues.

        Queues whose enode stays down for `unavailableTimeoutMs` are not read; the log has a warning.
        """
        with contextlib.suppress(Unavailable):
            complete_state(self._link(), self._options, missing_allowed=True)
        self._offsets.target = _stored_ends(self._state(fresh=True))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """The present ends of the queues, which Spark shows in its progress.

        They include `metrics`, with the lag of the batch. The result is None before the first query of the cluster.
        """
        if self._cached is None:
            return None
        stored = _stored_ends(self._cached[1])
        return stored.to_json() | {"metrics": self._metrics(stored)}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the next batch, within the limits and never before `start`.

        Errors: DataLoss, and for a new query Invalid, NotFound and Unavailable.
        """
        is_first, unlimited = start == _NEW_QUERY, isinstance(limit, ReadAllAvailable)
        at = self._first() if is_first else SourceOffsets.of_json(start)
        self._commit_group(at)
        link = self._link()
        # A first batch without messages is empty. It is planned at once, so that the checkpoint has the start.
        wait_s = 0 if is_first or self._offsets.target or unlimited else self._options.latest_wait_ms / 1000
        deadline_s, waited_for_enode = link.clock.monotonic_s() + wait_s, is_first
        while True:
            self._end = self._next(at, unlimited)
            if not waited_for_enode and self._offsets.lacks_enode(at, self._state()):
                waited_for_enode, deadline_s = True, deadline_s + link.unavailable_timeout_s
            rest_s = deadline_s - link.clock.monotonic_s()
            if self._end != at:
                return (replace(self._end, start=at) if is_first else self._end).to_json()
            if rest_s <= 0:
                return at.to_json() if is_first else start
            link.sleep(min(max(self._fresh_s(), _POLL_S), rest_s))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Any]:
        """Plan the tasks of a batch; a repeated batch has the same tasks. Errors: DataLoss under the policy `fail`."""
        stop = SourceOffsets.of_json(end)
        requested = ranges(stop.start or SourceOffsets.of_json(start), stop)
        return self._tasks.plan(self._clip_ranges(requested, stop), stop.topic_ids) if requested else []

    def read(self, partition: Any) -> Iterator[Any]:
        """Read one task; yields Arrow batches."""
        return self._tasks.batches(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing, because Spark never commits the last batch; `latestOffset` commits the group's offsets."""

    def stop(self) -> None:
        """Do nothing: the connection ends with the process."""

    def _first(self) -> SourceOffsets:
        """The start of a new query; every call returns the same offsets. Errors: Invalid, NotFound, Unavailable."""
        if self._start is None:
            check_names(self._options.cluster)
            link = self._link()
            state = complete_state(link, self._options)
            self._start = SourceOffsets(start_offsets(link, self._options, state), dict(state.topic_ids))
            self._changed_s = link.clock.monotonic_s()
            self._cached = (self._changed_s, state)
        return self._start

    def _link(self) -> ClusterLink:
        return link_to(self._options.cluster)

    def _state(self, *, fresh: bool = False) -> TopicState:
        """The state of the topics; queried again when the cached state is too old."""
        now_s = self._link().clock.monotonic_s()
        if fresh or self._cached is None or now_s - self._cached[0] > self._age_max_s(now_s):
            state = current_state(self._link(), self._options, missing_allowed=True)
            if self._cached is None or state != self._cached[1]:
                self._changed_s = now_s
            self._cached = (now_s, state)
        return self._cached[1]

    def _age_max_s(self, now_s: float) -> float:
        """The maximum age of the cached state: `metadataMaxAgeMs`, and more for an idle query."""
        idle_s = now_s - self._changed_s
        return max(self._options.metadata_max_age_ms / 1000, min(idle_s * _IDLE_AGE_FACTOR, _IDLE_AGE_MAX_S))

    def _fresh_s(self) -> float:
        """Remaining time until the cached state is too old."""
        now_s = self._link().clock.monotonic_s()
        return 0.0 if self._cached is None else self._cached[0] + self._age_max_s(now_s) - now_s

    def _next(self, at: SourceOffsets, unlimited: bool) -> SourceOffsets:
        # A cached state may be older than `at`; one that would move offsets or lose messages is queried again.
        state = self._with_gone(at, self._state(fresh=self._offsets.is_moving(at, self._state())))
        end, losses = self._offsets.next(at, state, self._link().clock.monotonic_s(), unlimited=unlimited)
        self._report_losses(losses)
        return end

    def _with_gone(self, at: SourceOffsets, state: TopicState) -> TopicState:
        """The state with the deleted topics that cannot be restored. They are queried seldom, and only if some are."""
        deleted = self._offsets.deleted(at, state)
        if not deleted:
            return state
        now_s, (asked_s, asked) = self._link().clock.monotonic_s(), self._deleted
        if deleted - asked or now_s - asked_s > _GONE_AGE_MAX_S:
            self._deleted, self._gone = (now_s, deleted), topics_gone(self._link(), deleted)
            state = self._state(fresh=True)  # it has the topics that were restored meanwhile
        return replace(state, gone=self._gone)

    def _report_losses(self, losses: Sequence[Loss]) -> None:
        for loss in losses:
            _log.emit(log_events.MESSAGES_LOST, what=str(loss))
        self._losses += len(losses)
        self._lost += sum(loss.messages for loss in losses)

    def _measure(self, starts: Mapping[Queue, tuple[int, int]]) -> dict[Queue, "QueueSize"]:
        """The stored bytes of queues, without those whose enode does not answer now. Errors: Unsupported."""
        from ortoo.client.offsets.offset_lookup import QueueSize, measure_queues

        link = self._link()
        found = link.run(measure_queues(link.connection, starts))
        for size in found.values():
            if isinstance(size, Unsupported):  # an enode of an earlier version, which a retry does not change
                raise size
        return {queue: size for queue, size in found.items() if isinstance(size, QueueSize)}

    def _clip_ranges(self, requested: dict[Queue, OffsetSpan], stop: SourceOffsets) -> dict[Queue, OffsetSpan]:
        """The requested ranges without lost offsets; losses are logged."""
        state = self._state()
        cut: dict[Queue, OffsetSpan] = {}
        for queue, range_ in requested.items():
            stored = state.ranges.get(queue)
            if stored is None and queue in state.unavailable:
                cut[queue] = range_  # its enode may be up again while the task waits
                continue
            topic_id = stop.topic_ids.get(queue.topic)
            recreated = topic_id is not None and state.topic_ids.get(queue.topic, topic_id) != topic_id
            cut[queue], losses = clip_to_stored(queue, range_, stored, self._options.on_data_loss, recreated=recreated)
            self._report_losses(losses)
        return cut

    def _commit_group(self, at: SourceOffsets) -> None:
        """Commit the offsets `at` for the progress group. Spark has committed all messages before them."""
        group = self._options.consumer_group
        if not group or at in (self._committed, self._start):
            return
        from ortoo.spark.core.group_offsets import commit_group, ensure_group

        try:
            if self._committed is None:
                ensure_group(self._link(), group)
            state = self._state()
            commit_group(self._link(), group, {q: offset for q, offset in at.queues.items() if q in state.ranges})
            self._committed = at
        except OrtooError as error:
            _log.emit(log_events.GROUP_OFFSET_COMMIT_FAILED, group=group, reason=str(error))

    def _metrics(self, stored: SourceOffsets) -> dict[str, Any]:
        """Metrics for Spark's progress: the lag under the names of the Kafka source, losses and retries."""
        reached = self._end.queues if self._end is not None else {}
        behind = [max(end - reached[queue], 0) for queue, end in stored.queues.items() if queue in reached] or [0]
        return {
            "minOffsetsBehindLatest": min(behind),
            "maxOffsetsBehindLatest": max(behind),
            "avgOffsetsBehindLatest": str(round(sum(behind) / len(behind), 1)),
            "estimatedTotalBytesBehindLatest": round(sum(behind) * self._by_bytes.mean_bytes),
            "losses": self._losses,
            "lostMessages": self._lost,
            "retries": self._link().connection.retries,
        }


def _stored_ends(state: TopicState) -> SourceOffsets:
    return SourceOffsets({queue: held.end for queue, held in state.ranges.items()}, dict(state.topic_ids))
