"""Proof: whatever happens to the name server's database, enodes keep their messages until a deletion is due."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ortoo.cli.doctor.run import _findings_behind
from ortoo.client import AlreadyExists, Client, Conflict, ConsumerSettings, Message, NotFound, connect
from ortoo.client.admin.doctor.findings import DoctorFinding
from ortoo.common.process.clock import SystemClock
from ortoo.enode.app import RunningEnode
from ortoo.namesrv.offline.backup import backup, restore
from ortoo.v1 import namesrv_pb2 as pb
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster
from ortoo.verification.servers.postgres import postgres
from tests.findings import of_cluster

COUNT, CONSUMED = 1_000, 400
BODIES = [b"%d" % number for number in range(COUNT)]
MORE = [b"%d" % number for number in range(COUNT, COUNT + 200)]
EVERYTHING = ConsumerSettings(from_beginning=True)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[InProcessCluster]:
    """One of each role; the topic t holds 1,000 acknowledged messages, of which the group g consumed 400."""
    async with open_cluster(tmp_path) as opened:
        await opened.create_topic("t")
        async with connect(opened.address) as mq:
            async with mq.producer("t") as producer:
                await (await producer.send_many(BODIES))
            seen = 0
            async with asyncio.timeout(60), mq.consumer("g", "t", EVERYTHING) as consumer:
                async for message in consumer:
                    message.ack()
                    seen += 1
                    if seen == CONSUMED:
                        break
            assert (await mq.admin.describe_lag("g", "t")).lag_messages == COUNT - CONSUMED
        yield opened


async def lost(cluster: InProcessCluster, *, kept: Path | None = None) -> None:
    """Stop the name server and move its database away (to `kept`); start it with another one, new or given."""
    await cluster.close("namesrv-0")
    if kept is not None:
        shutil.move(cluster.folder / "namesrv", kept)
    else:
        shutil.rmtree(cluster.folder / "namesrv")
    await opened_again(cluster)


async def opened_again(cluster: InProcessCluster) -> None:
    """Start the name server; wait until the enode has synchronized with it and the snode is registered."""
    running = await cluster.open_namesrv()
    assert running.address
    has_enode = has_snode = False
    async with asyncio.timeout(60):
        async for news in cluster.name_service.WatchRoutes(pb.WatchRoutesRequest()):
            has_enode |= any(enode.alive for enode in news.enodes)
            has_snode |= any(snode.alive for snode in news.snodes)
            if has_enode and has_snode:
                return


async def stored(mq: Client) -> list[bytes]:
    """All bodies of t, sorted by number."""
    async with asyncio.timeout(60):
        found = [one.message.body async for one in mq.admin.tail("t", from_beginning=True, follow=False)]
    return sorted(found, key=int)


async def assert_all_there(mq: Client) -> None:
    """Every message of t can be read, and the group has its offset."""
    assert await stored(mq) == BODIES
    assert (await mq.admin.describe_lag("g", "t")).lag_messages == COUNT - CONSUMED


async def test_a_lost_database_costs_no_message(cluster: InProcessCluster, tmp_path: Path) -> None:
    """With a new database the topic is not recreated but adopted; with the old one restored all messages are there."""
    await lost(cluster, kept=tmp_path / "kept")
    async with connect(cluster.address) as mq:
        with pytest.raises(Conflict, match="ortoo topic adopt t"):
            await mq.admin.ensure_topic("t")
        assert [one.name for one in await mq.admin.list_orphaned_topics()] == ["t"]
        adoption = await mq.admin.adopt_topics("t")
        assert [one.name for one in adoption.topics] == ["t"]
        assert adoption.refused == ()
        assert await mq.admin.list_orphaned_topics() == []
        await assert_all_there(mq)
        await cluster.close("namesrv-0")
        shutil.rmtree(cluster.folder / "namesrv")
        shutil.move(tmp_path / "kept", cluster.folder / "namesrv")
        await opened_again(cluster)
        await assert_all_there(mq)
        assert await mq.admin.list_orphaned_topics() == []


async def critical_findings(cluster: InProcessCluster, *names: str) -> list[DoctorFinding]:
    """The doctor's critical findings, when they have these names.

    The doctor also reports a snode that has not read the new directory yet, and checks that a slow machine left
    incomplete.
    """
    now_s = asyncio.get_running_loop().time
    deadline_s = now_s() + 60
    while True:
        everything = await _findings_behind([cluster.address], {}, "", "", now_s() + 30, 10)
        found = [one for one in of_cluster(everything) if one.critical]
        if [one.name for one in found] == [*names] or now_s() > deadline_s:
            assert [one.name for one in found] == [*names]
            return found
        await SystemClock().sleep(0.1)


async def test_queues_that_a_topic_got_after_the_backup_are_offered(cluster: InProcessCluster, tmp_path: Path) -> None:
    """An older copy of the directory knows fewer queues. The messages of the others are reported, and adopted."""
    file, folder = tmp_path / "directory.backup", cluster.folder / "namesrv"
    async with connect(cluster.address) as mq:
        count = (await mq.admin.describe_topic("t")).topic.placements[0].read_queue_count
        backup("", folder, file)
        await mq.admin.update_topic("t", read_queue_count=count + 4)
        await mq.admin.update_topic("t", write_queue_count=count + 4)
        async with mq.producer("t") as producer:
            await (await producer.send_many(Message(body, message_group=body.decode()) for body in MORE))
        await cluster.close("namesrv-0")
        shutil.rmtree(folder)
        restore("", folder, file, "not used", SystemClock().now_ms())
        await opened_again(cluster)
        assert set(await stored(mq)) < {*BODIES, *MORE}
        await critical_findings(cluster, "unregistered topics")
        adoption = await mq.admin.adopt_topics("t")
        assert [one.placements[0].read_queue_count for one in adoption.topics] == [count + 4]
        assert set(await stored(mq)) == {*BODIES, *MORE}
        assert await mq.admin.list_orphaned_topics() == []


async def test_another_topic_of_the_name_stands_beside_what_is_kept(cluster: InProcessCluster) -> None:
    """A topic created although one is offered starts empty and deletes nothing; adopting names the step before it."""
    await lost(cluster)
    made = await cluster.name_service.CreateTopic(pb.CreateTopicRequest(name="t", ignore_orphaned=True))
    async with connect(cluster.address) as mq:
        (offer,) = await mq.admin.list_orphaned_topics()
        assert offer.topic_id != made.topic.topic_id
        assert "ortoo topic delete t" in offer.conflict
        with pytest.raises(Conflict, match="ortoo topic delete t"):
            await mq.admin.adopt_topics("t")
        assert [one.topic_id for one in (await mq.admin.adopt_topics()).refused] == [offer.topic_id]
        await mq.admin.delete_topic("t")
        await mq.admin.adopt_topics("t")
        await assert_all_there(mq)


async def test_topics_that_nobody_touches_outlive_other_topics_and_restarts(cluster: InProcessCluster) -> None:
    """Three topics of the new directory raise its version above the old one's, and the enode restarts."""
    await lost(cluster)
    for name in ("u", "v", "w"):
        await cluster.create_topic(name)
    await cluster.close("enode-0")
    await cluster.open_enode("enode-0")
    async with connect(cluster.address) as mq:
        with pytest.raises(NotFound, match="no enode offers"):
            await mq.admin.adopt_topics("x")
        assert [one.name for one in (await mq.admin.adopt_topics()).topics] == ["t"]
        await assert_all_there(mq)


async def test_from_sqlite_to_postgresql(cluster: InProcessCluster) -> None:
    """The doctor names the topics unknown to the new database, and the command; after that all messages are there."""
    async with postgres() as database:
        cluster.settings["namesrv"] = {"database_url": database.url}
        await cluster.close("namesrv-0")
        await opened_again(cluster)
        (found,) = await critical_findings(cluster, "unregistered topics")
        assert "ortoo topic adopt t" in found.remedy
        async with connect(cluster.address) as mq:
            await mq.admin.adopt_topics()
            await assert_all_there(mq)
            await critical_findings(cluster)
        await cluster.close("namesrv-0")


async def test_a_deleted_topic_comes_back_as_it_was(cluster: InProcessCluster) -> None:
    """Invisible to clients at once; restored with messages and offsets, even after the name was used meanwhile."""
    async with connect(cluster.address) as mq:
        first = (await mq.admin.describe_topic("t")).topic
        await mq.admin.delete_topic("t")
        with pytest.raises(NotFound):
            await mq.admin.describe_topic("t")
        second = await mq.admin.create_topic("t")
        with pytest.raises(AlreadyExists, match="ortoo topic delete t"):
            await mq.admin.undelete_topic("t")
        await mq.admin.delete_topic("t")
        with pytest.raises(Conflict, match=f"{first.topic_id:#x}"):
            await mq.admin.undelete_topic("t")
        listed = [one.topic.topic_id for one in await mq.admin.list_deleted_topics()]
        assert set(listed) == {first.topic_id, second.topic_id}
        await cluster.close("enode-0")
        await cluster.open_enode("enode-0")  # a deleted topic that is not due is not offered either
        assert await mq.admin.list_orphaned_topics() == []
        assert await mq.admin.undelete_topic("t", topic_id=first.topic_id) == first
        await assert_all_there(mq)
        with pytest.raises(NotFound, match="ortoo topic deleted"):
            await mq.admin.undelete_topic("nowhere")


async def test_messages_go_when_the_deletion_is_due_and_not_before(cluster: InProcessCluster) -> None:
    """The name server decides: when the promised grace period has expired. It cannot be restored afterwards."""
    enode = cluster.running["enode-0"]
    assert isinstance(enode, RunningEnode)
    topic = (await cluster.name_service.GetTopic(pb.GetTopicRequest(name="t"))).topic
    await cluster.name_service.DeleteTopic(pb.DeleteTopicRequest(name="t"))
    await seen(cluster, "a")
    assert enode.store.topic(topic.topic_id) is not None
    await cluster.close("namesrv-0")
    cluster.settings["namesrv"] = {"topic_deletion_grace_ms": 0}
    await opened_again(cluster)
    await seen(cluster, "b")
    assert enode.store.topic(topic.topic_id) is not None  # its time was fixed when it was deleted
    await cluster.name_service.UndeleteTopic(pb.UndeleteTopicRequest(name="t"))
    await cluster.name_service.DeleteTopic(pb.DeleteTopicRequest(name="t"))
    await seen(cluster, "c")
    assert enode.store.topic(topic.topic_id) is None
    async with connect(cluster.address) as mq:
        with pytest.raises(NotFound):
            await mq.admin.undelete_topic("t")


async def seen(cluster: InProcessCluster, name: str) -> None:
    """Create a topic and wait until the enode has it: then it has seen all earlier changes."""
    async with connect(cluster.address) as mq:
        await mq.admin.create_topic(name)
