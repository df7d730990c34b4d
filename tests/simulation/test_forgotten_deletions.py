"""An enode that was away during very many deletions: it carries them out when it is back, and deletes nothing else."""

import pytest

from ortoo.client import Client
from ortoo.namesrv.decisions import deletions
from ortoo.testing.simulation.cluster.cluster import ClusterShape
from tests.simulation.scripted_cluster import ScriptedCluster, play

NAMES = [f"t{number}" for number in range(8)]


async def send(mq: Client, name: str, body: bytes) -> None:
    """Create a topic of one queue, and send a message to it."""
    await mq.admin.create_topic(name, queue_count=1)
    async with mq.producer(name) as producer:
        await producer.send(body)


async def stored(mq: Client, name: str) -> list[bytes]:
    """The bodies of all messages of a topic."""
    return [one.message.body async for one in mq.admin.tail(name, from_beginning=True, follow=False)]


@pytest.mark.parametrize("name_servers", [1, 2])
@pytest.mark.parametrize("restarts", [False, True], ids=["runs on", "name server restarts"])
def test_deletions_that_are_no_longer_reported_reach_an_enode_that_was_away(
    restarts: bool, name_servers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It offers none of these topics. New topics of their names are empty, and the other topic has its message."""
    monkeypatch.setattr(deletions, "DELETIONS_MAX", 2)
    monkeypatch.setattr(deletions, "FORGOTTEN_AT_ONCE", 1)

    async def script(stage: ScriptedCluster) -> None:
        [enode], name_server = stage.cluster.enodes, stage.cluster.name_servers[0]
        async with stage.connect("operator") as mq:
            for name in (*NAMES, "other"):
                await send(mq, name, b"old")
            await enode.stop()
            for name in NAMES:
                await mq.admin.delete_topic(name, at_once=True)
            await stage.clock.sleep(5.0)
            if restarts:
                await name_server.stop()
                name_server.start()
                await stage.clock.sleep(5.0)
            enode.start()
            await stage.clock.sleep(30.0)
            assert await mq.admin.list_orphaned_topics() == []
            for name in NAMES:
                await send(mq, name, b"new")
                assert await stored(mq, name) == [b"new"]
            assert await stored(mq, "other") == [b"old"]

    play(script, shape=ClusterShape(name_servers=name_servers, enodes=1, snodes=1))
