"""Trims of topics: their oldest messages become unreadable on all enodes."""

from collections.abc import Mapping
from dataclasses import dataclass

from ortoo.common.errors import OrtooError, Unavailable
from ortoo.common.logs.logger import get_logger
from ortoo.snode import log_events
from ortoo.snode.cluster.routes import Queue, Topic
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.enodes.link import EnodeLinks, explain_error
from ortoo.snode.pull.offsets import OffsetTarget, find_targets
from ortoo.snode.pull.queue_reader import QueueReader

EVERYTHING = -1
"""As an offset for an enode: all messages that it has accepted."""
_log = get_logger("admin")


@dataclass(frozen=True, slots=True)
class TrimmedQueue:
    """A queue whose first readable offset has changed."""

    queue: Queue
    previous_begin_offset: int
    begin_offset: int
    end_offset: int


class TopicTrims:
    """Trims topics on their enodes, which keep the begin of each queue in their log."""

    def __init__(self, watch: DirectoryWatch, links: EnodeLinks, reader: QueueReader) -> None:
        self._watch = watch
        self._links = links
        self._reader = reader

    async def trim(self, topic_name: str, target: OffsetTarget, *, user: str, dry_run: bool) -> list[TrimmedQueue]:
        """Make the messages of a topic before `target` unreadable; returns the changed queues, sorted.

        `user` is logged. With `dry_run` nothing is changed. The call can be repeated after an error.
        Errors: NotFound (topic), Invalid, Unsupported (an older enode), Unavailable. If only some enodes were trimmed,
        the error names them.
        """
        topic = await self._watch.topic(topic_name)
        ranges = await self._reader.all_queue_ranges(topic, "nothing was trimmed")
        targets = await find_targets(self._links, topic, ranges, target)
        if dry_run:
            return [
                TrimmedQueue(queue, ranges[queue].begin_offset, begin, ranges[queue].end_offset)
                for queue, begin in targets.items()
                if begin > ranges[queue].begin_offset
            ]
        if target.is_end:
            targets = dict.fromkeys(targets, EVERYTHING)  # also what is stored until the enode decides
        _log.emit(log_events.TOPIC_TRIM_REQUESTED, topic=topic.name, user=user, target=str(target))
        return await self._trim(topic, targets)

    async def _trim(self, topic: Topic, begins: Mapping[Queue, int]) -> list[TrimmedQueue]:
        done: list[str] = []
        trimmed: list[TrimmedQueue] = []
        for enode in sorted({queue.enode for queue in begins}):
            rows = {queue.queue_id: begin for queue, begin in begins.items() if queue.enode == enode}
            try:
                answered = await self._links.to(enode).trim_queues(topic.topic_id, rows)
            except OrtooError as error:
                if done:
                    what = f"the queues on {', '.join(done)} were trimmed, those on {enode} were not: {error.message}"
                    raise Unavailable(f"{what}; retry", retry_after_ms=500) from error
                raise explain_error(error) from error
            done.append(enode)
            trimmed += [
                TrimmedQueue(
                    Queue(topic.name, enode, one.queue_id), one.previous_begin_offset, one.begin_offset, one.end_offset
                )
                for one in answered
                if one.begin_offset > one.previous_begin_offset
            ]
        return trimmed
