"""An enode with three members, each a machine: what is acknowledged stays, whoever leads."""

import contextlib
from collections.abc import Callable

import pytest

from ortoo.client import Client, OrtooError, Queue
from ortoo.testing.simulation.cluster.cluster import Shape
from ortoo.testing.simulation.cluster.roles import MemberMachine
from tests.simulation.stage import Stage, play

THREE = Shape(enodes=1, snodes=1, members=3)


async def leader(stage: Stage) -> MemberMachine:
    """The member that serves, as soon as one does."""
    while True:
        for one in stage.cluster.members:
            if one.leads:
                return one
        await stage.clock.sleep(0.05)


async def topic(stage: Stage, client: Client) -> None:
    """A topic of one queue, made as soon as there is an enode to make it on."""
    await leader(stage)
    while True:
        with contextlib.suppress(OrtooError):
            await client.admin.ensure_topic("t", queue_count=1)
            return
        await stage.clock.sleep(0.1)


async def bodies(client: Client, queue: Queue) -> list[bytes]:
    """All of a queue."""
    return [body async for batch in client.fetch(queue) for body in batch.bodies()]


def test_a_set_begins_and_stores() -> None:
    """Three empty disks become a set, one of them leads, and what is acknowledged can be read."""

    async def script(stage: Stage) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            async with client.producer("t") as producer:
                receipts = [await producer.send(b"%d" % number) for number in range(20)]
            assert await bodies(client, receipts[0].queue) == [b"%d" % number for number in range(20)]

    play(script, shape=THREE)


async def sent(stage: Stage, client: Client, count: int, stored: list[bytes]) -> Queue:
    """Send messages one after another, each until it is acknowledged once; where they lie."""
    queue: Queue | None = None
    async with client.producer("t") as producer:
        while count:
            body = b"%d" % len(stored)
            with contextlib.suppress(OrtooError):
                receipt = await producer.send(body)
                queue, count = receipt.queue, count - 1
                stored.append(body)
    assert queue is not None
    return queue


@pytest.mark.parametrize("harm", ["kill", "power", "freeze", "isolate", "stop"])
def test_a_member_takes_over(harm: str) -> None:
    """The leader dies, loses power, freezes, is cut off or stops: another serves soon, with all acknowledged."""

    async def script(stage: Stage) -> None:
        async with stage.connect("app") as client:
            await topic(stage, client)
            stored: list[bytes] = []
            queue = await sent(stage, client, 20, stored)
            for _ in range(4):
                first = await leader(stage)
                begun_s = stage.clock.monotonic_s()
                undo = await harmed(stage, first, harm)
                await sent(stage, client, 1, stored)
                took_s = stage.clock.monotonic_s() - begun_s
                assert took_s < 3.0
                undo()
                await sent(stage, client, 20, stored)
                found = await bodies(client, queue)
                assert [one for one in stored if one not in found] == []
                await stage.clock.sleep(3)

    play(script, shape=THREE)


async def harmed(stage: Stage, member: MemberMachine, harm: str) -> Callable[[], object]:
    """What happens to the leader; gives what undoes it."""
    if harm == "kill":
        member.kill()
    elif harm == "power":
        member.cut_power()
    elif harm == "freeze":
        member.pause()
        return member.resume
    elif harm == "isolate":
        return stage.world.network.isolate(member.name)
    else:
        await member.stop()
    return member.start
