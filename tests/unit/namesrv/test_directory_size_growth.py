"""The cost of a directory grows with its topics, and not with topics times enodes: counted in all three roles."""

from collections.abc import Callable

import pytest

from ortoo.common.cluster.route_watch import checksum_of
from ortoo.common.directory.topic import Permission, Placement
from ortoo.enode.cluster.topic_copies import TopicCopies
from ortoo.namesrv.decisions.placements import PlacementSet
from ortoo.namesrv.decisions.routes.route_change import Contents, RouteChange
from ortoo.namesrv.decisions.routes.route_changes import NO_START, Routes, StoredDirectory
from ortoo.namesrv.decisions.topics import TOPICS_MAX, Topic
from ortoo.namesrv.rpc.route_encoding import RouteEncoder
from ortoo.snode.cluster.directory import DirectoryCache
from ortoo.snode.cluster.wire import decode_update
from ortoo.v1.namesrv_pb2 import WatchRoutesResponse
from tests.contract.one_store import OneStore
from tests.work_done import WorkDone, count_work

TOPICS, ENODES = 100, 10
SIZES = ((TOPICS, ENODES), (4 * TOPICS, ENODES), (TOPICS, 4 * ENODES))
INSTRUCTIONS_OF_PLACEMENT = 300
"""The maximum work for one more placement of a set. Work for each topic and enode would be 100 times as much."""
LINEAR = 4.5
"""The maximum cost with four times as many topics."""


def placed_on(enodes: int) -> PlacementSet:
    """A set of placements on this number of enodes."""
    return PlacementSet.of(tuple(Placement(f"enode-{at:04}", 4, 4) for at in range(enodes)))


def topics_on(count: int, enodes: int) -> tuple[Topic, ...]:
    """Topics that share their placements."""
    placements = placed_on(enodes)
    return tuple(Topic(f"t{at:08}", at + 1, 1, Permission.READ_WRITE, placements, 1) for at in range(count))


def encoded(topics: tuple[Topic, ...]) -> list[bytes]:
    """The messages of a snapshot."""
    change = Routes(StoredDirectory(1, topics, directory_id="d")).first(NO_START)[0]
    return list(RouteEncoder(with_placement_sets=True).messages(change, include_handle_keys=False))


def received(topics: tuple[Topic, ...]) -> WatchRoutesResponse:
    """A snapshot as a watcher gets it."""
    whole = WatchRoutesResponse()
    for part in encoded(topics):
        whole.MergeFrom(WatchRoutesResponse.FromString(part))
    return whole


def work_of_name_server(topics: tuple[Topic, ...]) -> WorkDone:
    """The work to start with these topics, and to encode a snapshot."""
    with count_work() as work:
        encoded(topics)
    return work


def work_of_snode(topics: tuple[Topic, ...]) -> WorkDone:
    """The work to apply a snapshot."""
    snapshot, directory = received(topics), DirectoryCache()
    with count_work() as work:
        directory.apply(decode_update(snapshot))
        directory.topics_on("enode-0000")
    return work


async def work_of_enode(topics: tuple[Topic, ...]) -> WorkDone:
    """The work to apply a snapshot and to store its topics."""
    one, snapshot = OneStore(), received(topics)
    await one.open()
    copies = TopicCopies(one.store, "enode-0000")
    with count_work() as work:
        await copies.apply(snapshot)
    await one.store.close()
    return work


def check(once: WorkDone, more_topics: WorkDone, more_enodes: WorkDone) -> None:
    """Compare the work with that for four times the topics, and for four times the enodes."""
    assert more_topics.instructions <= LINEAR * once.instructions
    # For the larger set alone, and not for each topic.
    assert more_enodes.instructions - once.instructions <= 3 * ENODES * INSTRUCTIONS_OF_PLACEMENT


@pytest.mark.parametrize("work", [work_of_name_server, work_of_snode])
def test_work_grows_with_topics_alone(work: Callable[[tuple[Topic, ...]], WorkDone]) -> None:
    """Four times the enodes cost only a larger set."""
    check(*(work(topics_on(*size)) for size in SIZES))


async def test_work_of_an_enode_grows_with_topics_alone() -> None:
    """An enode searches each set once for its own queues."""
    check(*[await work_of_enode(topics_on(*size)) for size in SIZES])


def test_the_largest_number_of_topics_fits_on_many_enodes() -> None:
    """The directory has space for all of them on 100 enodes, and for topics that were moved one by one."""
    routes = Routes(StoredDirectory(1, topics_on(TOPICS_MAX, 100), directory_id="d"))
    before = routes.free_bytes
    assert before > 0
    moved = topics_on(3, 101)[1]
    assert routes.growth_bytes(RouteChange(2, topics=(moved,))) <= 32 * 101
    routes.apply(RouteChange(2, topics=(moved,)))
    assert before - 32 * 101 <= routes.free_bytes < before
    routes.apply(RouteChange(3, deleted_topics=(moved.name,)))
    assert routes.free_bytes > before


def test_the_checksum_covers_the_placements() -> None:
    """A watcher that has other placements of one topic gets a snapshot."""
    encoder, sums = RouteEncoder(with_placement_sets=True), set()
    for enodes in (2, 3):
        sums.add(encoder._checksum_of(Contents(enodes, topics_on(2, enodes), ())))
    assert len(sums) == 2
    rows = received(topics_on(2, 3)).topics
    assert checksum_of(WatchRoutesResponse(topics=[row]).SerializeToString() for row in rows) in sums
