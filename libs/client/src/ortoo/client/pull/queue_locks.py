"""The locks of a member: asked for in one call, believed for a time, renewed, given back.

The server keeps a lock for 60 s, the client renews it every 20 s and trusts it for 30 s, so a client that the server
cannot hear stops long before somebody else begins.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from ortoo.client import log_events
from ortoo.client.core.connection import Connection
from ortoo.client.core.place import Queue
from ortoo.client.core.wire import queue_of, wire_queue
from ortoo.client.sessions.session import Session
from ortoo.common.errors import OrtooError
from ortoo.common.logs.logger import get_logger
from ortoo.v1 import pull_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub

_log = get_logger("consumer")


class QueueLocks:
    """Locks of queues for one group, held by the client's session: which of them a member believes to hold."""

    def __init__(self, connection: Connection, session: Session, group: str, trust_s: float) -> None:
        """Ask with `session`; believe a lock for `trust_s` after it was asked for."""
        self._connection = connection
        self._session = session
        self._group = group
        self._clock = connection.clock
        self._trust_s = trust_s
        self._held: dict[Queue, tuple[int, float]] = {}
        """Each lock's fencing generation, and when it was asked for, on the monotonic clock."""

    def granted(self, queue: Queue, generation: int, asked_at_s: float) -> None:
        """The server granted it; trust begins when it was asked, because the answer may have taken long."""
        self._held[queue] = (generation, asked_at_s)

    def lost(self, *queues: Queue) -> None:
        """These are not held, or not any more."""
        for queue in queues:
            self._held.pop(queue, None)

    def is_trusted(self, queue: Queue) -> bool:
        """Whether the queue may be pulled and its messages processed now."""
        held = self._held.get(queue)
        return held is not None and self._clock.monotonic_s() - held[1] <= self._trust_s

    def generation(self, queue: Queue) -> int:
        """The fencing generation of a lock; 0 = not held."""
        return self._held.get(queue, (0, 0.0))[0]

    @property
    def held(self) -> list[Queue]:
        """All that were granted and not lost, sorted."""
        return sorted(self._held)

    async def take(self, queues: Sequence[Queue]) -> set[Queue]:
        """Take or renew locks; those that are held now. Errors: Unavailable when nobody answered; trust goes on."""
        if not queues:
            return set()
        asked_at_s = self._clock.monotonic_s()
        answer = await self._call("LockQueues", pull_pb2.LockQueuesRequest, queues)
        granted = set()
        for lock in answer.granted:
            queue = queue_of(lock.queue)
            self.granted(queue, lock.generation, asked_at_s)
            granted.add(queue)
        for refused in answer.refused:
            queue = queue_of(refused.queue)
            if refused.HasField("failure"):
                _log.emit(log_events.QUEUE_LOCK_REJECTED, queue=str(queue), reason=refused.failure.message)
                if self.generation(queue):
                    granted.add(queue)  # its enode did not say; trust in it ends by itself
            else:
                self.lost(queue)
        return granted

    async def give_back(self, queues: Sequence[Queue]) -> None:
        """Free locks, so that the next owner need not wait. A failure is logged: they end by themselves."""
        mine = [queue for queue in queues if self.generation(queue)]
        self.lost(*mine)
        if not mine:
            return
        try:
            await self._call("UnlockQueues", pull_pb2.UnlockQueuesRequest, mine)
        except OrtooError as error:
            _log.emit(log_events.QUEUE_LOCK_RELEASE_FAILED, reason=str(error))

    async def _call(self, method: str, kind: Any, queues: Iterable[Queue]) -> Any:
        """A lock belongs to the session, so its snode is asked; while there is no session the client's name does."""
        session = self._session
        address = session.address if session.session_id else self._connection.address
        request = kind(
            group=self._group,
            session_id=session.session_id,
            client_id="" if session.session_id else session.client_id,
            queues=map(wire_queue, queues),
        )
        return await self._connection.call_at(address, ConsumerServiceStub, method, request)
