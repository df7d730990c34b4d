"""Offset stores of consumers: at the group's enodes, or in a local file for broadcast."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence

from ortoo.client import log_events
from ortoo.client.core.connection import Connection
from ortoo.client.core.queues import Queue
from ortoo.client.core.wire import queue_of, wire_queue
from ortoo.client.offsets.offset_file import OffsetFile
from ortoo.common.errors import Fenced, OrtooError, Unavailable
from ortoo.common.errors.status import error_of
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.threads import uninterrupted
from ortoo.v1 import pull_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub

_log = get_logger("consumer")


class OffsetTable:
    """The next offset to consume in each queue, and those that are not stored yet; in memory, without I/O."""

    def __init__(self) -> None:
        """Start empty."""
        self._offsets: dict[Queue, int] = {}
        self._stored: dict[Queue, int] = {}

    def update(self, queue: Queue, offset: int, *, increase_only: bool = False) -> None:
        """Set an offset; with `increase_only` a smaller one is ignored."""
        if not increase_only or offset > self._offsets.get(queue, -1):
            self._offsets[queue] = offset

    def loaded(self, queue: Queue, offset: int) -> None:
        """Set an offset that was read from the store."""
        self._offsets[queue] = self._stored[queue] = offset

    def unstored(self, queues: Collection[Queue]) -> dict[Queue, int]:
        """The offsets of these queues that are not stored."""
        return {
            queue: offset
            for queue in queues
            if (offset := self._offsets.get(queue, -1)) >= 0 and self._stored.get(queue) != offset
        }

    def asked(self, queues: Collection[Queue]) -> None:
        """Mark these as unknown in the store, until a write has been answered."""
        for queue in queues:
            self._stored.pop(queue, None)

    def stored(self, offsets: Mapping[Queue, int]) -> None:
        """Mark these as stored; queues that were forgotten during the write are skipped."""
        self._stored.update({queue: offset for queue, offset in offsets.items() if queue in self._offsets})

    def forget(self, queue: Queue) -> None:
        """Remove a queue that is no longer assigned."""
        self._offsets.pop(queue, None)
        self._stored.pop(queue, None)

    def known(self) -> dict[Queue, int]:
        """All offsets."""
        return dict(self._offsets)


class OffsetStore(ABC):
    """An offset table with persistent storage."""

    def __init__(self) -> None:
        self.table = OffsetTable()
        self._turn = asyncio.Lock()

    @abstractmethod
    async def load(self, queues: Sequence[Queue]) -> dict[Queue, int | None]:
        """The stored offsets; None = none stored. Queues that could not be queried are missing."""

    async def persist(self, queues: Collection[Queue] | None = None) -> list[Queue]:
        """Store the changed offsets of these queues (None = all); returns the queues that another member owns.

        A failure of one queue does not affect the others.
        Calls are serialised, so that a retry of an earlier call cannot overwrite a later offset.
        """
        async with self._turn:
            if not (news := self.table.unstored(self.table.known() if queues is None else queues)):
                return []
            self.table.asked(news)
            return await self._store(news)

    @abstractmethod
    async def _store(self, news: Mapping[Queue, int]) -> list[Queue]:
        """Store these and record the successes in the table; returns the queues that another member owns."""


class RemoteOffsets(OffsetStore):
    """Offsets of a group, stored at the enodes of the queues."""

    def __init__(self, connection: Connection, group: str, generation: Callable[[Queue], int]) -> None:
        """`generation` returns the lock generation of a queue for commits; 0 = without a lock."""
        super().__init__()
        self._connection = connection
        self._group = group
        self._generation = generation

    async def load(self, queues: Sequence[Queue]) -> dict[Queue, int | None]:
        """The group's offsets. Errors: Unavailable when no snode answered."""
        if not queues:
            return {}
        request = pull_pb2.QueryConsumerOffsetsRequest(group=self._group, queues=map(wire_queue, queues))
        answer = await self._connection.call(ConsumerServiceStub, "QueryOffsets", request)
        for refused in answer.refused:
            _log.emit(
                log_events.OFFSET_LOOKUP_FAILED_RETRYING,
                queue=str(queue_of(refused.queue)),
                reason=refused.failure.message,
            )
        known: dict[Queue, int | None] = {}
        for item in answer.offsets:
            queue = queue_of(item.queue)
            known[queue] = item.offset if item.offset >= 0 else None
            if item.offset >= 0:
                self.table.loaded(queue, item.offset)
        return known

    async def _store(self, news: Mapping[Queue, int]) -> list[Queue]:
        """Commit at the enodes; a queue whose enode does not answer stays unstored until the next call."""
        request = pull_pb2.CommitConsumerOffsetsRequest(
            group=self._group,
            offsets=[
                pull_pb2.ConsumerOffset(queue=wire_queue(queue), offset=offset, generation=self._generation(queue))
                for queue, offset in news.items()
            ],
        )
        try:
            answer = await self._connection.call(ConsumerServiceStub, "CommitOffsets", request)
            refused = {queue_of(it.queue): error_of(it.failure) for it in answer.refused}
        except OrtooError as failure:
            refused = dict.fromkeys(news, failure)
        for queue, error in refused.items():
            _log.emit(log_events.OFFSET_COMMIT_REJECTED, queue=str(queue), offset=news[queue], reason=str(error))
        self.table.stored({queue: offset for queue, offset in news.items() if queue not in refused})
        return [queue for queue, error in refused.items() if isinstance(error, Fenced)]


class LocalOffsets(OffsetStore):
    """Offsets in a local file; offsets of queues that are not assigned now are kept in it."""

    def __init__(self, file: OffsetFile) -> None:
        """Read the file. Errors: DataLoss when file and backup are damaged."""
        super().__init__()
        self._file = file
        self._written = file.read()

    async def load(self, queues: Sequence[Queue]) -> dict[Queue, int | None]:
        """The offsets in the file."""
        for queue in queues:
            if queue in self._written:
                self.table.loaded(queue, self._written[queue])
        return {queue: self._written.get(queue) for queue in queues}

    async def _store(self, news: Mapping[Queue, int]) -> list[Queue]:
        """Write the file. Errors: Unavailable when it cannot be written."""
        self._written |= news  # the next write includes them, even if this caller is cancelled
        writing = asyncio.get_running_loop().run_in_executor(None, self._file.write, dict(self._written))
        try:
            await uninterrupted(writing)
        except OSError as error:
            raise Unavailable(f"{self._file.path} cannot be written: {error.strerror}") from error
        self.table.stored(news)
        return []
