"""Stats of one store: sizes and lags by topic and group, computed at each request, without deleted items."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from ortoo.enode.index.catalog import QueueLog
from ortoo.enode.log.results import StoreDescription
from ortoo.enode.store.engine import Engine


class TopicStats(NamedTuple):
    """Totals of one topic on this enode."""

    topic: str
    messages_in: int
    """Messages stored since the topic was created."""
    bytes_in: int
    """Bytes stored since the store was opened."""
    messages: int
    """Messages that are still stored."""


class GroupLagStats(NamedTuple):
    """The lag of one group in one topic on this enode."""

    topic: str
    group: str
    messages: int
    oldest_at_ms: int
    """Store time of the oldest unacknowledged message; 0 if all are acknowledged."""


def topic_stats(engine: Engine) -> list[TopicStats]:
    """One entry for each topic with a copy on this enode."""
    totals: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    for (topic_id, _), queue in engine.catalog.queues.items():
        of_topic = totals[topic_id]
        of_topic[0] += queue.end_offset
        of_topic[1] += queue.bytes_in
        of_topic[2] += queue.end_offset - queue.begin_offset
    return [TopicStats(copy.name, *totals[copy.topic_id]) for copy in engine.state.topics.all()]


def group_lag_stats(engine: Engine) -> Iterator[GroupLagStats]:
    """One entry for each (topic, group) with a committed offset."""
    queues = engine.catalog.queues
    names = {copy.topic_id: copy.name for copy in engine.state.topics.all()}
    for topic_id, group, offsets in engine.state.offsets.entries():
        name = names.get(topic_id)
        if name is None:
            continue
        lag, oldest_at_ms = 0, 0
        for queue_id, (offset, _) in offsets.items():
            queue = queues.get((topic_id, queue_id))
            if queue is not None and offset < queue.end_offset:
                next_offset = max(offset, queue.begin_offset)
                lag += queue.end_offset - next_offset
                stored_at_ms = _stored_at_ms(queue, next_offset)
                oldest_at_ms = min(oldest_at_ms or stored_at_ms, stored_at_ms)
        yield GroupLagStats(name, group, lag, oldest_at_ms)


def describe_store(engine: Engine, fetches: int) -> StoreDescription:
    """Sizes, positions, health and damages of the store; `fetches` is the number of answered reads."""
    appender, catalog, committer, reader = engine.appender, engine.catalog, engine.committer, engine.reader
    writes = appender.failure or appender.refusal or appender.barred or appender.full or appender.starved
    reason = "closed" if engine.closed else writes
    return StoreDescription(
        enode=engine.identity.enode,
        cluster=engine.identity.cluster,
        store_id=engine.identity.store_id,
        log_begin_position=catalog.begin_position,
        log_bytes=appender.appended_position - catalog.begin_position,
        segment_count=len(catalog.segments),
        appended_position=appender.appended_position,
        durable_position=appender.durable_position,
        store_open_number=appender.store_open,
        writable=not reason,
        reason=reason,
        damages=tuple(catalog.damages),
        counters={
            "appends": committer.appends,
            "appended_messages": committer.appended_messages,
            "appended_bytes": committer.appended_bytes,
            "pending_bytes": appender.pending_bytes,
            "flushes": appender.flushes,
            "flush_ms": int(appender.flush_s * 1000),
            "fetches": fetches,
            "waiting_fetches": engine.waiting.count,
            "batches_from_memory": reader.hits,
            "batches_from_disk": reader.misses,
            "deleted_segments": engine.housekeeping.deleted_segments,
            "producer_windows": len(engine.state.windows),
        },
    )


def _stored_at_ms(queue: QueueLog, offset: int) -> int:
    """Store time of the message at an offset; approximate in a sealed segment whose index is on disk."""
    run = queue.run_containing(offset)
    rows = queue.rows if run is None else run.rows
    if rows is not None and len(rows):
        return int(rows.stored_at_ms[max(0, bisect_right(rows.first_offsets, offset) - 1)])
    if run is None:
        return 0
    entry = run.entry
    fraction = (offset - entry.begin_offset) / max(1, entry.end_offset - entry.begin_offset)
    return entry.first_stored_at_ms + int(fraction * (entry.last_stored_at_ms - entry.first_stored_at_ms))
