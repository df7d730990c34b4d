"""The enode's copies of topics: kept equal to the name server's by its watch, used while it is away."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from ortoo.common.cluster.name_servers import NameServers
from ortoo.common.cluster.route_news import whole_news
from ortoo.common.errors import NotFound, OrtooError, Unavailable
from ortoo.common.errors.status import rpc_errors
from ortoo.common.grpc.channels import Channels
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock
from ortoo.common.process.randomness import Randomness
from ortoo.common.process.retry import Backoff
from ortoo.enode import log_events
from ortoo.enode.cluster.group_lives import GroupLives
from ortoo.enode.store.store import Store, TopicCopy
from ortoo.v1 import namesrv_pb2, namesrv_pb2_grpc, topic_pb2

ARRIVAL_TIMEOUT_S = 1.0
"""How long a request waits for a topic that this enode has not heard of: a snode may know it a moment earlier."""
SNAPSHOT_TIMEOUT_S = 0.5
"""How long an announcement waits for the directory, to say what that does not know."""
NAMES_LOGGED_MAX = 20
_log = get_logger("topics")


class TopicCopies:
    """Which topics and queues exist here.

    What a directory does not know is no longer served, and kept: it may be another directory, or an older one. The
    store drops a topic for one reason alone: that its deletion is due, by its id.
    """

    def __init__(self, store: Store, enode: str) -> None:
        """Begin with what the store remembers."""
        self.directory_id = ""
        """Of the directory that was seen last; empty = none since the start."""
        self.watching = asyncio.Event()
        """Set while a name server is followed."""
        self._store = store
        self._enode = enode
        self._changed = asyncio.Event()
        self._queue_counts = {copy.topic_id: copy.queue_count for copy in store.topics()}
        self._placed: dict[int, int] = {}
        """With how many queues the directory places topics here, by id."""
        self._deleted: set[int] = set()
        """Ids of topics that were deleted and can come back."""

    async def unknown(self) -> list[TopicCopy]:
        """What is held here and the directory does not place here, by topic id; nothing before it was seen."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SNAPSHOT_TIMEOUT_S):
                await self.watching.wait()
        placed, held = self._placed, self._store.topics() if self.directory_id else []
        return [
            one for one in held if one.topic_id not in self._deleted and placed.get(one.topic_id, 0) < one.queue_count
        ]

    def lacks(self, topic_id: int, queue_id: int = 0) -> bool:
        """Whether this queue is not known here, or not yet."""
        return self._queue_counts.get(topic_id, 0) <= queue_id

    async def arrival(self, topic_id: int, queue_id: int = 0) -> None:
        """Return when the queue is known; those who wait go on in the order in which they came.

        Errors: NotFound when it does not come soon; Unavailable when no name server can be asked.
        """
        if not self.lacks(topic_id, queue_id):
            return
        try:
            async with asyncio.timeout(ARRIVAL_TIMEOUT_S):
                while self.lacks(topic_id, queue_id):
                    await self._changed.wait()
        except TimeoutError:
            raise self._missing(topic_id, queue_id) from None

    def _missing(self, topic_id: int, queue_id: int) -> OrtooError:
        if not self.watching.is_set():
            return Unavailable(
                f"enode {self._enode} does not know queue {queue_id} of topic id {topic_id}, and it cannot ask: "
                "no name server answers it"
            )
        if topic_id not in self._queue_counts:
            return NotFound(f"enode {self._enode} has no topic with id {topic_id}; refresh the route", field="topic_id")
        return NotFound(
            f"the topic has queues 0 to {self._queue_counts[topic_id] - 1} on enode {self._enode}, not {queue_id}",
            field="queue_id",
        )

    async def apply(self, news: namesrv_pb2.WatchRoutesResponse) -> None:
        """Take over what the name server says."""
        here = [copy for topic in news.topics if (copy := self._copy(topic, news.directory_id)) is not None]
        placed = {copy.topic_id: copy.queue_count for copy in here}
        gone = self._gone(news)
        if news.snapshot:
            self._placed, self._deleted = {}, set()
        self._deleted = (self._deleted | set(news.deleted_topic_ids)) - placed.keys() - gone
        over = self._deleted | gone
        self._placed = {topic_id: count for topic_id, count in (self._placed | placed).items() if topic_id not in over}
        self.directory_id = news.directory_id
        held = [self._held(copy) for copy in here]
        await self._store.put_topics([copy for copy in held if copy != self._store.topic(copy.topic_id)])
        await self._store.delete_topics(sorted(gone))
        self._serve(here, news)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _copy(self, topic: topic_pb2.Topic, directory_id: str) -> TopicCopy | None:
        for placement in topic.placements:
            if placement.enode == self._enode:
                count = max(placement.read_queue_count, placement.write_queue_count)
                return TopicCopy(topic.topic_id, topic.name, count, topic.version, directory_id)
        return None

    def _held(self, copy: TopicCopy) -> TopicCopy:
        """What is kept of a topic: nobody takes queues from it, so a directory with fewer is one of before."""
        known = self._store.topic(copy.topic_id)
        return copy if known is None else replace(copy, queue_count=max(copy.queue_count, known.queue_count))

    def _gone(self, news: namesrv_pb2.WatchRoutesResponse) -> set[int]:
        """Ids of the copies whose deletion is due; nothing else ends one: no absence, no name, no version."""
        due = set(news.due_topic_ids) - {topic.topic_id for topic in news.topics}
        return {topic_id for topic_id in due if self._store.topic(topic_id) is not None}

    def _serve(self, here: Sequence[TopicCopy], news: namesrv_pb2.WatchRoutesResponse) -> None:
        """Serve what the directory places here, and what it may not have heard of yet."""
        if news.snapshot:
            known = self._placed.keys() | self._deleted
            missing = [copy for copy in self._store.topics() if copy.topic_id not in known]
            # Of several name servers over one database one may be behind another for a moment.
            newer = [c for c in missing if c.version > news.version and c.directory_id == news.directory_id]
            self._queue_counts = {copy.topic_id: copy.queue_count for copy in newer}
            if len(missing) > len(newer):
                _log.emit(
                    log_events.ORPHANED_TOPICS_FOUND,
                    count=len(missing) - len(newer),
                    topics=[copy.name for copy in missing if copy not in newer][:NAMES_LOGGED_MAX],
                )
        self._queue_counts.update((copy.topic_id, copy.queue_count) for copy in here)
        for topic_id in {*news.deleted_topic_ids, *news.due_topic_ids} - self._placed.keys():
            self._queue_counts.pop(topic_id, None)


async def watch_topics(
    topics: TopicCopies,
    groups: GroupLives,
    name_servers: NameServers,
    channels: Channels,
    *,
    connected: Callable[[], None],
    clock: Clock,
    randomness: Randomness,
) -> None:
    """Follow the name server for ever; `connected` is called at each new snapshot.

    Without its topics the process serves nobody: what is no matter of the connection ends it.
    """
    backoff, attempt = Backoff(first_s=0.05, max_s=1.0), 0
    while True:
        address = name_servers.current
        try:
            with rpc_errors(f"name server {address}"):
                stub = namesrv_pb2_grpc.NameServiceStub(channels.to(address))
                async for news in whole_news(stub.WatchRoutes(namesrv_pb2.WatchRoutesRequest())):
                    await topics.apply(news)
                    await groups.apply(news)
                    attempt = 0
                    topics.watching.set()
                    if news.snapshot:
                        connected()
            _log.emit(log_events.ROUTE_WATCH_ENDED, name_server=address)
        except OrtooError as error:
            if attempt == 0:
                _log.emit(log_events.ROUTE_WATCH_FAILED_RETRYING, reason=str(error))
        topics.watching.clear()
        name_servers.next_after(address)
        await clock.sleep(backoff.delay_s(attempt, randomness))
        attempt += 1
