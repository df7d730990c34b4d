"""Locks that clients take explicitly, through any snode. They are stored by the enode and expire unless taken again."""

from collections.abc import Sequence
from dataclasses import replace

from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import Invalid, OrtooError
from ortoo.snode.clients.session import ClientSession
from ortoo.snode.cluster.directory import check_readable
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.enodes.link import EnodeLinks, LockAnswer, LockRequest, explained

LIFETIME_MS = 60_000
QUEUES_MAX = 10_000


class ClientLocks:
    """Takes and releases locks for clients; those of a session are released when it ends."""

    def __init__(self, watch: DirectoryWatch, links: EnodeLinks) -> None:
        self._watch = watch
        self._links = links

    async def take(
        self, group: str, client_id: str, session: ClientSession | None, queues: Sequence[Queue]
    ) -> list[tuple[Queue, LockAnswer]]:
        """Take or renew locks, one answer each, in order. Errors: Invalid, NotFound if none of the queues exists."""
        requests, gone = await self._requests(group, client_id, session, queues)
        found = {queue: LockAnswer(0, error=error) for queue, error in gone.items()}
        for enode, wanted in requests.items():
            if session is not None:
                session.locks.update(dict.fromkeys((enode, request) for request in wanted.values()))
            try:
                answers = await self._links.to(enode).take_locks("", list(wanted.values()))
            except OrtooError as error:
                answers = [LockAnswer(0, error=error)] * len(wanted)
            for queue, one in zip(wanted, answers, strict=True):
                found[queue] = one if one.error is None else replace(one, error=explained(one.error))
        return [(queue, found[queue]) for queue in dict.fromkeys(queues)]

    async def release(
        self, group: str, client_id: str, session: ClientSession | None, queues: Sequence[Queue]
    ) -> list[Queue]:
        """Release locks; returns those that were held. Errors: Invalid, NotFound, Unavailable."""
        released: list[Queue] = []
        requests, _ = await self._requests(group, client_id, session, queues)
        for enode, wanted in requests.items():
            answers = await self._links.to(enode).release_locks(list(wanted.values()))
            released += [queue for queue, done in zip(wanted, answers, strict=True) if done]
            if session is not None:
                for request in wanted.values():
                    session.locks.pop((enode, request), None)
        return released

    async def _requests(
        self, group: str, client_id: str, session: ClientSession | None, queues: Sequence[Queue]
    ) -> tuple[dict[str, dict[Queue, LockRequest]], dict[Queue, OrtooError]]:
        """The requests for each enode, and the errors of missing queues. If all are missing, the error is raised."""
        check_group_name(group, "group")
        owner = session.client_id if session is not None else client_id
        if not owner:
            raise Invalid("the owner is missing: give a session id or a client id", field="session_id")
        if not 1 <= len(queues) <= QUEUES_MAX:
            raise Invalid(f"{len(queues)} queues; give 1 to {QUEUES_MAX}", field="queues")
        session_id = session.session_id if session is not None else client_id
        requests: dict[str, dict[Queue, LockRequest]] = {}
        gone: dict[Queue, OrtooError] = {}
        for queue in queues:
            try:
                topic = await self._watch.topic(queue.topic)
                check_readable(topic, queue)
            except OrtooError as error:
                gone[queue] = error
                continue
            request = LockRequest(group, topic.topic_id, queue.queue_id, owner, session_id)
            requests.setdefault(queue.enode, {})[queue] = request
        if not requests:
            raise next(iter(gone.values()))
        return requests, gone
