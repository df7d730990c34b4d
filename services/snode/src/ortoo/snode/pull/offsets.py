"""Offsets of groups: start positions in queues, and resets and copies of committed offsets by operators.

The enodes store the committed offsets; this module keeps no state.
"""

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import Conflict, Invalid, NotFound, OrtooError, Unavailable
from ortoo.common.groups.group_topics import RETRY_PREFIX
from ortoo.common.groups.sinks import is_sink_group
from ortoo.snode.cluster.routes import Queue, Topic
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.enodes.link import EnodeLinks, QueueRange, explain_error
from ortoo.snode.pull.queue_reader import QueueReader


class StartFrom(enum.IntEnum):
    """The rule for the start of a session; the values are those of the protobuf enum."""

    LAST = 1
    FIRST = 2
    TIME = 3


@dataclass(frozen=True, slots=True)
class SessionStart:
    """The offsets or the rule by which a session starts reading."""

    start_from: StartFrom = StartFrom.LAST
    time_ms: int = 0
    """The time for StartFrom.TIME."""
    offsets: Mapping[Queue, int] = field(default_factory=dict)
    """For a broadcast session: the offsets that the client stores."""

    def start_from_in(self, queue: Queue) -> StartFrom:
        """The rule for one queue. A retry topic starts at its first message: all its messages are for the group."""
        return StartFrom.FIRST if queue.topic.startswith(RETRY_PREFIX) else self.start_from


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """A group's offset in a queue, or the `error` with which it could not be stored or read."""

    queue: Queue
    offset: int = -1
    generation: int = 0
    error: OrtooError | None = None


async def query_stored_offsets(
    links: EnodeLinks, group: str, topic: Topic, queues: Collection[Queue]
) -> dict[Queue, int | None]:
    """The offset of a group in each of these queues of a topic; None = no offset. Errors: those of the enodes."""
    found: dict[Queue, int | None] = {}
    for enode in sorted({queue.enode for queue in queues}):
        offsets = await links.to(enode).query_offsets(topic.topic_id, group)
        found |= {queue: offsets.get(queue.queue_id) for queue in queues if queue.enode == enode}
    return found


@dataclass(frozen=True, slots=True)
class OffsetTarget:
    """A position in the queues of a topic, for a reset of offsets or a trim; exactly one field is set."""

    time_ms: int | None = None
    """The first message stored at or after this time; negative = the end."""
    offset: int | None = None
    """This offset in every queue, limited to the stored range."""
    offsets: Mapping[Queue, int] | None = None
    """These offsets; other queues stay."""

    @property
    def is_end(self) -> bool:
        """Whether it is the end of every queue."""
        return self.time_ms is not None and self.time_ms < 0

    def __str__(self) -> str:
        """The target for a log line."""
        if self.is_end:
            return "end"
        if self.time_ms is not None:
            return f"time_ms {self.time_ms}"
        return f"offset {self.offset}" if self.offset is not None else f"{len(self.offsets or ())} offsets"


@dataclass(frozen=True, slots=True)
class OffsetResetResult:
    """The offsets of all queues before and after a reset, sorted by enode and queue id."""

    previous: Sequence[GroupOffset]
    offsets: Sequence[GroupOffset]
    forward_refused: Sequence[GroupOffset]
    """Queues that stayed because the reset was not forced to move forward, and the offsets of the target."""


def _group_offsets(offsets: Mapping[Queue, int | None] | Mapping[Queue, int]) -> list[GroupOffset]:
    return [GroupOffset(queue, -1 if offset is None else offset) for queue, offset in offsets.items()]


def _check_within(offset: int, topic: Topic, ranges: Mapping[Queue, QueueRange]) -> None:
    """Refuse an offset beyond the end of every queue, often a time given by mistake. Errors: Invalid."""
    largest = max((range_.end_offset for range_ in ranges.values()), default=0)
    if offset > largest:
        raise Invalid(
            f"{offset} is beyond the end of every queue of topic {topic.name}; the largest offset is {largest}"
            f"{_as_time(offset)}",
            field="offset",
        )


def _as_time(number: int) -> str:
    """A hint for a number of ten or thirteen digits, which may be meant as a time in seconds or milliseconds."""
    seconds = {10: number, 13: number // 1000}.get(len(str(number)))
    if seconds is None:
        return ""
    return f"; if you mean the time {datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}, give it as a time"


def _check_consumes(group: str, field: str) -> None:
    """Refuse to move the account of a sink, which is no offset of messages. Errors: Invalid."""
    if is_sink_group(group):
        raise Invalid(
            f"{group} is the account of a sink; use `ortoo sink reset` or AdminService/ResetSink", field=field
        )


async def find_targets(
    links: EnodeLinks, topic: Topic, ranges: Mapping[Queue, QueueRange], target: OffsetTarget
) -> dict[Queue, int]:
    """The offset of the target in each queue that it concerns, within the stored ranges.

    Errors: Invalid (an unknown queue, or an offset beyond the end of every queue), and those of the enodes.
    """
    if unknown := [queue for queue in target.offsets or () if queue not in ranges]:
        raise Invalid(
            f"{unknown[0]} is not a readable queue; topic {topic.name} has {len(ranges)} of them",
            field="offsets.starts.queue",
        )
    if target.offset is not None:
        _check_within(target.offset, topic, ranges)
    found: dict[Queue, int] = {}
    for queue, held in ranges.items():
        if target.is_end:
            found[queue] = held.end_offset
        elif target.time_ms is not None:
            found[queue] = await links.to(queue.enode).find_offset(topic.topic_id, queue.queue_id, target.time_ms)
        elif target.offset is not None:
            found[queue] = target.offset
        elif queue in (target.offsets or {}):
            found[queue] = (target.offsets or {})[queue]
    return {queue: max(ranges[queue].begin_offset, min(at, ranges[queue].end_offset)) for queue, at in found.items()}


class OffsetOperations:
    """Resets and copies the offsets of groups in a topic."""

    def __init__(self, watch: DirectoryWatch, links: EnodeLinks, reader: QueueReader) -> None:
        self._watch = watch
        self._links = links
        self._reader = reader

    async def reset(
        self, group: str, topic_name: str, target: OffsetTarget, *, force: bool, dry_run: bool = False
    ) -> "OffsetResetResult":
        """Move a group's offsets to `target`. Without `force`, offsets are only moved back. A dry run moves nothing.

        Connected group members continue at the target even if it equals the stored offset, because they may have read
        further than they have acknowledged.

        Errors: NotFound (topic, or a queue without an offset), Invalid (also an offset beyond the end of every queue),
        Unavailable. After an error no offset was moved, except on enodes that the error names.
        """
        check_group_name(group, "group")
        _check_consumes(group, "group")
        topic = await self._watch.topic(topic_name)
        ranges = await self._ranges(topic)
        targets = await find_targets(self._links, topic, ranges, target)
        stored = await query_stored_offsets(self._links, group, topic, ranges)
        missing = [str(queue) for queue, offset in stored.items() if offset is None]
        if missing and not force:
            raise NotFound(
                f"group {group} has no offset in {', '.join(missing[:3])}; force the reset to set it", field="group"
            )
        moved: dict[Queue, int] = {}
        ahead: dict[Queue, int] = {}
        for queue, target_offset in targets.items():
            before = stored[queue]
            if before is None or target_offset <= before or force:
                moved[queue] = target_offset
            else:
                ahead[queue] = target_offset
        if not dry_run:
            await self._store(group, topic, moved)
        after = {queue: moved.get(queue, offset) for queue, offset in stored.items()}
        return OffsetResetResult(_group_offsets(stored), _group_offsets(after), _group_offsets(ahead))

    async def clone(self, from_group: str, to_group: str, topic_name: str) -> list[GroupOffset]:
        """Copy a group's offsets in a topic to another group.

        Errors: NotFound if there are no offsets, Conflict if both groups are the same.
        """
        check_group_name(from_group, "from_group")
        check_group_name(to_group, "to_group")
        _check_consumes(to_group, "to_group")
        if from_group == to_group:
            raise Conflict("from_group and to_group are the same; give two different groups", field="to_group")
        topic = await self._watch.topic(topic_name)
        stored = await query_stored_offsets(self._links, from_group, topic, await self._ranges(topic))
        found = {queue: offset for queue, offset in stored.items() if offset is not None}
        if not found:
            raise NotFound(f"group {from_group} has no offset in topic {topic_name}", field="from_group")
        await self._store(to_group, topic, found)
        return [GroupOffset(queue, offset) for queue, offset in found.items()]

    async def groups_with_offsets(self, topic_name: str) -> list[str]:
        """The groups that consume a topic by offsets. Sinks, and enodes that do not answer, are left out."""
        topic = await self._watch.topic(topic_name)
        answers = await self._links.ask_all(
            topic.enodes,
            lambda link: link.query_offset_groups(topic.topic_id),
            is_tolerated=lambda error: error.retriable or isinstance(error, NotFound),
        )
        return sorted({group for groups in answers.values() for group in groups if not is_sink_group(group)})

    async def _ranges(self, topic: Topic) -> dict[Queue, QueueRange]:
        return await self._reader.all_queue_ranges(topic, "nothing was moved")

    async def _store(self, group: str, topic: Topic, offsets: Mapping[Queue, int]) -> None:
        moved: list[str] = []
        for enode in sorted({queue.enode for queue in offsets}):
            rows = [(queue.queue_id, offset, 0) for queue, offset in offsets.items() if queue.enode == enode]
            try:
                await self._links.to(enode).commit_offsets(topic.topic_id, group, rows, reset=True)
            except OrtooError as error:
                if moved:
                    what = f"the queues on {', '.join(moved)} were moved, those on {enode} were not: {error.message}"
                    raise Unavailable(f"{what}, retry", retry_after_ms=500) from error
                raise explain_error(error) from error
            moved.append(enode)
