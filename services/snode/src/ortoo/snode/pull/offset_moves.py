"""What operators do with the offsets of groups: reset and clone. Whoever holds the queues goes on from there."""

from collections.abc import Mapping
from dataclasses import dataclass

from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import Conflict, Invalid, NotFound, OrtooError
from ortoo.snode.cluster.routes import Queue, Topic
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.enodes.link import QueueRange
from ortoo.snode.enodes.pool import EnodeLinks, explained
from ortoo.snode.pull.pulling import GroupOffset
from ortoo.snode.pull.reading import Reading


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """Where offsets shall go: one of these."""

    time_ms: int | None = None
    """To the first message at or after it; -1 = to the end."""
    offset: int | None = None
    """To it in every queue, within what is stored."""
    offsets: Mapping[Queue, int] | None = None
    """To these; other queues stay."""


class OffsetMoves:
    """Moves the offsets of whole groups in one topic."""

    def __init__(self, watch: DirectoryWatch, links: EnodeLinks, reading: Reading) -> None:
        self._watch = watch
        self._links = links
        self._reading = reading

    async def reset(self, group: str, topic_name: str, target: ResetTarget, *, force: bool) -> list[GroupOffset]:
        """Move a group's offsets, back only unless forced; all of them now, by enode and id.

        Errors: NotFound (topic, or a queue without an offset), Invalid, Unavailable; then nothing was moved.
        """
        check_group_name(group, "group")
        topic = await self._watch.topic(topic_name)
        ranges = await self._ranges(topic)
        stored = await self._stored(group, topic, ranges)
        missing = [str(queue) for queue, offset in stored.items() if offset is None]
        if missing and not force:
            raise NotFound(
                f"group {group} has no offset in {', '.join(missing[:3])}; with force it gets one", field="group"
            )
        moved: dict[Queue, int] = {}
        for queue, held in ranges.items():
            wanted = await self._wanted(topic, queue, held, target)
            before = stored[queue]
            if wanted is not None and (before is None or wanted < before or (force and wanted != before)):
                moved[queue] = wanted
        await self._store(group, topic, moved)
        after = {queue: moved.get(queue, offset) for queue, offset in stored.items()}
        return [GroupOffset(queue, -1 if offset is None else offset) for queue, offset in after.items()]

    async def clone(self, from_group: str, to_group: str, topic_name: str) -> list[GroupOffset]:
        """Give a group the offsets of another. Errors: NotFound when there are none, Conflict for one group twice."""
        check_group_name(from_group, "from_group")
        check_group_name(to_group, "to_group")
        if from_group == to_group:
            raise Conflict("both are the same group; name two", field="to_group")
        topic = await self._watch.topic(topic_name)
        stored = await self._stored(from_group, topic, await self._ranges(topic))
        found = {queue: offset for queue, offset in stored.items() if offset is not None}
        if not found:
            raise NotFound(f"group {from_group} has no offset in topic {topic_name}", field="from_group")
        await self._store(to_group, topic, found)
        return [GroupOffset(queue, offset) for queue, offset in found.items()]

    async def groups(self, topic_name: str) -> list[str]:
        """The groups that have an offset in a topic; of the enodes that answer."""
        topic = await self._watch.topic(topic_name)
        found: set[str] = set()
        for placement in topic.placements:
            try:
                found.update(await self._links.to(placement.enode).offset_groups(topic.topic_id))
            except OrtooError as error:
                if not error.retriable and not isinstance(error, NotFound):
                    raise
        return sorted(found)

    async def _ranges(self, topic: Topic) -> dict[Queue, QueueRange]:
        return await self._reading.all_queue_ranges(topic, "nothing was moved")

    async def _stored(self, group: str, topic: Topic, ranges: Mapping[Queue, QueueRange]) -> dict[Queue, int | None]:
        found: dict[Queue, int | None] = {}
        for enode in sorted({queue.enode for queue in ranges}):
            offsets = await self._links.to(enode).query_offsets(topic.topic_id, group)
            found |= {queue: offsets.get(queue.queue_id) for queue in ranges if queue.enode == enode}
        return found

    async def _wanted(self, topic: Topic, queue: Queue, held: QueueRange, target: ResetTarget) -> int | None:
        if target.offsets is not None:
            if unknown := [one for one in target.offsets if one.topic != topic.name]:
                raise Invalid(f"{unknown[0]} is not a queue of topic {topic.name}", field="offsets.starts.queue")
            wanted = target.offsets.get(queue)
        elif target.time_ms is not None and target.time_ms >= 0:
            wanted = await self._links.to(queue.enode).find_offset(topic.topic_id, queue.queue_id, target.time_ms)
        elif target.time_ms is not None:
            wanted = held.end_offset
        elif target.offset is not None:
            wanted = target.offset
        else:
            raise Invalid("no target; give time_ms, offset or offsets", field="target")
        if wanted is None:
            return None
        return max(held.begin_offset, min(wanted, held.end_offset))

    async def _store(self, group: str, topic: Topic, offsets: Mapping[Queue, int]) -> None:
        for enode in sorted({queue.enode for queue in offsets}):
            rows = [(queue.queue_id, offset, 0) for queue, offset in offsets.items() if queue.enode == enode]
            try:
                await self._links.to(enode).commit_rows(topic.topic_id, group, rows, reset=True)
            except OrtooError as error:
                raise explained(error) from error
