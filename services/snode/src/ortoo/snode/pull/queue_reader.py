"""Reads outside of groups: ranges of whole batches, and single messages for operators."""

import asyncio
import contextlib
import heapq
from collections.abc import AsyncIterator, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ortoo.common.errors import DataLoss, OrtooError, OutOfRange, Unavailable
from ortoo.common.filters.message_filter import MessageFilter
from ortoo.common.filters.projection import Columns
from ortoo.common.filters.pushdown import Pushdown
from ortoo.common.filters.selection import SelectedRows
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.background import Background
from ortoo.common.process.memory_budget import MemoryBudget, MemoryShare, ReservedBytes
from ortoo.common.records.batch import open_batch
from ortoo.common.records.message import Message
from ortoo.common.records.message_id import message_id_text
from ortoo.snode import log_events
from ortoo.snode.cluster.directory import check_readable
from ortoo.snode.cluster.routes import Queue, Topic
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.enodes.grpc_link import GrpcEnodeLink
from ortoo.snode.enodes.link import (
    FETCH_BYTES_MAX,
    FETCH_WAIT_MS,
    EnodeLinks,
    FetchBatchesRequest,
    FetchedBatches,
    QueueRange,
)
from ortoo.snode.pull.read_sizes import range_bytes, tail_bytes

UNLIMITED_BYTES = 1 << 62
_log = get_logger("reading")


@dataclass(frozen=True, slots=True)
class PlacedMessage:
    """A message and its location."""

    message_id: str
    queue: Queue
    offset: int
    stored_at_ms: int
    message: Message


async def _describe_topics(topic_ids: Sequence[int], link: GrpcEnodeLink) -> dict[int, list[QueueRange]]:
    return await link.describe_queues_of_topics(topic_ids)


def message_id_of(message: Message, topic_id: int, queue: Queue, offset: int) -> str:
    """The id of a message: chosen by its producer, or else derived from its location."""
    return message.message_id or message_id_text(topic_id, queue.enode, queue.queue_id, offset)


class QueueReader:
    """Reads queues of any enode. A read joins no group, takes no lock and moves no offset."""

    def __init__(self, watch: DirectoryWatch, links: EnodeLinks, background: Background) -> None:
        self._watch = watch
        self._links = links
        self._background = background
        self._active_ranges = 0
        """Number of running reads of ranges, each counted before its first request. They share their memory."""

    async def queue_ranges(self, topic: Topic) -> dict[Queue, QueueRange]:
        """The stored ranges of a topic's readable queues, sorted. Queues of unreachable enodes are left out."""
        answers = await self._links.ask_all(
            sorted(topic.enodes),
            lambda link: link.describe_queues(topic.topic_id),
            is_tolerated=lambda error: error.retriable or error.field.endswith("_id"),
        )
        counts = {placement.enode: placement.read_queue_count for placement in topic.placements}
        return {
            Queue(topic.name, enode, item.queue_id): item
            for enode, ranges in answers.items()
            for item in ranges
            if item.queue_id < counts[enode]
        }

    async def queue_ranges_of(self, topics: Sequence[Topic]) -> list[dict[Queue, QueueRange]]:
        """As `queue_ranges`, for each of many topics, with one call for each enode."""
        ids: dict[str, list[int]] = {}
        for topic in topics:
            for enode in topic.enodes:
                ids.setdefault(enode, []).append(topic.topic_id)
        answers: dict[str, dict[int, list[QueueRange]]] = {}
        for enode, topic_ids in sorted(ids.items()):
            answers |= await self._links.ask_all([enode], partial(_describe_topics, topic_ids))
        return [
            {
                Queue(topic.name, placement.enode, item.queue_id): item
                for placement in sorted(topic.placements, key=lambda one: one.enode)
                for item in answers.get(placement.enode, {}).get(topic.topic_id, ())
                if item.queue_id < placement.read_queue_count
            }
            for topic in topics
        ]

    async def all_queue_ranges(self, topic: Topic, refusal: str) -> dict[Queue, QueueRange]:
        """The stored ranges of all readable queues of a topic.

        Errors: Unavailable if an enode is unreachable. The text of the error contains `refusal`.
        """
        ranges = await self.queue_ranges(topic)
        if away := missing_enodes(topic, ranges):
            raise Unavailable(f"{', '.join(away)} cannot be reached now; {refusal}; retry", retry_after_ms=500)
        return ranges

    async def fetch(
        self,
        queue: Queue,
        from_offset: int,
        to_offset: int,
        *,
        follow: bool,
        bytes_max: int = 0,
        message_filter: MessageFilter | None = None,
        columns: Columns = frozenset(),
        coalesce: bool = False,
        memory: MemoryShare | None = None,
    ) -> AsyncIterator[tuple[int, SelectedRows]]:
        """Yield batches of one queue from `from_offset` to before `to_offset`, each with the topic's id.

        With `follow`, the read waits for new messages at the end of the queue. `bytes_max` limits one request; 0 =
        automatic. The enode applies `message_filter` and `columns` if it can. With `coalesce`, the enode may merge rows
        of several batches. Memory is drawn from `memory`; None = the caller limits its memory.

        Errors: NotFound, Invalid, OutOfRange, Unavailable, Overloaded if memory is exhausted, DataLoss with the offset
        at which to continue.
        """
        memory = memory or MemoryBudget(UNLIMITED_BYTES).share("reads")
        check_readable(topic := await self._watch.topic(queue.topic), queue)
        link = self._links.to(queue.enode)
        if not follow and to_offset == 0:
            to_offset = _end_offset(await link.describe_queues(topic.topic_id), queue, from_offset)
        at, wait_ms = from_offset, FETCH_WAIT_MS if follow else 0
        pushdown = Pushdown.of(message_filter, columns, 0 if follow else to_offset, coalesce=coalesce)

        def start_read(offset: int) -> asyncio.Future[FetchedBatches | Exception]:
            wanted_bytes = bytes_max or (FETCH_BYTES_MAX if follow else range_bytes(self._active_ranges))
            # A read that follows mostly waits for messages that are not stored yet.
            drawn.append(memory.reserve(0 if follow else wanted_bytes))
            reading = self._read(queue, topic.topic_id, offset, wanted_bytes, wait_ms, pushdown)
            return self._background.start_future(f"read {queue}", reading)

        drawn: list[ReservedBytes] = []
        """The memory drawn for the answer in use and for the next one."""
        self._active_ranges += not follow
        try:
            next_read = start_read(at)
            try:
                while follow or at < to_offset:
                    fetched = await next_read
                    if isinstance(fetched, Exception):
                        raise fetched
                    while len(drawn) > 1:
                        drawn.pop(0).resize(0)
                    drawn[0].resize(fetched.size_bytes)
                    was_at, end = at, fetched.next_offset
                    if end > at and (follow or end < to_offset):
                        next_read = start_read(end)  # while the reader consumes the current part
                    for part in fetched.select_parts(at, None if follow else to_offset, message_filter):
                        at = part.next_offset
                        yield topic.topic_id, part
                        del part
                        if not follow and at >= to_offset:
                            return
                    del fetched
                    if end == was_at:
                        if not follow:
                            return
                        next_read = start_read(at)
            finally:
                for held in drawn:
                    held.resize(0)
                next_read.cancel()
        finally:
            self._active_ranges -= not follow

    async def _read(
        self, queue: Queue, topic_id: int, offset: int, bytes_max: int, wait_ms: int, pushdown: Pushdown | None
    ) -> FetchedBatches | Exception:
        """Read at an offset, from a follower first. An error is returned, not raised."""
        request = FetchBatchesRequest(topic_id, queue.queue_id, offset, bytes_max, wait_ms, pushdown=pushdown)
        if not wait_ms and (follower := self._links.follower(queue)) is not None:
            with contextlib.suppress(OrtooError):
                return await follower.fetch(replace(request, any_replica=True))
        try:
            return await self._links.to(queue.enode).fetch(request)
        except Exception as error:
            return error

    async def tail(
        self,
        topic_name: str,
        memory: MemoryShare,
        *,
        from_beginning: bool,
        follow: bool,
        message_filter: MessageFilter | None = None,
    ) -> AsyncIterator[PlacedMessage]:
        """Yield the messages of all queues of a topic: stored messages in order of time, then new messages.

        Errors: NotFound, Unavailable. Without `follow` the last error names the enodes whose messages are missing.
        """
        topic = await self._watch.topic(topic_name)
        ranges = await self.queue_ranges(topic)
        if not ranges and topic.placements:
            raise Unavailable(f"no enode of topic {topic_name} is reachable; retry", retry_after_ms=500)
        if from_beginning:
            async for message in self._stored_messages(ranges, message_filter, memory):
                yield message
            if not follow and (away := missing_enodes(topic, ranges)):
                raise Unavailable(
                    f"{', '.join(away)} cannot be reached now, so their messages of {topic_name} are missing; retry",
                    retry_after_ms=500,
                )
        if follow or not from_beginning:
            async for message in self._new_messages(ranges, message_filter, memory):
                yield message

    async def _stored_messages(
        self, ranges: dict[Queue, QueueRange], message_filter: MessageFilter | None, memory: MemoryShare
    ) -> AsyncIterator[PlacedMessage]:
        size = tail_bytes(len(ranges))
        sources = {
            queue: self._messages(queue, r.begin_offset, r.end_offset, message_filter, memory, size)
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

    async def _new_messages(
        self, ranges: dict[Queue, QueueRange], message_filter: MessageFilter | None, memory: MemoryShare
    ) -> AsyncIterator[PlacedMessage]:
        coming: asyncio.Queue[PlacedMessage | Exception] = asyncio.Queue(maxsize=64)
        size = tail_bytes(len(ranges))

        async def follow(queue: Queue, from_offset: int) -> None:
            try:
                async for message in self._messages(queue, from_offset, None, message_filter, memory, size):
                    await coming.put(message)
                    memory.draw_unchecked(len(message.message.body))
            except Exception as error:
                await coming.put(error)

        work = Background("tail")
        await work.__aenter__()
        try:
            for queue, item in ranges.items():
                work.spawn(str(queue), follow(queue, item.end_offset))
            while not isinstance(message := await coming.get(), Exception):
                yield message
                memory.release(len(message.message.body))
            raise message
        finally:
            await work.__aexit__(None, None, None)

    async def _messages(
        self,
        queue: Queue,
        from_offset: int,
        to_offset: int | None,
        message_filter: MessageFilter | None,
        memory: MemoryShare,
        bytes_max: int,
    ) -> AsyncIterator[PlacedMessage]:
        """Yield single messages up to `to_offset`; None = for ever. Damaged messages are skipped."""
        at = from_offset
        while to_offset is None or at < to_offset:
            end, follow = to_offset or 0, to_offset is None
            parts = self.fetch(
                queue, at, end, follow=follow, bytes_max=bytes_max, message_filter=message_filter, memory=memory
            )
            try:
                async for topic_id, part in parts:
                    at = part.next_offset
                    for offset, message in messages_of(part):
                        message_id = message_id_of(message, topic_id, queue, offset)
                        yield PlacedMessage(message_id, queue, offset, part.stored_at_ms, message)
                        del message
                    del part
                return
            except DataLoss as error:
                if error.end_offset <= at:
                    raise
                _log.emit(log_events.DAMAGED_MESSAGES_SKIPPED, queue=str(queue), begin=at, end=error.end_offset)
                at = error.end_offset


def missing_enodes(topic: Topic, answered: Iterable[Queue]) -> list[str]:
    """The enodes that have readable queues of a topic, and none of the queues that answered."""
    expected = {placement.enode for placement in topic.placements if placement.read_queue_count}
    return sorted(expected - {queue.enode for queue in answered})


def messages_of(part: SelectedRows, among: Container[int] | None = None) -> Iterator[tuple[int, Message]]:
    """Yield the messages of a part with their offsets. With `among`, only the messages at these offsets."""
    if part.batch is None:
        return
    view = open_batch(part.batch)
    is_gathered = part.messages == view.count
    for number, offset in enumerate(offsets_of(part)):
        if among is None or offset in among:
            yield offset, view.message(number if is_gathered else offset - part.first_offset)


def offsets_of(part: SelectedRows) -> list[int]:
    """The offsets of a part's messages, ascending."""
    rows = np.frombuffer(part.rows, "<i4").tolist() or range(part.messages)
    return [part.first_offset + row for row in rows]


def _end_offset(ranges: Iterable[QueueRange], queue: Queue, from_offset: int) -> int:
    """The end of a queue. Errors: OutOfRange if `from_offset` is beyond the end."""
    stored = next((r for r in ranges if r.queue_id == queue.queue_id), QueueRange(queue.queue_id, 0, 0))
    check_in_range(stored, queue, from_offset, "from_offset")
    return stored.end_offset


def check_in_range(range_: QueueRange, queue: Queue, offset: int, field: str) -> None:
    """Refuse an offset below 0 or beyond the end of a queue. Errors: OutOfRange, naming `field`."""
    if not 0 <= offset <= range_.end_offset:
        raise OutOfRange(
            f"offset {offset} is not in {queue}, which has {range_.begin_offset} to {range_.end_offset}, exclusive",
            begin_offset=range_.begin_offset,
            end_offset=range_.end_offset,
            field=field,
        )
