"""G15: no data are deleted, truncated or forgotten because other data are absent."""

from dataclasses import replace

import pytest

from ortoo.common.errors import NotFound
from ortoo.enode.changes.groups import GroupDropped
from ortoo.enode.changes.pops import PopLeased
from ortoo.enode.cluster.topic_copies import TopicCopies
from ortoo.enode.log.results import TopicCopy
from ortoo.v1 import namesrv_pb2 as pb
from ortoo.v1 import topic_pb2
from tests.contract.one_store import QUEUES, SETTINGS, TOPIC, OneStore, batch

OWN, OTHER = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"
ENODE = "a"
DAY_MS = 86_400_000


def news(directory_id: str, version: int, *topics: tuple[int, str], **more: object) -> pb.WatchRoutesResponse:
    """A name server's answer: these topics have three queues on the enode. It is a snapshot by default."""
    placed = [
        topic_pb2.Topic(
            name=name,
            topic_id=topic_id,
            version=version,
            placements=[topic_pb2.Placement(enode=ENODE, read_queue_count=QUEUES, write_queue_count=QUEUES)],
        )
        for topic_id, name in topics
    ]
    fields: dict[str, object] = {"snapshot": True} | more
    return pb.WatchRoutesResponse(directory_id=directory_id, version=version, topics=placed, **fields)  # type: ignore[arg-type]


KEEPS: dict[str, list[pb.WatchRoutesResponse]] = {
    "an empty directory": [news(OTHER, 0)],
    "another directory, newer by its version": [news(OTHER, 1_000, (8, "u"), (9, "v"))],
    "another topic of the same name": [news(OTHER, 1_000, (8, "orders"))],
    "the old directory as it was before the topic": [news(OWN, 1)],
    "its own directory, later, without the topic": [news(OWN, 1_000)],
    "its name among the deleted, as older name servers report it": [
        news("", 1_000, snapshot=False, deleted_topics=["orders"])
    ],
    "a deletion that is not due": [news(OWN, 1_000, snapshot=False, deleted_topic_ids=[TOPIC])],
    "the due deletion of another topic": [news(OWN, 1_000, due_topic_ids=[TOPIC + 1])],
    "lost, another, and lost again": [news(OTHER, 0), news(OTHER, 3, (8, "u")), news(OWN, 0)],
}


async def filled() -> OneStore:
    """A store with messages in two queues, offsets of a group, and a lease of another."""
    one = OneStore()
    await one.open()
    for number in range(20):
        await one.append(f"message {number}".encode() * 20, number % 2)
    await one.store.offsets.commit(TOPIC, "g", {0: 4, 1: 7})
    lease = PopLeased(TOPIC, "workers", 0, 1, one.clock.now_ms() + 60_000, 60_000, ((2, 3, 1),))
    await one.store.change(lease)
    return one


async def held(one: OneStore) -> object:
    """The messages, and every table of the state except the copies of topics."""
    state = one.store.engine.state
    tables = [list(table.checkpoint()) for table in (state.offsets, state.pops, state.locks)]
    assert all(tables[:2])
    return await one.texts(0), await one.texts(1), tables


@pytest.mark.parametrize("said", KEEPS.values(), ids=KEEPS.keys())
async def test_what_is_absent_ends_nothing(said: list[pb.WatchRoutesResponse]) -> None:
    """G15: the topic is kept over power cuts, not served, offered for adoption, and unchanged when it is adopted."""
    one = await filled()
    before = await held(one)
    copies = TopicCopies(one.store, ENODE)
    await copies.apply(news(OWN, 5, (TOPIC, "orders")))
    assert not copies.is_missing(TOPIC)
    for message in said:
        await copies.apply(message)
        await one.crash(1)
        copies._store = one.store
    assert await held(one) == before
    copies.watching.set()
    deleted = bool(said[-1].deleted_topic_ids)
    if said[-1].directory_id:
        assert (TOPIC in [copy.topic_id for copy in await copies.unknown_topics()]) is not deleted
    await copies.apply(news(said[-1].directory_id, 2_000, (TOPIC, "orders"), snapshot=False))
    assert not copies.is_missing(TOPIC, QUEUES - 1)
    assert TOPIC not in [copy.topic_id for copy in await copies.unknown_topics()]
    assert await held(one) == before
    await one.store.close()


@pytest.mark.parametrize("directory_id", [OWN, OTHER])
async def test_queues_that_an_older_directory_does_not_know_are_offered(directory_id: str) -> None:
    """A topic never loses queues, so that fewer than are stored come from an old directory; all are kept (G15).

    This holds also when that directory changes the topic later, and over a power cut.
    """
    one = await filled()
    copies = TopicCopies(one.store, ENODE)
    await copies.apply(news(OWN, 5, (TOPIC, "orders")))
    older = news(directory_id, 1_000, (TOPIC, "orders"))
    older.topics[0].version = 4
    older.topics[0].placements[0].read_queue_count = older.topics[0].placements[0].write_queue_count = 1
    await copies.apply(older)
    older.topics[0].version = 1_001
    await copies.apply(older)
    await one.crash(1)
    copies = TopicCopies(one.store, ENODE)
    await copies.apply(older)
    copies.watching.set()
    assert copies.is_missing(TOPIC, 1)
    assert [(copy.topic_id, copy.queue_count) for copy in await copies.unknown_topics()] == [(TOPIC, QUEUES)]
    await copies.apply(news(directory_id, 2_000, (TOPIC, "orders"), snapshot=False))
    assert not copies.is_missing(TOPIC, 1)
    assert await copies.unknown_topics() == []
    await one.store.close()


@pytest.mark.parametrize("message", [news(OTHER, 1), news(OWN, 1_000, deleted_topic_ids=[TOPIC])])
async def test_what_the_directory_does_not_know_takes_no_messages(message: pb.WatchRoutesResponse) -> None:
    """G15: no snode routes requests there, and those that come get an error."""
    one = await filled()
    copies = TopicCopies(one.store, ENODE)
    await copies.apply(message)
    copies.watching.set()
    with pytest.raises(NotFound):
        await copies.wait_for(TOPIC)
    await one.store.close()


def moved(**more: object) -> pb.WatchRoutesResponse:
    """The topic, with queues only on another enode."""
    change = news(OWN, 7, (TOPIC, "orders"), **more)
    change.topics[0].placements[0].enode = "b"
    return change


@pytest.mark.parametrize(
    "message",
    [moved(), moved(snapshot=False), moved(snapshot=False, resumed=True), news(OWN, 7, snapshot=False, resumed=True)],
    ids=["moved, snapshot", "moved, change", "moved, resumed", "a deletion that is no longer known"],
)
async def test_a_topic_that_the_directory_lists_elsewhere_is_offered(message: pb.WatchRoutesResponse) -> None:
    """G15: an enode that was away and was forgotten, or a directory that lost a deletion.

    A resumed watch and a single change have the effect of a snapshot.
    """
    one = await filled()
    copies = TopicCopies(one.store, ENODE)
    await copies.apply(news(OWN, 5, (TOPIC, "orders")))
    copies.watching.set()
    if not message.topics:
        await copies.apply(news(OWN, 6, snapshot=False, deleted_topic_ids=[TOPIC]))
        assert await copies.unknown_topics() == []
    await copies.apply(message)
    assert copies.is_missing(TOPIC)
    assert [copy.topic_id for copy in await copies.unknown_topics()] == [TOPIC]
    await one.store.close()


@pytest.mark.parametrize("directory_id", [OWN, OTHER])
async def test_a_due_deletion_is_obeyed_by_id(directory_id: str) -> None:
    """Only that deletes a topic, with its messages, offsets and leases, unless a live topic has the id (G15)."""
    one = await filled()
    copies = TopicCopies(one.store, ENODE)
    await copies.apply(news(OWN, 5, (TOPIC, "orders")))
    await copies.apply(news(directory_id, 6, (TOPIC, "orders"), due_topic_ids=[TOPIC]))
    assert one.store.topic(TOPIC) is not None
    await copies.apply(news(directory_id, 7, due_topic_ids=[TOPIC], snapshot=False))
    assert (copies.directory_id, copies.directory_version) == (directory_id, 7)  # it confirms what is stored
    assert one.store.topic(TOPIC) is None
    assert one.store.topics() == []
    assert copies.is_missing(TOPIC)
    assert list(one.store.engine.state.offsets.checkpoint()) == []
    await one.store.close()


async def test_messages_that_wait_for_acknowledgement_stay_in_queues_that_a_group_has_not_begun() -> None:
    """G15: a group without an offset in a queue has not consumed it."""
    small = replace(SETTINGS, retention_bytes=20_000, retention_interval_ms=1_000)
    one = OneStore(settings=replace(small, retention_requires_acknowledgement=True))
    store = await one.open()

    async def fill() -> None:
        for number in range(100):
            await one.append(b"%d " % number * 200, number % 2)
            if number % 10 == 0:
                await one.clock.pass_time(3)

    await store.offsets.commit(TOPIC, "g", {0: 100})
    await fill()
    assert [queue.begin_offset for queue in store.describe_queues(TOPIC)] == [0, 0, 0]
    await store.offsets.commit(TOPIC, "g", {1: 100})
    await fill()
    assert all(queue.begin_offset > 0 for queue in store.describe_queues(TOPIC)[:2])
    await store.close()


async def test_retries_that_a_group_has_not_begun_stay() -> None:
    """G15: a group that has never read its retry topic has not consumed it. Without the group, no retry is needed."""
    small = replace(SETTINGS, retention_bytes=20_000, retention_interval_ms=1_000)
    one = OneStore(settings=replace(small, retention_requires_acknowledgement=True))
    store = await one.open()
    retries = TOPIC + 1
    await store.put_topics([TopicCopy(retries, "%RETRY%g", 1, 1)])
    await store.offsets.commit(TOPIC, "g", dict.fromkeys(range(QUEUES), 1_000))

    async def fill() -> None:
        for number in range(100):
            await one.append(b"%d " % number * 200)
            if number % 10 == 0:
                await one.clock.pass_time(3)

    await store.append(retries, 0, batch(b"retry"))
    await fill()
    assert store.queue_range(retries, 0).begin_offset == 0
    await store.offsets.commit(retries, "g", {0: 1})
    await fill()
    assert store.queue_range(retries, 0).begin_offset == 1
    for topic_id in (TOPIC, retries):
        await store.change(GroupDropped(topic_id, "g"))
    await store.append(retries, 0, batch(b"retry of a dropped group"))
    await fill()
    assert store.queue_range(retries, 0).begin_offset == 2
    await store.close()


async def test_a_clock_that_is_set_forward_deletes_nothing_for_a_day() -> None:
    """G15: a year that passed on only one clock does not prove the age of data."""
    one = OneStore(settings=replace(SETTINGS, retention_age_ms=3 * DAY_MS, retention_interval_ms=1_800_000))
    store = await one.open()
    for number in range(100):
        await one.append(b"%d " % number * 200)
        if number % 10 == 0:
            await one.clock.pass_time(1)
    await one.clock.pass_time(1_800)  # the first check accepts the clock
    one.clock.set_wall(one.clock.now_ms() + 365 * DAY_MS)
    await one.clock.pass_time(3_600)
    assert store.describe_queues(TOPIC)[0].begin_offset == 0
    await store.close()
