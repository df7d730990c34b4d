"""The Attach stream: which snodes are connected, and their notifications of free locks."""

from collections.abc import AsyncIterator, Sequence

from ortoo.common.errors import Invalid
from ortoo.common.process.clock import Clock
from ortoo.common.process.containment import Scope
from ortoo.enode.rpc.streams.outbox import Outbox
from ortoo.enode.store.lock_table import LockKey
from ortoo.enode.store.store import Store
from ortoo.v1 import enode_pb2 as pb

POLL_MIN_S = 0.2
POLL_MAX_S = 1.0
"""The interval at which expired locks are looked for."""
UNTAKEN_RESPONSES_MAX = 1_000
"""The number of unread answers of a snode; further ones are dropped, and the snode asks again on its own."""


class AttachedSnodes:
    """The open Attach calls."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._streams: dict[str, list[AttachStream]] = {}

    def names(self) -> list[str]:
        """The names of the attached snodes, sorted."""
        return sorted({stream.snode for streams in self._streams.values() for stream in streams})

    def refresh(self, incarnation: str, stream: "AttachStream") -> None:
        """Note a sign of life of a snode on this stream."""
        streams = self._streams.setdefault(incarnation, [])
        if stream not in streams:
            streams.append(stream)
        self._store.locks.attach(incarnation)

    def remove(self, incarnation: str, stream: "AttachStream") -> None:
        """Note the end of a stream; after its last one the snode is detached."""
        streams = self._streams.get(incarnation, [])
        if stream in streams:
            streams.remove(stream)
        if not streams and self._streams.pop(incarnation, None) is not None:
            self._store.locks.detach(incarnation)

    async def follow_locks(self, clock: Clock) -> None:
        """Notify snodes when locks for which they wait have expired, until cancelled.

        Without notifications, no client would consume the queues. So a defect in this loop ends the process.
        """
        locks = self._store.locks
        while True:
            await locks.has_waiters.wait()
            # Meanwhile a lock may be renewed, or a lock that expires earlier may be requested.
            await clock.sleep(min(max(locks.next_end_s(), POLL_MIN_S), POLL_MAX_S))
            locks.has_waiters.clear()
            self.notify_freed()

    def notify_freed(self) -> None:
        """Notify each snode of the locks that it requested and that are free now."""
        for incarnation, keys in self._store.locks.take_freed().items():
            for stream in self._streams.get(incarnation, [])[-1:]:
                stream.send(keys)


class AttachStream:
    """One open Attach call."""

    waits_at_stop = False

    def __init__(self, snodes: AttachedSnodes) -> None:
        self.outbox = Outbox[pb.AttachResponse](bytes_max=1)
        self.snode = ""
        self._snodes = snodes

    async def serve(self, requests: AsyncIterator[pb.AttachRequest], scope: Scope) -> None:
        """Treat each request as a sign of life, and answer it."""
        incarnation = ""
        try:
            async for request in requests:
                if not request.incarnation or incarnation not in ("", request.incarnation):
                    raise Invalid(
                        "a stream belongs to one incarnation; repeat it in every request", field="incarnation"
                    )
                incarnation, self.snode = request.incarnation, request.snode
                self._snodes.refresh(incarnation, self)
                self.send(())
        finally:
            self._snodes.remove(incarnation, self)

    def send(self, keys: Sequence[LockKey]) -> None:
        """Answer with the free locks."""
        if self.outbox.open_requests < UNTAKEN_RESPONSES_MAX:
            freed = [pb.FreedLock(group=group, topic_id=topic_id, queue_id=queue) for topic_id, group, queue in keys]
            self.outbox.push(pb.AttachResponse(freed=freed))
