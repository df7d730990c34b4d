"""A disk that was restored from an image lacks acknowledged data: no other disk truncates this data for it."""

from pathlib import Path

from ortoo.enode.offline.elect import become_single_replica
from ortoo.enode.recovery.opening import durable_end
from ortoo.testing.simulation.cluster.roles import ReplicaMachine
from ortoo.verification.simulation.run.agreement import SEGMENT_SUFFIX
from tests.simulation.scripted_cluster import ScriptedCluster, play
from tests.simulation.test_take_over import THREE, bodies, leader, sent, topic


def content(machine: ReplicaMachine) -> bytes:
    """All segments of a replica's log."""
    return b"".join(machine.disk.content(one) for one in machine.disk.files() if one.suffix == SEGMENT_SUFFIX)


def test_what_is_committed_is_not_cut_for_a_leader_that_lacks_it() -> None:
    """With one replica down and the disk of another one restored, only the third has 77 messages.

    The two that lack them are a majority, and one of them leads. The third process ends and names these messages. It
    keeps them, and an operator continues with that disk.
    """

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            stored: list[bytes] = []
            queue = await sent(client, 20, stored)
            first = await leader(stage)
            older, late = [one for one in stage.cluster.replicas if one is not first]
            await stage.clock.sleep(3)
            older.kill()
            image = older.disk.image()
            older.start()
            await older.ready.wait()
            late.kill()
            await sent(client, 77, stored)
            await stage.clock.sleep(3)
            for one in (first, older):
                one.kill()
            older.disk.put_back(image)
            older.start()
            late.start()
            await stage.clock.sleep(10)
            assert not any(one.is_leading for one in stage.cluster.replicas), (
                "a name server that runs knows its later start"
            )
            for name_server in stage.cluster.name_servers:
                name_server.kill()
                name_server.start()
            await leader(stage)
            await sent(client, 5, [])
            before = content(first)
            first.may_crash_with = lambda error: True  # type: ignore[method-assign]
            first.start()
            await stage.clock.sleep(8)
            assert not first.is_leading
            first.kill()
            for one in (older, late):
                await one.stop()
            assert [body for body in stored if body not in content(first)] == []
            assert content(first)[: len(before.rstrip(b"\0"))] == before.rstrip(b"\0")
            disk, folder = first.disk.open(), Path("/") / first.name
            end = durable_end(disk, folder)
            assert (
                become_single_replica(disk, folder, stage.clock, stage.world.random_streams.stream("operator")) >= end
            )
            first.start()
            await sent(client, 3, stored)
            assert await bodies(client, queue) == stored
            for one in (older, late):
                one.kill()

    play(script, shape=THREE)
