"""Stats of one store: its sizes by topic, computed at each request, without deleted items."""

from collections.abc import Iterator
from typing import NamedTuple

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


def topic_stats(engine: Engine) -> Iterator[TopicStats]:
    """One entry for each topic with a copy on this enode.

    The state may change between two entries; a topic that was deleted meanwhile is left out.
    """
    topics, queues = engine.state.topics, engine.catalog.queues
    for copy in topics.unsorted():
        if topics.get(copy.topic_id) is None:
            continue
        found = [queue for number in range(copy.queue_count) if (queue := queues.get((copy.topic_id, number)))]
        messages_in = sum(queue.end_offset for queue in found)
        deleted = sum(queue.begin_offset for queue in found)
        yield TopicStats(copy.name, messages_in, sum(queue.bytes_in for queue in found), messages_in - deleted)


def describe_store(engine: Engine, fetches: int) -> StoreDescription:
    """Sizes, positions, health and damages of the store; `fetches` is the number of answered reads."""
    appender, catalog, committer, reader = engine.appender, engine.catalog, engine.committer, engine.reader
    writes = appender.failure or appender.refusal or appender.barred or appender.full or appender.starved
    writes = writes or appender.check_hanging()
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
