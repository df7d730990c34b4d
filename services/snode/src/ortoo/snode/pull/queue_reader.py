"""Reads outside of groups: ranges of whole batches, and single messages for operators."""

import asyncio
import contextlib
import heapq
from collections.abc import AsyncIterator, Container, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from ortoo.common.errors import DataLoss, OrtooError, OutOfRange, Unavailable
from ortoo.common.filters.message_filter import MessageFilter
from ortoo.common.filters.projection import Columns
from ortoo.common.filters.pushdown import Pushdown
from ortoo.common.filters.selection import Selected
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.background import Background
from ortoo.common.process.memory_budget import Held, MemoryBudget, MemoryShare
from ortoo.common.records.batch import open_batch
from ortoo.common.records.message import Message
from ortoo.common.records.message_id import message_id_text
from ortoo.snode import log_events
from ortoo.snode.cluster.directory import check_readable
from ortoo.snode.cluster.routes import Queue, Topic
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.enodes.link import FETCH_BYTES_MAX, FETCH_WAIT_MS, EnodeLinks, Fetched, FetchWish, QueueRange
from ortoo.snode.pull.read_sizes import range_bytes, tail_bytes

UNCOUNTED = 1 << 62
_log = get_logger("reading")


@dataclass(frozen=True, slots=True)
class PlacedMessage:
    """One message and its location."""

    message_id: str
    queue: Queue
    offset: int
    stored_at_ms: int
    message: Message


def id_of(message: Message, topic_id: int, queue: Queue, offset: int) -> str:
    """The id of a message: the one its producer gave, or one made of its location."""
    return message.message_id or message_id_text(topic_id, queue.enode, queue.queue_id, offset)


class Reading:
    """Reads through any snode; it joins no group, takes no lock, moves no offset."""

    def __init__(self, watch: DirectoryWatch, links: EnodeLinks, background: Background) -> None:
        self._watch = watch
        self._links = links
        self._background = background
        self._ranges = 0
        """Number of running reads of ranges, each counted before its first request. They share the memory for them."""

    async def queue_ranges(self, topic: Topic) -> dict[Queue, QueueRange]:
        """The stored ranges of the readable queues, in order; those of an unreachable enode are missing."""
        answers = await self._links.ask(
            sorted(topic.enodes),
            lambda link: link.describe_queues(topic.topic_id),
            tolerated=lambda error: error.retriable or error.field.endswith("_id"),
        )
        counts = {placement.enode: placement.read_queue_count for placement in topic.placements}
        return {
            Queue(topic.name, enode, item.queue_id): item
            for enode, ranges in answers.items()
            for item in ranges
            if item.queue_id < counts[enode]
        }

    async def all_queue_ranges(self, topic: Topic, refusal: str) -> dict[Queue, QueueRange]:
        """The stored ranges of all readable queues. Errors: Unavailable, with `refusal`, if an enode is unreachable."""
        ranges = await self.queue_ranges(topic)
        wanted = {placement.enode for placement in topic.placements if placement.read_queue_count}
        if away := wanted - {queue.enode for queue in ranges}:
            raise Unavailable(f"{', '.join(sorted(away))} cannot be reached now; {refusal}; retry", retry_after_ms=500)
        return ranges

    async def fetch(
        self,
        queue: Queue,
        from_offset: int,
        to_offset: int,
        *,
        follow: bool,
        bytes_max: int = 0,
        wanted: MessageFilter | None = None,
        columns: Columns = frozenset(),
        joined: bool = False,
        memory: MemoryShare | None = None,
    ) -> AsyncIterator[tuple[int, Selected]]:
        """Yield batches of one queue, each with the topic's id. `bytes_max` limits one request; 0 = automatic.

        The enode filters by `wanted` and `columns` if it can; with `joined` it may merge rows of several batches.
        Memory is drawn from `memory`; None = the caller has limits.

        Errors: NotFound, Invalid, OutOfRange, Unavailable, Overloaded if memory is exhausted, DataLoss with the offset
        at which to continue.
        """
        memory = memory or MemoryBudget(UNCOUNTED).share("reads")
        check_readable(topic := await self._watch.topic(queue.topic), queue)
        link = self._links.to(queue.enode)
        if not follow and to_offset == 0:
            to_offset = _end_of(await link.describe_queues(topic.topic_id), queue, from_offset)
        at, wait_ms = from_offset, FETCH_WAIT_MS if follow else 0
        pushdown = Pushdown.of(wanted, columns, 0 if follow else to_offset, joined=joined)

        def begin(offset: int) -> asyncio.Future[Fetched | Exception]:
            wanted_bytes = bytes_max or (FETCH_BYTES_MAX if follow else range_bytes(self._ranges))
            # A read that follows mostly waits for messages that are not stored yet.
            asked.append(memory.ask(0 if follow else wanted_bytes))
            reading = self._read(queue, topic.topic_id, offset, wanted_bytes, wait_ms, pushdown)
            return self._background.asked(f"read {queue}", reading)

        asked: list[Held] = []
        """The memory drawn for the answer in use and for the next one."""
        self._ranges += not follow
        try:
            coming = begin(at)
            try:
                while follow or at < to_offset:
                    fetched = await coming
                    if isinstance(fetched, Exception):
                        raise fetched
                    while len(asked) > 1:
                        asked.pop(0).becomes(0)
                    asked[0].becomes(fetched.size_bytes)
                    was_at, end = at, fetched.next_offset
                    if end > at and (follow or end < to_offset):
                        coming = begin(end)  # while the reader consumes the current part
                    for part in fetched.selected(at, None if follow else to_offset, wanted):
                        at = part.next_offset
                        yield topic.topic_id, part
                        del part
                        if not follow and at >= to_offset:
                            return
                    del fetched
                    if end == was_at:
                        if not follow:
                            return
                        coming = begin(at)
            finally:
                for held in asked:
                    held.becomes(0)
                coming.cancel()
        finally:
            self._ranges -= not follow

    async def _read(
        self, queue: Queue, topic_id: int, offset: int, bytes_max: int, wait_ms: int, pushdown: Pushdown | None
    ) -> Fetched | Exception:
        """Read at an offset, at a following replica first; an error is returned, not raised."""
        wish = FetchWish(topic_id, queue.queue_id, offset, bytes_max, wait_ms, pushdown=pushdown)
        if not wait_ms and (follower := self._links.follower(queue)) is not None:
            with contextlib.suppress(OrtooError):
                return await follower.fetch(replace(wish, any_member=True))
        try:
            return await self._links.to(queue.enode).fetch(wish)
        except Exception as error:
            return error

    async def tail(
        self,
        topic_name: str,
        memory: MemoryShare,
        *,
        from_first: bool,
        follow: bool,
        wanted: MessageFilter | None = None,
    ) -> AsyncIterator[PlacedMessage]:
        """Yield messages of all queues: those stored before the call by time, then new ones as they arrive."""
        topic = await self._watch.topic(topic_name)
        ranges = await self.queue_ranges(topic)
        if not ranges and topic.placements:
            raise Unavailable(f"no enode of topic {topic_name} is reachable; retry", retry_after_ms=500)
        if from_first:
            async for message in self._stored(ranges, wanted, memory):
                yield message
        if follow or not from_first:
            async for message in self._coming(ranges, wanted, memory):
                yield message

    async def _stored(
        self, ranges: dict[Queue, QueueRange], wanted: MessageFilter | None, memory: MemoryShare
    ) -> AsyncIterator[PlacedMessage]:
        size = tail_bytes(len(ranges))
        sources = {
            queue: self._messages(queue, r.begin_offset, r.end_offset, wanted, memory, size)
            for queue, r in ranges.items()
        }
        heads: list[tuple[int, Queue, int, PlacedMessage]] = []
        for source in sources.values():
            async for first in source:
                heads.append((first.stored_at_ms, first.queue, first.offset, first))
                break
        heapq.heapify(heads)
        while heads:
            _, queue, _, message = heapq.heappop(heads)
            yield message
            async for following in sources[queue]:
                heapq.heappush(heads, (following.stored_at_ms, queue, following.offset, following))
                break

    async def _coming(
        self, ranges: dict[Queue, QueueRange], wanted: MessageFilter | None, memory: MemoryShare
    ) -> AsyncIterator[PlacedMessage]:
        coming: asyncio.Queue[PlacedMessage | Exception] = asyncio.Queue(maxsize=64)
        size = tail_bytes(len(ranges))

        async def follow(queue: Queue, from_offset: int) -> None:
            try:
                async for message in self._messages(queue, from_offset, None, wanted, memory, size):
                    await coming.put(message)
                    memory.take(len(message.message.body))
            except Exception as error:
                await coming.put(error)

        work = Background("tail")
        await work.__aenter__()
        try:
            for queue, item in ranges.items():
                work.spawn(str(queue), follow(queue, item.end_offset))
            while not isinstance(message := await coming.get(), Exception):
                yield message
                memory.give_back(len(message.message.body))
            raise message
        finally:
            await work.__aexit__(None, None, None)

    async def _messages(
        self,
        queue: Queue,
        from_offset: int,
        to_offset: int | None,
        wanted: MessageFilter | None,
        memory: MemoryShare,
        bytes_max: int,
    ) -> AsyncIterator[PlacedMessage]:
        """Yield single messages; without `to_offset` for ever. Damaged messages are skipped."""
        at = from_offset
        while to_offset is None or at < to_offset:
            end, follow = to_offset or 0, to_offset is None
            parts = self.fetch(queue, at, end, follow=follow, bytes_max=bytes_max, wanted=wanted, memory=memory)
            try:
                async for topic_id, part in parts:
                    at = part.next_offset
                    for offset, message in messages_of(part):
                        message_id = id_of(message, topic_id, queue, offset)
                        yield PlacedMessage(message_id, queue, offset, part.stored_at_ms, message)
                        del message
                    del part
                return
            except DataLoss as error:
                if error.end_offset <= at:
                    raise
                _log.emit(log_events.DAMAGED_MESSAGES_SKIPPED, queue=str(queue), begin=at, end=error.end_offset)
                at = error.end_offset


def messages_of(part: Selected, among: Container[int] | None = None) -> Iterator[tuple[int, Message]]:
    """Yield the messages of a part with their offsets. With `among`, only messages at these offsets are decoded."""
    if part.batch is None:
        return
    view = open_batch(part.batch)
    is_gathered = part.messages == view.count
    for number, offset in enumerate(offsets_of(part)):
        if among is None or offset in among:
            yield offset, view.message(number if is_gathered else offset - part.first_offset)


def offsets_of(part: Selected) -> list[int]:
    """The offsets of a part's messages, in order."""
    rows = np.frombuffer(part.rows, "<i4").tolist() or range(part.messages)
    return [part.first_offset + row for row in rows]


def _end_of(ranges: Iterable[QueueRange], queue: Queue, from_offset: int) -> int:
    """The end of a queue. Errors: OutOfRange if `from_offset` is behind it."""
    stored = next((r for r in ranges if r.queue_id == queue.queue_id), QueueRange(queue.queue_id, 0, 0))
    check_within(stored, queue, from_offset, "from_offset")
    return stored.end_offset


def check_within(held: QueueRange, queue: Queue, offset: int, field: str) -> None:
    """Refuse an offset before the first or behind the next of a queue. Errors: OutOfRange, naming the field."""
    if not 0 <= offset <= held.end_offset:
        raise OutOfRange(
            f"{queue} holds offsets {held.begin_offset} to {held.end_offset}, exclusive, not {offset}",
            begin_offset=held.begin_offset,
            end_offset=held.end_offset,
            field=field,
        )
