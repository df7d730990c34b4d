"""The owner of a lite topic in a group with exclusive lite topics: the client that subscribed last.

The owner has the lock of the lite topic's queue at the enode, which all snodes see. A new subscription takes the lock
over, and each receive checks it. The lock ends with its snode, and when its client leaves.
"""

import contextlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from ortoo.common.errors import OrtooError
from ortoo.common.groups.group_topics import LOCK_PREFIX
from ortoo.snode.cluster.directory import DirectoryCache
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes.link import EnodeLinks, LockRequest
from ortoo.snode.rocketmq.protocol.names import lite_topic_of, stored_topic

LOCK_OWNER = "lite"
"""The owner in every such lock. The client id is its session, so that a newer client takes the lock over."""


@dataclass(frozen=True, slots=True)
class LiteOwners:
    """Assigns each lite topic of an exclusive group to one client, by locks at the enodes."""

    directory: DirectoryCache
    links: EnodeLinks
    runtime: Runtime

    def is_exclusive(self, group: str) -> bool:
        """Whether each lite topic belongs to a single client in this group."""
        settings = self.directory.group(group)
        return settings is not None and settings.lite_exclusive

    async def acquire(self, group: str, client_id: str, queues: Collection[Queue]) -> None:
        """Make a client the owner of the lite topics to which it has subscribed. Errors: Unavailable."""
        for enode in {queue.enode for queue in queues}:
            await self._take_locks(group, client_id, _queues_on(enode, queues), resume=False)

    async def still_owned(self, group: str, client_id: str, queues: Sequence[Queue]) -> tuple[list[Queue], list[str]]:
        """The queues that the client still owns, and the lite topics that belong to another client now.

        Queues of an enode that does not answer are in neither result.
        """
        if not self.is_exclusive(group):
            return list(queues), []
        own, lost = set[Queue](), list[str]()
        for enode in {queue.enode for queue in queues}:
            with contextlib.suppress(OrtooError):
                requested = _queues_on(enode, queues)
                held = await self._take_locks(group, client_id, requested, resume=True)
                own |= held
                lost += [lite_topic_of(queue.topic) for queue in requested if queue not in held]
        return [queue for queue in queues if queue in own], lost

    def release(self, client_id: str, group: str, parent: str, lite_topics: Iterable[str]) -> None:
        """Release the lite topics from which a client has unsubscribed. Those of other clients stay locked."""
        if self.is_exclusive(group) and (names := list(lite_topics)):
            self.runtime.background.run_contained("lite owners", self._release(client_id, group, parent, names))

    async def _release(self, client_id: str, group: str, parent: str, lite_topics: Sequence[str]) -> None:
        topics = (self.directory.find_topic(stored_topic(parent, name)) for name in lite_topics)
        queues = [topic.read_queues()[0] for topic in topics if topic is not None]
        for enode in {queue.enode for queue in queues}:
            requests = [self._lock_request(group, client_id, queue, resume=True) for queue in _queues_on(enode, queues)]
            with contextlib.suppress(OrtooError):  # the next subscriber takes the lock over
                await self.links.to(enode).release_locks(requests)

    async def _take_locks(self, group: str, client_id: str, queues: Sequence[Queue], *, resume: bool) -> set[Queue]:
        """Lock `queues`, all on one enode; returns those whose lock the client then has. Errors: Unavailable."""
        requests = [self._lock_request(group, client_id, queue, resume=resume) for queue in queues]
        results = await self.links.to(queues[0].enode).take_locks(self.runtime.incarnation, requests)
        for answer in results:
            if answer.error is not None:
                raise answer.error
        return {queue for queue, answer in zip(queues, results, strict=True) if answer.generation}

    def _lock_request(self, group: str, client_id: str, queue: Queue, *, resume: bool) -> LockRequest:
        topic_id = self.directory.topic(queue.topic).topic_id
        return LockRequest(LOCK_PREFIX + group, topic_id, queue.queue_id, LOCK_OWNER, client_id, resume)


def _queues_on(enode: str, queues: Iterable[Queue]) -> list[Queue]:
    return [queue for queue in queues if queue.enode == enode]
