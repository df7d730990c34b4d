"""The queue locks of a member: taken in one call, trusted for a time, renewed, released.

The server keeps a lock for 60 s. The client renews it every 20 s and trusts it for 30 s. A disconnected client
therefore stops before another member starts.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from ortoo.client import log_events
from ortoo.client.core.connection import Connection
from ortoo.client.core.queues import Queue
from ortoo.client.core.wire import queue_of, wire_queue
from ortoo.client.sessions.session import Session
from ortoo.common.errors import NotFound, OrtooError
from ortoo.common.logs.logger import get_logger
from ortoo.v1 import pull_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub

SNODE_ATTEMPTS = 3
"""Maximum of calls for the same locks until a snode answers that has the session."""
_log = get_logger("consumer")


class ConsumerQueueLocks:
    """Queue locks of one group, held by the client's session.

    The member may consume a queue only while it trusts the lock.
    """

    def __init__(self, connection: Connection, session: Session, group: str, trust_s: float) -> None:
        """A lock is trusted for `trust_s` from the time of its request."""
        self._connection = connection
        self._session = session
        self._group = group
        self._clock = connection.clock
        self._trust_s = trust_s
        self._held: dict[Queue, tuple[int, float]] = {}
        """Fencing generation and request time (monotonic) of each lock."""

    def add(self, queue: Queue, generation: int, requested_at_s: float) -> None:
        """Record a granted lock.

        Trust begins at the time of the request, because the answer may have been slow.
        """
        self._held[queue] = (generation, requested_at_s)

    def discard(self, *queues: Queue) -> None:
        """Remove locks that this member no longer holds."""
        for queue in queues:
            self._held.pop(queue, None)

    def is_trusted(self, queue: Queue) -> bool:
        """Whether the lock is trusted, so that the queue may be pulled and its messages processed now."""
        held = self._held.get(queue)
        return held is not None and self._clock.monotonic_s() - held[1] <= self._trust_s

    def generation(self, queue: Queue) -> int:
        """The fencing generation of a lock; 0 = the lock is not held."""
        return self._held.get(queue, (0, 0.0))[0]

    @property
    def held(self) -> list[Queue]:
        """All locks that were granted and not lost, sorted."""
        return sorted(self._held)

    async def acquire(self, queues: Sequence[Queue]) -> set[Queue]:
        """Take or renew locks; returns the queues whose locks are held.

        Errors: Unavailable without an answer. In this case, trusted locks stay trusted.
        """
        if not queues:
            return set()
        requested_at_s = self._clock.monotonic_s()
        answer = await self._call("LockQueues", pull_pb2.LockQueuesRequest, queues)
        granted = set()
        for lock in answer.granted:
            queue = queue_of(lock.queue)
            self.add(queue, lock.generation, requested_at_s)
            granted.add(queue)
        for refused in answer.refused:
            queue = queue_of(refused.queue)
            if refused.HasField("failure"):
                self._connection.retry_log.emit(
                    _log, log_events.QUEUE_LOCK_REJECTED, refused.failure.message, queue=str(queue)
                )
                if self.generation(queue):
                    granted.add(queue)  # its enode gave no answer; the existing trust expires
            else:
                self.discard(queue)
        return granted

    async def release(self, queues: Sequence[Queue]) -> None:
        """Release locks, so that the next owner need not wait. A failure is only logged, since the locks expire."""
        owned = [queue for queue in queues if self.generation(queue)]
        self.discard(*owned)
        if not owned:
            return
        try:
            await self._call("UnlockQueues", pull_pb2.UnlockQueuesRequest, owned)
        except OrtooError as error:
            _log.emit(log_events.QUEUE_LOCK_RELEASE_FAILED, reason=str(error))

    async def _call(self, method: str, kind: Any, queues: Iterable[Queue]) -> Any:
        """Call the snode of the session, which owns the locks; without a session they belong to the client id.

        A load balancer of calls may send a repeated call to the right snode. If another snode still answers, the
        session is opened again, and the caller retries with the new session.
        """
        session = self._session
        address = session.address if session.session_id else self._connection.address
        request = kind(
            group=self._group,
            session_id=session.session_id,
            client_id="" if session.session_id else session.client_id,
            queues=map(wire_queue, queues),
        )
        for attempt in range(SNODE_ATTEMPTS):
            try:
                return await self._connection.call_at(address, ConsumerServiceStub, method, request)
            except NotFound as error:
                if error.field != "session_id":
                    raise
                if attempt + 1 == SNODE_ATTEMPTS:
                    session.reopen(request.session_id)
                    raise
        raise AssertionError
