"""The enode's copies of topics: kept equal to the name server's by its watch, used while it is away."""

import asyncio
from collections.abc import Callable, Sequence

from ortoo.common.cluster.name_servers import NameServers
from ortoo.common.errors import NotFound, OrtooError, Unavailable
from ortoo.common.errors.status import rpc_errors
from ortoo.common.grpc.channels import Channels
from ortoo.common.process.clock import Clock
from ortoo.common.process.logs import get_logger
from ortoo.common.process.randomness import Randomness
from ortoo.common.process.retry import Backoff
from ortoo.enode.store.store import Store, TopicCopy
from ortoo.v1 import namesrv_pb2, namesrv_pb2_grpc, topic_pb2

ARRIVAL_TIMEOUT_S = 1.0
"""How long a request waits for a topic that this enode has not heard of: a snode may know it a moment earlier."""
_log = get_logger("topics")


class TopicCopies:
    """Which topics and queues exist here."""

    def __init__(self, store: Store, enode: str) -> None:
        """Begin with what the store remembers."""
        self.watching = False
        self._store = store
        self._enode = enode
        self._changed = asyncio.Event()
        self._queue_counts = {copy.topic_id: copy.queue_count for copy in store.topics()}

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
        if not self.watching:
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
        here = [copy for copy in map(self._copy, news.topics) if copy is not None]
        gone = self._gone(news, here)
        await self._store.put_topics(here)
        await self._store.delete_topics(gone)
        for topic_id in gone:
            self._queue_counts.pop(topic_id, None)
        for copy in here:
            self._queue_counts[copy.topic_id] = copy.queue_count
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _copy(self, topic: topic_pb2.Topic) -> TopicCopy | None:
        for placement in topic.placements:
            if placement.enode == self._enode:
                count = max(placement.read_queue_count, placement.write_queue_count)
                return TopicCopy(topic.topic_id, topic.name, count, topic.version)
        return None

    def _gone(self, news: namesrv_pb2.WatchRoutesResponse, here: Sequence[TopicCopy]) -> list[int]:
        """Ids of copies that the name server has deleted, or created anew under the same name."""
        copies = self._store.topics()
        ids = {copy.name: copy.topic_id for copy in here}
        gone = {c.topic_id for c in copies if c.topic_id != ids.get(c.name, c.topic_id)}
        deleted = set(news.deleted_topics)
        gone |= {c.topic_id for c in copies if c.name in deleted and c.topic_id not in ids.values()}
        if news.snapshot:
            missing = {c.topic_id for c in copies} - set(ids.values()) - gone
            # A directory that is older than what this enode was told has lost its data: messages outlive that.
            if missing and news.version < max(copy.version for copy in copies):
                _log.error(
                    "the name server's directory is older than this store; topics it does not know are kept",
                    directory_version=news.version,
                    topics=sorted(c.name for c in copies if c.topic_id in missing),
                )
            else:
                gone |= missing
        return sorted(gone)


async def watch_topics(
    topics: TopicCopies,
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
                async for news in stub.WatchRoutes(namesrv_pb2.WatchRoutesRequest()):
                    await topics.apply(news)
                    attempt = 0
                    topics.watching = True
                    if news.snapshot:
                        connected()
            _log.info("the name server ended the watch", name_server=address)
        except OrtooError as error:
            if attempt == 0:
                _log.warning("the name server cannot be followed; serving from copies", reason=str(error))
        topics.watching = False
        name_servers.next_after(address)
        await clock.sleep(backoff.delay_s(attempt, randomness))
        attempt += 1
