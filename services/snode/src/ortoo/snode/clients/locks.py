"""Locks that clients take explicitly, through any snode. The enode stores the locks; a lock expires unless renewed."""

from collections.abc import Sequence
from dataclasses import replace

from ortoo.common.errors import Invalid, OrtooError
from ortoo.snode.clients.locked_pulls import LockedPulls
from ortoo.snode.clients.session import ClientSession
from ortoo.snode.cluster.directory import check_readable
from ortoo.snode.cluster.group_names import check_consumer_group
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.enodes.link import EnodeLinks, LockRequest, LockResult, explain_error

LOCK_LIFETIME_MS = 60_000
QUEUES_MAX = 10_000


class ClientLocks:
    """Takes and releases locks of queues for clients. The locks of a session are released when it ends."""

    def __init__(self, watch: DirectoryWatch, links: EnodeLinks, pulls: LockedPulls) -> None:
        """`pulls` gets to know which session has which queue."""
        self._watch = watch
        self._links = links
        self._pulls = pulls

    async def take(
        self, group: str, client_id: str, session: ClientSession | None, queues: Sequence[Queue]
    ) -> list[tuple[Queue, LockResult]]:
        """Take or renew locks of queues; returns a result for each queue.

        Errors: Invalid, NotFound if no queue exists.
        """
        requests, missing = await self._requests(group, client_id, session, queues)
        found = {queue: LockResult(0, error=error) for queue, error in missing.items()}
        for enode, lock_requests in requests.items():
            if session is not None:
                session.locks.update(dict.fromkeys((enode, request) for request in lock_requests.values()))
            try:
                answers = await self._links.to(enode).take_locks("", list(lock_requests.values()))
            except OrtooError as error:
                answers = [LockResult(0, error=error)] * len(lock_requests)
            for queue, one in zip(lock_requests, answers, strict=True):
                found[queue] = one if one.error is None else replace(one, error=explain_error(one.error))
                if session is not None and one.generation and not session.is_closing:
                    self._pulls.on_locked(session, group, queue)
        return [(queue, found[queue]) for queue in dict.fromkeys(queues)]

    async def release(
        self, group: str, client_id: str, session: ClientSession | None, queues: Sequence[Queue]
    ) -> list[Queue]:
        """Release locks; returns the queues whose lock was held. Errors: Invalid, NotFound, Unavailable."""
        released: list[Queue] = []
        requests, _ = await self._requests(group, client_id, session, queues)
        for enode, lock_requests in requests.items():
            answers = await self._links.to(enode).release_locks(list(lock_requests.values()))
            released += [queue for queue, done in zip(lock_requests, answers, strict=True) if done]
            if session is not None:
                for queue, request in lock_requests.items():
                    session.locks.pop((enode, request), None)
                    self._pulls.on_released(session, group, queue)
        return released

    async def _requests(
        self, group: str, client_id: str, session: ClientSession | None, queues: Sequence[Queue]
    ) -> tuple[dict[str, dict[Queue, LockRequest]], dict[Queue, OrtooError]]:
        """The requests for each enode, and the errors of missing queues. If all are missing, raises the error."""
        check_consumer_group(group)
        owner = session.client_id if session is not None else client_id
        if not owner:
            raise Invalid("the owner is missing: give a session id or a client id", field="session_id")
        if not 1 <= len(queues) <= QUEUES_MAX:
            raise Invalid(f"{len(queues)} queues; give 1 to {QUEUES_MAX}", field="queues")
        session_id = session.session_id if session is not None else client_id
        requests: dict[str, dict[Queue, LockRequest]] = {}
        missing: dict[Queue, OrtooError] = {}
        for queue in queues:
            try:
                topic = await self._watch.topic(queue.topic)
                check_readable(topic, queue)
            except OrtooError as error:
                missing[queue] = error
                continue
            request = LockRequest(group, topic.topic_id, queue.queue_id, owner, session_id)
            requests.setdefault(queue.enode, {})[queue] = request
        if not requests:
            raise next(iter(missing.values()))
        return requests, missing
