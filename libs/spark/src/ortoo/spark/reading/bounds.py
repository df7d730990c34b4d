"""Resolves a bound to the offset of each queue. A bound is "earliest", "latest", a time, a group, or JSON."""

from collections.abc import Mapping

from ortoo.client import Queue
from ortoo.common.errors import Invalid
from ortoo.spark.core.link import ClusterLink
from ortoo.spark.core.offsets import EARLIEST, LATEST
from ortoo.spark.core.read_options import OffsetBound, ReadOptions
from ortoo.spark.reading.topic_state import OffsetSpan, TopicState, offset_at


def start_offsets(link: ClusterLink, options: ReadOptions, state: TopicState) -> dict[Queue, int]:
    """The offset at which the read starts in each queue.

    Errors: Invalid for an unknown queue, or for an offset or a time beyond the end of the queue.
    """
    default = (
        options.start_default if options.start.offsets is not None or options.start.group else options.start.keyword
    )
    found = _resolved(link, options.start, state, "startingOffsets", default or options.start_default)
    for queue, offset in found.items():
        if offset > (stored := state.ranges[queue]).end:
            raise Invalid(
                f"queue {queue.queue_id} of {queue.topic} on {queue.enode} holds {stored}; reading cannot start at "
                f"{offset}",
                field="startingOffsets",
            )
    if options.time_strategy == "error" and (options.start.time_ms is not None or options.start.times):
        for queue, offset in found.items():
            stored = state.ranges[queue]
            requested_ms = (
                options.start.time_ms if options.start.time_ms is not None else (options.start.times or {}).get(queue)
            )
            if requested_ms is not None and offset == stored.end and stored.end > stored.begin:
                raise Invalid(
                    f"queue {queue.queue_id} of {queue.topic} on {queue.enode} has no message stored at or after "
                    f"{requested_ms}; to start at the end of the queue instead, set "
                    "startingOffsetsByTimestampStrategy=latest",
                    field="startingTimestamp",
                )
    return found


def end_offsets(link: ClusterLink, options: ReadOptions, state: TopicState) -> dict[Queue, int]:
    """The exclusive end offset of the read in each queue.

    Errors: Invalid for an unknown queue, or for an offset beyond the end of the queue.
    """
    found = _resolved(link, options.end, state, "endingOffsets", "latest")
    for queue, offset in found.items():
        if offset > state.ranges[queue].end:
            raise Invalid(
                f"endingOffsets {offset} is beyond the end {state.ranges[queue].end} of queue {queue.queue_id} of "
                f"{queue.topic} on {queue.enode}; give at most {state.ranges[queue].end}",
                field="endingOffsets",
            )
    return found


def _resolved(link: ClusterLink, bound: OffsetBound, state: TopicState, field: str, default: str) -> dict[Queue, int]:
    if bound.group:
        requested: Mapping[Queue, int] = _committed(link, bound.group, state)
    elif bound.time_ms is not None:
        return {queue: offset_at(link, queue, held, bound.time_ms) for queue, held in state.ranges.items()}
    elif bound.times is not None:
        _check_queues_exist(bound.times, state, field + "ByTimestamp")
        requested = {
            queue: offset_at(link, queue, state.ranges[queue], time_ms) for queue, time_ms in bound.times.items()
        }
    else:
        requested = bound.offsets or {}
        _check_queues_exist(requested, state, field)
    default_offset = EARLIEST if default == "earliest" else LATEST
    return {queue: _absolute(requested.get(queue, default_offset), held) for queue, held in state.ranges.items()}


def _absolute(offset: int, stored: OffsetSpan) -> int:
    return stored.begin if offset == EARLIEST else stored.end if offset == LATEST else offset


def _committed(link: ClusterLink, group: str, state: TopicState) -> dict[Queue, int]:
    found: dict[Queue, int] = {}
    for topic in sorted({queue.topic for queue in state.ranges}):
        for item in link.run(link.admin.describe_lag(group, topic)).queues:
            if item.queue in state.ranges and item.committed_offset >= 0:
                found[item.queue] = item.committed_offset
    return found


def _check_queues_exist(requested: Mapping[Queue, int], state: TopicState, field: str) -> None:
    for queue in requested:
        if queue.topic not in state.topic_ids:
            raise Invalid(
                f"the topic {queue.topic!r} is not among the topics of this read; expected one of "
                f"{', '.join(sorted(state.topic_ids))}",
                field=field,
            )
        if queue not in state.ranges:
            held = [f"{q.enode}/{q.queue_id}" for q in state.ranges if q.topic == queue.topic]
            away = " because its enode is down" if queue in state.unavailable else ""
            raise Invalid(
                f"the topic {queue.topic} has no queue {queue.queue_id} on enode {queue.enode} now{away}; "
                f"it has {', '.join(held) or 'none'}",
                field=field,
            )
