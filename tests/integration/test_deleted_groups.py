"""A deleted group behaves like a deleted topic: it can be restored for a while, then its state is removed."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ortoo.client import AlreadyExists, Client, ConsumerSettings, GroupInfo, NotFound, Unavailable, connect
from ortoo.enode.app import RunningEnode
from ortoo.namesrv.offline.backup import backup, restore
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster

COUNT = 10


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[InProcessCluster]:
    """One of each role; the declared group g and the auto-created group u have consumed all of topic t."""
    async with open_cluster(tmp_path) as opened:
        await opened.create_topic("t", queues=1)
        async with connect(opened.address) as mq:
            await mq.admin.groups.update("g", attempts_max=3)
            async with mq.producer("t") as producer:
                await asyncio.gather(*await producer.send_many([b"x"] * COUNT))
            for group in ("g", "u"):
                await consumed(mq, group, COUNT)
        yield opened


async def consumed(mq: Client, group: str, count: int) -> None:
    """A group member acknowledges `count` messages and leaves."""
    async with asyncio.timeout(60), mq.consumer(group, "t", ConsumerSettings(from_beginning=True)) as consumer:
        async for message in consumer:
            message.ack()
            count -= 1
            if not count:
                break


def kept(cluster: InProcessCluster) -> list[str]:
    """The groups of which the enode stores offsets."""
    enode = cluster.running["enode-0"]
    assert isinstance(enode, RunningEnode)
    return sorted({group for _, group, _ in enode.store.engine.state.offsets.entries()})


async def until(cluster: InProcessCluster, *groups: str) -> None:
    """Wait until the enode stores offsets of these groups only."""
    async with asyncio.timeout(60):
        while kept(cluster) != list(groups):
            await cluster.clock.sleep(0.02)


async def named(mq: Client) -> dict[str, GroupInfo]:
    """All groups by name."""
    return {group.name: group for group in await mq.admin.list_groups()}


async def test_a_deleted_group_comes_back_as_it_was(cluster: InProcessCluster) -> None:
    """Settings and offsets, over restarts; also when its consumers have recreated it by using it meanwhile."""
    async with connect(cluster.address) as mq, asyncio.timeout(60):
        assert {name: group.auto_created for name, group in (await named(mq)).items()} == {"g": False, "u": True}
        await mq.admin.delete_group("g")
        assert list(await named(mq)) == ["u"]
        [deleted] = await mq.admin.list_deleted_groups()
        assert (deleted.group.name, deleted.due_at_ms - deleted.deleted_at_ms) == ("g", 86_400_000)
        for name in ("namesrv-0", "enode-0"):
            await cluster.close(name)
        await cluster.open_namesrv()
        await cluster.open_enode("enode-0")
        assert (await mq.admin.undelete_group("g")).attempts_max == 3
        assert await mq.admin.list_deleted_groups() == []
        assert (await mq.admin.describe_lag("g", "t")).lag_messages == 0
        with pytest.raises(NotFound, match="ortoo group deleted"):
            await mq.admin.undelete_group("g")
        await mq.admin.delete_group("g")
        while "g" not in await named(mq):  # the snode learns of the deletion a moment later
            async with mq.producer("t") as producer:
                await producer.send(b"more")
            await consumed(mq, "g", 1)
        assert (await named(mq))["g"].auto_created
        assert (await mq.admin.undelete_group("g")).attempts_max == 3
        assert not (await named(mq))["g"].auto_created
        await mq.admin.delete_group("g")
        await mq.admin.groups.update("g", attempts_max=5)
        with pytest.raises(AlreadyExists, match="declared again"):
            await mq.admin.undelete_group("g")
        assert kept(cluster) == ["g", "u"]


async def test_what_is_deleted_after_the_directory_was_restored_goes(cluster: InProcessCluster, tmp_path: Path) -> None:
    """Enodes and snodes that know versions newer than the backup still accept the changes of the restored directory."""
    folder, file = cluster.folder / "namesrv", tmp_path / "directory.backup"
    async with connect(cluster.address) as mq, asyncio.timeout(60):
        backup("", folder, file)
        for number in range(5):
            await mq.admin.ensure_topic(f"later-{number}")
        await cluster.clock.sleep(0.01)
        await mq.admin.delete_group("u", at_once=True)
        await until(cluster, "g")
        await cluster.close("namesrv-0")
        shutil.rmtree(folder)
        restore("", folder, file, "unused", cluster.clock.now_ms())
        await cluster.open_namesrv()
        while [one.name for one in await mq.admin.list_topics()] != ["t"]:
            await cluster.clock.sleep(0.02)
        await mq.admin.delete_group("g", at_once=True)
        await until(cluster)


async def test_nothing_is_kept_of_a_group_whose_deletion_is_due(cluster: InProcessCluster) -> None:
    """At once, or when its grace period expires; a later group of the same name starts empty and stays."""
    async with connect(cluster.address) as mq, asyncio.timeout(60):
        await cluster.clock.sleep(0.01)  # a deletion in the millisecond of the last use would keep the group
        await mq.admin.delete_group("u", at_once=True)
        await until(cluster, "g")
        assert await mq.admin.list_deleted_groups() == []
        with pytest.raises(NotFound):
            await mq.admin.undelete_group("u")
        await consumed(mq, "u", COUNT)
        assert kept(cluster) == ["g", "u"]
        await cluster.close("enode-0")
        await cluster.open_enode("enode-0")  # it is notified again of the deletion that it has already applied
        await mq.admin.ensure_topic("later")
        assert kept(cluster) == ["g", "u"]
        await cluster.close("namesrv-0")
        cluster.settings["namesrv"] = {"group_deletion_grace_ms": 50, "expiry_interval_s": 0.02}
        await cluster.open_namesrv()
        while True:
            try:
                await mq.admin.delete_group("g")
                break
            except Unavailable:  # the snode is not connected to the name server's new process yet
                await cluster.clock.sleep(0.05)
        await until(cluster, "u")
        assert await mq.admin.list_deleted_groups() == []
