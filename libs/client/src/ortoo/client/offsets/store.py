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
from ortoo.common.process.long_work import wait_uncancelled
from ortoo.v1 import pull_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub

_log = get_logger("consumer")


class OffsetTable:
    """The next offset to consume in each queue, and whether the offset is stored yet; in memory, without I/O."""

    def __init__(self) -> None:
        """Start empty."""
        self._offsets: dict[Queue, int] = {}
        self._stored: dict[Queue, int] = {}

    def update(self, queue: Queue, offset: int, *, increase_only: bool = False) -> None:
        """Set the offset of a queue; with `increase_only`, a smaller offset is ignored."""
        if not increase_only or offset > self._offsets.get(queue, -1):
            self._offsets[queue] = offset

    def set_loaded(self, queue: Queue, offset: int) -> None:
        """Set an offset that was read from the store."""
        self._offsets[queue] = self._stored[queue] = offset

    def unstored(self, queues: Collection[Queue]) -> dict[Queue, int]:
        """The offsets of `queues` that are not stored yet, by queue."""
        return {
            queue: offset
            for queue in queues
            if (offset := self._offsets.get(queue, -1)) >= 0 and self._stored.get(queue) != offset
        }

    def mark_pending(self, queues: Collection[Queue]) -> None:
        """Mark offsets as being written: until the write is answered, their stored values are unknown."""
        for queue in queues:
            self._stored.pop(queue, None)

    def mark_stored(self, offsets: Mapping[Queue, int]) -> None:
        """Mark `offsets` as stored; queues that were forgotten during the write are skipped."""
        self._stored.update({queue: offset for queue, offset in offsets.items() if queue in self._offsets})

    def forget(self, queue: Queue) -> None:
        """Remove the offset of a queue that is no longer assigned."""
        self._offsets.pop(queue, None)
        self._stored.pop(queue, None)

    def all_offsets(self) -> dict[Queue, int]:
        """All offsets."""
        return dict(self._offsets)


class OffsetStore(ABC):
    """An offset table with persistent storage."""

    def __init__(self) -> None:
        self.table = OffsetTable()
        self._persist_lock = asyncio.Lock()

    @abstractmethod
    async def load(self, queues: Sequence[Queue]) -> dict[Queue, int | None]:
        """The stored offset of each queue; None = no offset is stored. Queues that could not be queried are missing."""

    async def persist(self, queues: Collection[Queue] | None = None) -> list[Queue]:
        """Store the changed offsets of `queues` (None = all queues); returns the queues that another member owns.

        A failure of one queue does not affect the others.
        Calls are serialised, so that a retry of an earlier call cannot overwrite a later offset.
        """
        async with self._persist_lock:
            if not (changed := self.table.unstored(self.table.all_offsets() if queues is None else queues)):
                return []
            self.table.mark_pending(changed)
            return await self._store(changed)

    @abstractmethod
    async def _store(self, changed: Mapping[Queue, int]) -> list[Queue]:
        """Store the offsets `changed`, and mark successes in the table; returns the queues that another member owns."""


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
            self._connection.retry_log.emit(
                _log,
                log_events.OFFSET_LOOKUP_FAILED_RETRYING,
                refused.failure.message,
                queue=str(queue_of(refused.queue)),
            )
        loaded: dict[Queue, int | None] = {}
        for item in answer.offsets:
            queue = queue_of(item.queue)
            loaded[queue] = item.offset if item.offset >= 0 else None
            if item.offset >= 0:
                self.table.set_loaded(queue, item.offset)
        return loaded

    async def _store(self, changed: Mapping[Queue, int]) -> list[Queue]:
        """Commit the offsets at the enodes. If an enode does not answer, its offsets are left to the next call."""
        request = pull_pb2.CommitConsumerOffsetsRequest(
            group=self._group,
            offsets=[
                pull_pb2.ConsumerOffset(queue=wire_queue(queue), offset=offset, generation=self._generation(queue))
                for queue, offset in changed.items()
            ],
        )
        try:
            answer = await self._connection.call(ConsumerServiceStub, "CommitOffsets", request)
            refused = {queue_of(it.queue): error_of(it.failure) for it in answer.refused}
        except OrtooError as failure:
            refused = dict.fromkeys(changed, failure)
        for queue, error in refused.items():
            _log.emit(log_events.OFFSET_COMMIT_REJECTED, queue=str(queue), offset=changed[queue], reason=str(error))
        self.table.mark_stored({queue: offset for queue, offset in changed.items() if queue not in refused})
        return [queue for queue, error in refused.items() if isinstance(error, Fenced)]


class LocalOffsets(OffsetStore):
    """Offsets in a local file, which also keeps the offsets of queues that are not assigned now."""

    def __init__(self, file: OffsetFile) -> None:
        """Read the file. Errors: DataLoss when file and backup are damaged."""
        super().__init__()
        self._file = file
        self._file_offsets = file.read()

    async def load(self, queues: Sequence[Queue]) -> dict[Queue, int | None]:
        """The offsets in the file."""
        for queue in queues:
            if queue in self._file_offsets:
                self.table.set_loaded(queue, self._file_offsets[queue])
        return {queue: self._file_offsets.get(queue) for queue in queues}

    async def _store(self, changed: Mapping[Queue, int]) -> list[Queue]:
        """Write the file. Errors: Unavailable when it cannot be written."""
        self._file_offsets |= changed  # the next write includes them, even if this caller is cancelled
        writing = asyncio.get_running_loop().run_in_executor(None, self._file.write, dict(self._file_offsets))
        try:
            await wait_uncancelled(writing)
        except OSError as error:
            raise Unavailable(f"{self._file.path} cannot be written: {error.strerror}") from error
        self.table.mark_stored(changed)
        return []
