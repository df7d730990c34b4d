"""How far a broadcast push consumer is: kept in its own file, told to the server when a session opens."""

from collections.abc import Iterable

from ortoo.client.core.connection import Connection
from ortoo.client.core.place import Queue
from ortoo.client.offsets.file import OffsetFile
from ortoo.client.offsets.queue_starts import start_offsets
from ortoo.client.offsets.start_point import StartRule
from ortoo.client.offsets.store import LocalOffsets
from ortoo.client.produce.routes import readable_queues


class BroadcastOffsets:
    """The offsets of one client in one group."""

    def __init__(self, connection: Connection, file: OffsetFile, rule: StartRule) -> None:
        """Keep them in `file`; queues that are not in it begin by `rule`. Errors: DataLoss when it is damaged."""
        self._connection = connection
        self._store = LocalOffsets(file)
        self._rule = rule

    async def starts(self, topics: Iterable[str]) -> dict[Queue, int]:
        """Where each queue goes on; a queue without an offset gets one now, so that nothing is missed later.

        Errors: NotFound, Unavailable.
        """
        await self.persist()
        queues = [queue for topic in topics for queue in await readable_queues(self._connection, topic)]
        starts = await start_offsets(self._connection, self._store, queues, self._rule)
        for queue, offset in starts.items():
            self._store.table.update(queue, offset)
        await self.persist()
        return starts

    def done(self, queue: Queue, offset: int) -> None:
        """Everything before `offset` is processed. It is less than before where the queue began anew."""
        self._store.table.update(queue, offset)

    async def persist(self) -> None:
        """Write the file if something is new. Errors: Unavailable."""
        await self._store.persist(list(self._store.table.known()))
