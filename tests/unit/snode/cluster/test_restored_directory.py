"""A snode that follows a name server whose database was restored from a backup."""

from collections.abc import AsyncIterator

from ortoo.common.cluster.route_watch import RoutePosition
from ortoo.common.directory.topic import Permission
from ortoo.namesrv.decisions.routes.route_change import RouteChange
from ortoo.namesrv.decisions.routes.route_changes import Routes, StoredDirectory, WatchStart
from ortoo.namesrv.decisions.topics import Topic
from ortoo.namesrv.rpc.route_encoding import RouteEncoder
from ortoo.snode.cluster.directory import DirectoryCache
from ortoo.snode.cluster.wire import decode_update
from ortoo.v1.namesrv_pb2 import WatchRoutesResponse


async def connect(cache: DirectoryCache, position: RoutePosition, routes: Routes, *later: RouteChange) -> None:
    """Follow a name server for its first message and these changes."""
    request = position.request()
    first, _ = routes.first(WatchStart(request.directory_id, request.since))

    async def messages() -> AsyncIterator[WatchRoutesResponse]:
        for change in (first, *later):
            for message in RouteEncoder(with_placement_sets=True).messages(change, include_handle_keys=False):
                yield WatchRoutesResponse.FromString(message)

    async for update in position.follow(messages()):
        cache.apply(decode_update(update))


def topic(name: str, version: int) -> Topic:
    """A topic without queues."""
    return Topic(name, version, version, Permission.READ_WRITE, (), 0)


async def test_a_topic_that_the_backup_lacks_ends_with_the_next_watch() -> None:
    """The snode keeps it at first, because a name server may lag behind. The restored directory has no deletion."""
    cache, position = DirectoryCache(), RoutePosition()
    old = topic("old", 1)
    await connect(cache, position, Routes(StoredDirectory(9, topics=(old, topic("lost", 9)), directory_id="d")))
    restored = Routes(StoredDirectory(5, topics=(old,), directory_id="d"))
    new = RouteChange(12, topics=(topic("new", 12),), directory_id="d")
    await connect(cache, position, restored, new)
    assert [one.name for one in cache.topics()] == ["lost", "new", "old"]
    restored.apply(new)
    await connect(cache, position, restored)
    assert [one.name for one in cache.topics()] == ["new", "old"]
