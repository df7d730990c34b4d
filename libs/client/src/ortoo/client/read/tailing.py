"""The newest messages of a topic and then each new one, without a gap, for display to operators."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass

from ortoo.client import log_events
from ortoo.client.core.connection import Connection
from ortoo.client.core.filters import Filter
from ortoo.client.core.queues import Queue
from ortoo.client.read.fetch import fetch
from ortoo.common.errors import DataLoss
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.background import Background
from ortoo.common.records.message import Message

BUFFERED_MAX = 64
_log = get_logger("tail")


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One message and its position."""

    message_id: str
    queue: Queue
    offset: int
    stored_at_ms: int
    message: Message


async def newest_messages(
    connection: Connection, ranges: Mapping[Queue, tuple[int, int]], count: int, filter: Filter = "*"
) -> list[StoredMessage]:
    """The newest `count` messages in the given offset ranges (begin, end), by store time; `end` is exclusive.

    With a filter the servers scan the whole ranges.
    """

    async def newest_of(queue: Queue, begin: int, end: int) -> list[StoredMessage]:
        if filter == "*":
            begin = max(begin, end - count)
        if begin >= end:
            return []
        found: deque[StoredMessage] = deque(maxlen=count)
        async for it in _messages(connection, queue, begin, end, filter):
            found.append(it)
        return list(found)

    parts = await asyncio.gather(*(newest_of(queue, begin, end) for queue, (begin, end) in ranges.items()))
    found = [it for part in parts for it in part]
    found.sort(key=lambda it: (it.stored_at_ms, it.queue, it.offset))
    return found[-count:] if count else []


async def read_messages(
    connection: Connection, ranges: Mapping[Queue, tuple[int, int]], filter: Filter = "*"
) -> AsyncGenerator[StoredMessage, None]:
    """The messages in the given offset ranges (begin, end), queue by queue; `end` is exclusive. Errors: as `fetch`."""
    for queue, (begin, end) in ranges.items():
        if begin < end:
            async for stored in _messages(connection, queue, begin, end, filter):
                yield stored


async def follow_messages(
    connection: Connection, ends: Mapping[Queue, int], filter: Filter = "*"
) -> AsyncGenerator[StoredMessage, None]:
    """Messages from the offsets `ends` on, in order within each queue; the iterator never ends. Errors: as `fetch`."""
    arrived: asyncio.Queue[StoredMessage | Exception] = asyncio.Queue(BUFFERED_MAX)

    async def follow(queue: Queue, from_offset: int) -> None:
        try:
            async for message in _messages(connection, queue, from_offset, 0, filter, follow=True):
                await arrived.put(message)
        except Exception as error:
            await arrived.put(error)

    background = Background("tail")
    await background.__aenter__()
    try:
        for queue, end in ends.items():
            background.spawn(str(queue.queue_id), follow(queue, end))
        while not isinstance(item := await arrived.get(), Exception):
            yield item
        raise item
    finally:
        await background.__aexit__(None, None, None)


async def _messages(
    connection: Connection, queue: Queue, from_offset: int, to_offset: int, filter: Filter, *, follow: bool = False
) -> AsyncIterator[StoredMessage]:
    """The messages of `fetch`; damaged messages are skipped."""
    at = from_offset
    while follow or at < to_offset:
        try:
            async for batch in fetch(connection, queue, at, to_offset, follow=follow, filter=filter):
                at = batch.next_offset
                for it in batch:
                    if it.offset >= from_offset:
                        yield StoredMessage(it.message_id, it.queue, it.offset, it.stored_at_ms, it.stored_message())
            return
        except DataLoss as error:
            if error.end_offset <= at:
                raise
            _log.emit(log_events.DAMAGED_MESSAGES_SKIPPED, queue=str(queue), begin=at, end=error.end_offset)
            at = error.end_offset
