"""The locks of a member: asked for in one call, renewed in time, given back."""

from collections.abc import Sequence

from ortoo.client.core.connection import Connection
from ortoo.client.core.place import Queue
from ortoo.client.core.wire import queue_of, wire_queue
from ortoo.client.pull.lock_trust import LockTrust
from ortoo.client.sessions.session import Session
from ortoo.common.errors import OrtooError
from ortoo.common.process.logs import get_logger
from ortoo.v1 import pull_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub

_log = get_logger("consumer")


class QueueLocks:
    """Locks of queues for one group, held by the client's session."""

    def __init__(self, connection: Connection, session: Session, group: str, trust_s: float) -> None:
        """Ask with `session`; believe a lock for `trust_s` after it was asked for."""
        self._connection = connection
        self._session = session
        self._group = group
        self._trust = LockTrust(trust_s)

    def is_trusted(self, queue: Queue) -> bool:
        """Whether the queue may be pulled and its messages processed now."""
        return self._trust.is_trusted(queue, self._connection.clock.monotonic_s())

    def generation(self, queue: Queue) -> int:
        """The fencing generation of the lock; 0 = not held."""
        return self._trust.generation(queue)

    @property
    def held(self) -> list[Queue]:
        """All that were granted and not lost, sorted."""
        return self._trust.queues

    async def take(self, queues: Sequence[Queue]) -> set[Queue]:
        """Take or renew locks; those that are held now. Errors: Unavailable when nobody answered; trust goes on."""
        if not queues:
            return set()
        asked_at_s = self._connection.clock.monotonic_s()
        # A lock belongs to the session, so its snode is asked; while there is no session the client's name does.
        session_id = self._session.session_id
        address = self._session.address if session_id else self._connection.address
        request = pull_pb2.LockQueuesRequest(
            group=self._group,
            session_id=session_id,
            client_id="" if session_id else self._session.client_id,
            queues=map(wire_queue, queues),
        )
        answer = await self._connection.call_at(address, ConsumerServiceStub, "LockQueues", request)
        granted = set()
        for lock in answer.granted:
            queue = queue_of(lock.queue)
            self._trust.granted(queue, lock.generation, asked_at_s)
            granted.add(queue)
        for refused in answer.refused:
            queue = queue_of(refused.queue)
            if refused.HasField("failure"):
                _log.warning("a queue lock is not known", queue=str(queue), reason=refused.failure.message)
                if self._trust.generation(queue):
                    granted.add(queue)  # its enode did not say; trust in it ends by itself
            else:
                self._trust.lost([queue])
        return granted

    async def give_back(self, queues: Sequence[Queue]) -> None:
        """Free locks, so that the next owner need not wait. A failure is logged: they end by themselves."""
        mine = [queue for queue in queues if self._trust.generation(queue)]
        self._trust.lost(queues)
        if not mine:
            return
        session_id = self._session.session_id
        request = pull_pb2.UnlockQueuesRequest(
            group=self._group,
            session_id=session_id,
            client_id="" if session_id else self._session.client_id,
            queues=map(wire_queue, mine),
        )
        address = self._session.address if session_id else self._connection.address
        try:
            await self._connection.call_at(address, ConsumerServiceStub, "UnlockQueues", request)
        except OrtooError as error:
            _log.warning("queue locks were not given back; they end within a minute", reason=str(error))

    def lost(self, queue: Queue) -> None:
        """Somebody else has it."""
        self._trust.lost([queue])
