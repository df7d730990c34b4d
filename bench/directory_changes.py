"""The cost of one change of a topic, beside many other topics: in a name server, a snode and an enode."""

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from bench.report import Figures, main
from bench.route_watchers import store_topics
from bench.stores import open_store
from ortoo.common.directory.topic import Permission, Placement
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.enode.cluster.topic_copies import TopicCopies
from ortoo.namesrv.catalog.catalog import Catalog
from ortoo.namesrv.decisions.process_leases import Enode
from ortoo.namesrv.decisions.topics import NewTopic
from ortoo.namesrv.directory.directory import Directory
from ortoo.snode.cluster import routes
from ortoo.snode.cluster.directory import DirectoryCache
from ortoo.v1 import namesrv_pb2, topic_pb2

METHOD = (
    "average processor time of one process for one change, without RPCs, beside other topics on one enode. A name "
    "server creates a topic in SQLite. A snode and an enode apply a changed topic"
)
ENODE = "enode-0"


async def name_server_ms(topics: int, changes: int) -> float:
    """The processor time of a name server for the creation of a topic."""
    with tempfile.TemporaryDirectory(prefix="ortoo-bench-") as folder:
        await store_topics(Path(folder), topics)
        catalog = await Catalog.open("", Path(folder), "directory")
        directory = Directory(
            catalog,
            await catalog.load_all(),
            lease_s=1_000.0,
            deletion_grace_ms=1,
            watchers_max=1,
            clock=SystemClock(),
            randomness=Randomness(1),
        )
        directory.register_enode(Enode(ENODE, "h:1", "store", alive=True), "", (), 0)
        await directory.create_topic(NewTopic("first", 1))
        before_s = time.process_time()
        for number in range(changes):
            await directory.create_topic(NewTopic(f"new{number}", 1))
        took_s = time.process_time() - before_s
        await catalog.close()
    return 1_000 * took_s / changes


def snode_ms(topics: int, changes: int) -> float:
    """The processor time of a snode for a changed topic."""
    placed = (Placement(ENODE, 1, 1),)
    known = [routes.Topic(f"t{n}", n, 1, Permission.READ_WRITE, placed) for n in range(1, topics + 1)]
    directory = DirectoryCache()
    directory.apply(routes.DirectoryUpdate(1, True, tuple(known)))
    before_s = time.process_time()
    for number in range(changes):
        version = number + 2
        directory.apply(routes.DirectoryUpdate(version, topics=(replace(known[number], version=version),)))
    return 1_000 * (time.process_time() - before_s) / changes


async def enode_ms(topics: int, changes: int) -> float:
    """The processor time of an enode for a changed topic; its log syncs each change."""

    def topic(topic_id: int, version: int) -> topic_pb2.Topic:
        placed = topic_pb2.Placement(enode=ENODE, read_queue_count=1, write_queue_count=1)
        return topic_pb2.Topic(name=f"t{topic_id}", topic_id=topic_id, version=version, placements=[placed])

    def update(version: int, *changed: topic_pb2.Topic, snapshot: bool = False) -> namesrv_pb2.WatchRoutesResponse:
        return namesrv_pb2.WatchRoutesResponse(
            version=version, directory_id="directory", topics=changed, snapshot=snapshot
        )

    with tempfile.TemporaryDirectory(prefix="ortoo-bench-") as folder:
        async with open_store(Path(folder)) as store:
            copies = TopicCopies(store, ENODE)
            known = [topic(number, 1) for number in range(10, topics + 10)]
            await copies.apply(update(1, *known, snapshot=True))
            before_s = time.process_time()
            for number in range(changes):
                await copies.apply(update(number + 2, topic(number + 10, number + 2)))
            return 1_000 * (time.process_time() - before_s) / changes


async def measure(options: argparse.Namespace) -> Figures:
    """Measure each role beside an increasing number of topics."""
    figures: Figures = {"changes": options.changes}
    for topics in map(int, options.topics.split(",")):
        figures[f"topics_{topics}"] = {
            "name_server_ms": round(await name_server_ms(topics, options.changes), 3),
            "snode_ms": round(snode_ms(topics, options.changes), 3),
            "enode_ms": round(await enode_ms(topics, options.changes), 3),
        }
    return figures


if __name__ == "__main__":
    main("directory_changes", METHOD, measure, topics="1000,10000,50000", changes=100)
