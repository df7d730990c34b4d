"""Attach: the snodes that are there, and news for them about locks that have become free."""

from collections.abc import AsyncIterator, Sequence

from ortoo.common.errors import Invalid
from ortoo.common.process.clock import Clock
from ortoo.common.process.containment import Scope
from ortoo.enode.rpc.streams.outbox import Outbox
from ortoo.enode.store.lock_table import Key
from ortoo.enode.store.store import Store
from ortoo.v1 import enode_pb2 as pb

LOOK_MIN_S = 0.2
LOOK_MAX_S = 1.0
"""How often locks are looked for that have ended by themselves."""
ANSWERS_MAX = 1_000
"""A snode that takes so few answers hears of no further ones; it asks again by itself."""


class AttachedSnodes:
    """The open Attach calls."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._streams: dict[str, list[AttachStream]] = {}

    def names(self) -> list[str]:
        """The snodes that are attached, by name."""
        return sorted({stream.snode for streams in self._streams.values() for stream in streams})

    def heard(self, incarnation: str, stream: "AttachStream") -> None:
        """A snode says by this call that it is there."""
        streams = self._streams.setdefault(incarnation, [])
        if stream not in streams:
            streams.append(stream)
        self._store.locks.attached(incarnation)

    def gone(self, incarnation: str, stream: "AttachStream") -> None:
        """A call is over; with its last one the snode is away."""
        streams = self._streams.get(incarnation, [])
        if stream in streams:
            streams.remove(stream)
        if not streams and self._streams.pop(incarnation, None) is not None:
            self._store.locks.detached(incarnation)

    async def follow_locks(self, clock: Clock) -> None:
        """Look for locks that have ended by themselves while anybody wants one, for ever.

        A process that does not tell of them lets queues stand still: a defect in here ends it.
        """
        locks = self._store.locks
        while True:
            await locks.wanted.wait()
            # Until it ends a lock may be renewed, and another one that ends earlier be wanted.
            await clock.sleep(min(max(locks.first_end_s(), LOOK_MIN_S), LOOK_MAX_S))
            locks.wanted.clear()
            self.tell_freed()

    def tell_freed(self) -> None:
        """Tell each snode which locks it wanted are free now."""
        for incarnation, keys in self._store.locks.freed().items():
            for stream in self._streams.get(incarnation, [])[-1:]:
                stream.tell(keys)


class AttachStream:
    """One open Attach call."""

    waits_at_stop = False

    def __init__(self, snodes: AttachedSnodes) -> None:
        self.outbox = Outbox[pb.AttachResponse](bytes_max=1)
        self.snode = ""
        self._snodes = snodes

    async def serve(self, requests: AsyncIterator[pb.AttachRequest], scope: Scope) -> None:
        """Count each request as a sign of life; every one is answered."""
        incarnation = ""
        try:
            async for request in requests:
                if not request.incarnation or incarnation not in ("", request.incarnation):
                    raise Invalid("one call is of one incarnation; name it in every request", field="incarnation")
                incarnation, self.snode = request.incarnation, request.snode
                self._snodes.heard(incarnation, self)
                self.tell(())
        finally:
            self._snodes.gone(incarnation, self)

    def tell(self, keys: Sequence[Key]) -> None:
        """Answer, with the locks that are free."""
        if self.outbox.open_requests < ANSWERS_MAX:
            freed = [pb.FreedLock(group=group, topic_id=topic_id, queue_id=queue) for topic_id, group, queue in keys]
            self.outbox.tell(pb.AttachResponse(freed=freed))
