"""The enode's copies of topics: kept up to date by a watch of a name server, and used while no name server answers."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ortoo.common.cluster.name_servers import NameServers
from ortoo.common.cluster.route_watch import RoutePosition
from ortoo.common.errors import NotFound, OrtooError, Unavailable
from ortoo.common.errors.status import rpc_errors
from ortoo.common.grpc.channels import Channels
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock
from ortoo.common.process.randomness import Randomness
from ortoo.common.process.retry import Backoff
from ortoo.enode import log_events
from ortoo.enode.cluster.group_retention import GroupRetention
from ortoo.enode.log.results import TopicCopy
from ortoo.enode.store.store import Store
from ortoo.v1 import namesrv_pb2, namesrv_pb2_grpc, topic_pb2

TOPIC_WAIT_S = 1.0
"""How long a request waits for an unknown topic: the snode may have learned of it a moment earlier."""
SNAPSHOT_TIMEOUT_S = 0.5
"""How long an announcement waits for the directory's snapshot, to list topics that the directory lacks."""
NAMES_LOGGED_MAX = 20
_log = get_logger("topics")


class TopicCopies:
    """The topics and queues that exist on this enode.

    A topic that the directory lacks is kept but no longer served, because the directory may be a different or an
    outdated one. The store drops a topic only if the directory reports the deletion of its id as due.
    """

    def __init__(self, store: Store, enode: str) -> None:
        """Begin with the topics of the store."""
        self.directory_id = ""
        """The id of the last seen directory; empty = none since the start."""
        self.directory_version = 0
        """The version of this directory whose changes are stored; 0 = none since the start."""
        self.watching = asyncio.Event()
        """Set while a name server is followed."""
        self._store = store
        self.enode = enode
        self._changed = asyncio.Event()
        self._queue_counts = {copy.topic_id: copy.queue_count for copy in store.topics()}
        self._placed: dict[int, int] = {}
        """Topic id to the number of queues that the directory places here."""
        self._deleted: set[int] = set()
        """Ids of deleted topics that can be restored."""
        self._unknown: dict[int, TopicCopy] = {}
        """The stored topics that the directory does not place here, as of the last comparison."""
        self._to_compare = set(self._queue_counts)
        """Ids of the topics to compare again with the directory, so that a heartbeat does not go through all topics."""

    async def unknown_topics(self) -> list[TopicCopy]:
        """The stored topics that the directory does not place on this enode; empty before a directory was received."""
        if not self._store.engine.state.topics.count:
            return []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SNAPSHOT_TIMEOUT_S):
                await self.watching.wait()
        if not self.directory_id:
            return []
        for topic_id in self._to_compare:
            held = self._store.topic(topic_id)
            if held and topic_id not in self._deleted and self._placed.get(topic_id, 0) < held.queue_count:
                self._unknown[topic_id] = held
            else:
                self._unknown.pop(topic_id, None)
        self._to_compare.clear()
        return [self._unknown[topic_id] for topic_id in sorted(self._unknown)]

    def is_missing(self, topic_id: int, queue_id: int = 0) -> bool:
        """Whether this enode does not know the queue, at least for now."""
        return self._queue_counts.get(topic_id, 0) <= queue_id

    async def wait_for(self, topic_id: int, queue_id: int = 0) -> None:
        """Wait until the queue is known; waiting requests continue in the order of their arrival.

        Errors: NotFound (the queue does not become known in time), Unavailable (no name server answers).
        """
        if not self.is_missing(topic_id, queue_id):
            return
        try:
            async with asyncio.timeout(TOPIC_WAIT_S):
                while self.is_missing(topic_id, queue_id):
                    await self._changed.wait()
        except TimeoutError:
            raise self._missing_error(topic_id, queue_id) from None

    def _missing_error(self, topic_id: int, queue_id: int) -> OrtooError:
        if not self.watching.is_set():
            return Unavailable(
                f"enode {self.enode} does not know queue {queue_id} of topic id {topic_id}, and it cannot ask: "
                "no name server answers it"
            )
        if topic_id not in self._queue_counts:
            return NotFound(f"enode {self.enode} has no topic with id {topic_id}; refresh the route", field="topic_id")
        return NotFound(
            f"the topic has queues 0 to {self._queue_counts[topic_id] - 1} on enode {self.enode}, not {queue_id}",
            field="queue_id",
        )

    async def apply(self, response: namesrv_pb2.WatchRoutesResponse) -> None:
        """Apply an update of the name server.

        The cost depends on the size of the update, not on the number of topics: all tables are changed in place.
        """
        here = self._placed_copies(response)
        placed = {copy.topic_id: copy.queue_count for copy in here}
        elsewhere = {topic.topic_id for topic in response.topics} - placed.keys()
        deleted = self._due_deletions(response)
        changed_ids = {*placed, *elsewhere, *deleted, *response.deleted_topic_ids}
        if response.snapshot:
            self._placed = {}
            changed_ids.update(copy.topic_id for copy in self._store.topics())
        if response.snapshot or response.resumed:  # both list all deletions
            changed_ids |= self._deleted
            self._deleted = set()
        self._deleted.update(response.deleted_topic_ids)
        self._deleted.difference_update(placed)
        self._deleted.difference_update(deleted)
        for topic_id in (*response.deleted_topic_ids, *deleted, *elsewhere):
            self._placed.pop(topic_id, None)
        self._placed.update(placed)
        if response.directory_id != self.directory_id:
            self.directory_id, self.directory_version = response.directory_id, 0
        self._to_compare |= changed_ids
        held = [self._merged_with_stored(copy) for copy in here]
        await self._store.put_topics([copy for copy in held if copy != self._store.topic(copy.topic_id)])
        if deleted:  # the locks of deleted topics are found among all locks
            await self._store.delete_topics(sorted(deleted))
        self._to_compare |= changed_ids  # the stored topics have changed since
        self.directory_version = response.version
        self._serve(here, response)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _placed_copies(self, response: namesrv_pb2.WatchRoutesResponse) -> list[TopicCopy]:
        """The topics of an update that have queues on this enode. Each set of placements is searched once."""
        counts = {one.set_id: self._queue_count(one.placements) for one in response.placement_sets}
        copies = []
        for topic in response.topics:
            count = counts.get(topic.placement_set_id, 0) or self._queue_count(topic.placements)
            if count:
                copies.append(TopicCopy(topic.topic_id, topic.name, count, topic.version, response.directory_id))
        return copies

    def _queue_count(self, placements: Iterable[topic_pb2.Placement]) -> int:
        """The number of queues on this enode; 0 = none."""
        own = (one for one in placements if one.enode == self.enode)
        return max((max(one.read_queue_count, one.write_queue_count) for one in own), default=0)

    def _merged_with_stored(self, copy: TopicCopy) -> TopicCopy:
        """The copy to store. The queue count never decreases, so a directory with fewer queues is an older one."""
        known = self._store.topic(copy.topic_id)
        return copy if known is None else replace(copy, queue_count=max(copy.queue_count, known.queue_count))

    def _due_deletions(self, response: namesrv_pb2.WatchRoutesResponse) -> set[int]:
        """Ids of topic copies whose deletion is due. A copy is never dropped because the directory lacks its topic."""
        due = set(response.due_topic_ids) - {topic.topic_id for topic in response.topics}
        return {topic_id for topic_id in due if self._store.topic(topic_id) is not None}

    def _serve(self, here: Sequence[TopicCopy], response: namesrv_pb2.WatchRoutesResponse) -> None:
        """Serve the topics that the directory places here, and newer topics that its name server may not have yet."""
        if response.snapshot:
            known = self._placed.keys() | self._deleted
            missing = [copy for copy in self._store.topics() if copy.topic_id not in known]
            # One of several name servers over a database may lag behind another for a moment.
            newer = [c for c in missing if c.version > response.version and c.directory_id == response.directory_id]
            self._queue_counts = {copy.topic_id: copy.queue_count for copy in newer}
            if len(missing) > len(newer):
                _log.emit(
                    log_events.ORPHANED_TOPICS_FOUND,
                    count=len(missing) - len(newer),
                    topics=[c.name for c in missing if c.topic_id not in self._queue_counts][:NAMES_LOGGED_MAX],
                )
        self._queue_counts.update((copy.topic_id, copy.queue_count) for copy in here)
        gone = (*response.deleted_topic_ids, *response.due_topic_ids)
        for topic_id in gone if response.snapshot else (*gone, *(topic.topic_id for topic in response.topics)):
            if topic_id not in self._placed:
                self._queue_counts.pop(topic_id, None)


async def watch_topics(
    topics: TopicCopies,
    groups: GroupRetention,
    name_servers: NameServers,
    channels: Channels,
    *,
    on_snapshot: Callable[[], None],
    admitted: asyncio.Event,
    clock: Clock,
    randomness: Randomness,
) -> None:
    """Apply the name server's updates of topics and groups while `admitted` is set, until cancelled.

    `on_snapshot` is called after each snapshot of all topics, and when a watch has resumed without a snapshot. After an
    OrtooError the watch starts again. The process cannot serve without its topics, so any other error ends it.
    """
    backoff, attempt, position = Backoff(first_s=0.05, max_s=1.0), 0, RoutePosition(clock, lite_scope=topics.enode)
    while True:
        await admitted.wait()
        address = name_servers.current
        try:
            with rpc_errors(f"name server {address}"):
                stub = namesrv_pb2_grpc.NameServiceStub(channels.channel_to(address))
                async for news in position.follow(stub.WatchRoutes(position.request())):
                    await topics.apply(news)
                    await groups.apply(news)
                    attempt = 0
                    topics.watching.set()
                    if news.snapshot or news.resumed:
                        on_snapshot()
            _log.emit(log_events.ROUTE_WATCH_ENDED, name_server=address)
        except OrtooError as error:
            if attempt == 0:
                _log.emit(log_events.ROUTE_WATCH_FAILED_RETRYING, reason=str(error))
        topics.watching.clear()
        name_servers.next_after(address)
        await clock.sleep(backoff.delay_s(attempt, randomness))
        attempt += 1
