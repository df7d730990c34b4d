"""The costs of a change of the directory and of a heartbeat for an enode do not depend on the number of topics."""

import pytest

from ortoo.enode.cluster.topic_copies import TopicCopies
from ortoo.v1 import namesrv_pb2 as pb
from ortoo.v1 import topic_pb2
from tests.contract.one_store import OneStore
from tests.work_done import WorkDone, count_work

FEW, MANY = 1_000, 4_000
ENODE, DIRECTORY = "a", "00000000-0000-4000-8000-000000000001"


def topic(topic_id: int, version: int = 1) -> topic_pb2.Topic:
    """A topic with one queue on the enode."""
    placed = topic_pb2.Placement(enode=ENODE, read_queue_count=1, write_queue_count=1)
    return topic_pb2.Topic(name=f"t{topic_id}", topic_id=topic_id, version=version, placements=[placed])


def update(version: int, topics: list[topic_pb2.Topic], *, snapshot: bool = False) -> pb.WatchRoutesResponse:
    """A message of the watch."""
    return pb.WatchRoutesResponse(directory_id=DIRECTORY, version=version, topics=topics, snapshot=snapshot)


CHANGES = {
    "a changed topic": update(2, [topic(1_007, 2)]),
    "a new topic": update(2, [topic(99_999, 2)]),
    "a deleted topic that can be restored": pb.WatchRoutesResponse(
        directory_id=DIRECTORY, version=2, deleted_topics=["t1007"], deleted_topic_ids=[1_007]
    ),
    "a topic of other enodes": update(2, [topic_pb2.Topic(name="x", topic_id=99_999, version=2)]),
    "an enode without a lease": pb.WatchRoutesResponse(
        directory_id=DIRECTORY, version=2, enodes=[topic_pb2.Enode(name="b")]
    ),
}


async def copies_beside(count: int) -> tuple[OneStore, TopicCopies]:
    """A store with `count` topics, and as many deleted ones that can be restored. The caller closes the store."""
    one = OneStore()
    await one.open()
    copies = TopicCopies(one.store, ENODE)
    for begin in range(1_000, 1_000 + count, 100):
        topics = [topic(topic_id) for topic_id in range(begin, begin + 100)]
        await copies.apply(update(1, topics, snapshot=begin == 1_000))
    gone = range(1_000_000, 1_000_000 + count)
    await copies.apply(pb.WatchRoutesResponse(directory_id=DIRECTORY, version=1, deleted_topic_ids=gone))
    copies.watching.set()
    return one, copies


async def work_of(change: pb.WatchRoutesResponse, count: int) -> WorkDone:
    """The work for one change beside `count` topics."""
    one, copies = await copies_beside(count)
    with count_work() as work:
        await copies.apply(change)
    await one.store.close()
    return work


async def heartbeat_work(count: int) -> WorkDone:
    """The work to list topics that the directory lacks, after one change beside `count` topics."""
    one, copies = await copies_beside(count)
    [known] = await copies.unknown_topics()  # the store's own topic
    await copies.apply(CHANGES["a changed topic"])
    with count_work() as work:
        assert await copies.unknown_topics() == [known]
    await one.store.close()
    return work


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
async def test_a_change_costs_the_same_beside_more_topics(change: pb.WatchRoutesResponse) -> None:
    """Four times the topics, the same work."""
    few, many = await work_of(change, FEW), await work_of(change, MANY)
    assert many.is_at_most(few), (few, many)


async def test_a_heartbeat_costs_the_same_beside_more_topics() -> None:
    """An idle enode registers every few seconds, and names the topics that the directory lacks."""
    few, many = await heartbeat_work(FEW), await heartbeat_work(MANY)
    assert many.is_at_most(few), (few, many)
