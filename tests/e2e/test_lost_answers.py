"""A producer whose answers get lost stores every message once, also when its snode dies."""

import asyncio
from pathlib import Path

from ortoo.client import Client, connect
from ortoo.verification.servers.processes import process_cluster
from tests.e2e.deaf_relay import deaf_relay

BEFORE, LOST, AFTER = 10, 60, 30


async def stored_bodies(mq: Client, topic: str, count: int) -> list[bytes]:
    """The bodies of a topic of one queue, as soon as there are `count`."""
    description = await mq.admin.describe_topic(topic)
    bodies: list[bytes] = []
    async for batch in mq.fetch(description.queues[0].queue, follow=True):
        bodies += batch.bodies()
        if len(bodies) >= count:
            return bodies
    return bodies


async def test_what_is_sent_again_after_the_snodes_death_is_stored_once(tmp_path: Path) -> None:
    """G4, G1: messages are stored, their answers lost, the snode is killed and restarted. None is lost or doubled."""
    bodies = [b"message %d" % number for number in range(BEFORE + LOST + AFTER)]
    async with process_cluster(tmp_path) as cluster, asyncio.timeout(100):
        await cluster.wait_until_alive()
        address = cluster.address
        async with deaf_relay(address) as relay, connect(address) as direct, connect(relay.address) as mq:
            await direct.admin.create_topic("t", queue_count=1)
            async with mq.producer("t") as producer:
                first = await (await producer.send_many(bodies[:BEFORE]))
                relay.deaf = True
                lost = [await producer.enqueue(body) for body in bodies[BEFORE : BEFORE + LOST]]
                assert await stored_bodies(direct, "t", BEFORE + LOST) == bodies[: BEFORE + LOST]
                assert not any(sending.done for sending in lost)
                await relay.swallowed.wait()
                await cluster.snode.kill()
                relay.deaf = False
                rest = [await producer.enqueue(body) for body in bodies[BEFORE + LOST :]]
                await cluster.snode.restart()
                receipts = first + [await sending for sending in lost + rest]
            assert [receipt.offset for receipt in receipts] == list(range(len(bodies)))
            assert await stored_bodies(direct, "t", len(bodies)) == bodies
            described = await direct.admin.describe_topic("t")
            assert described.queues[0].end_offset == len(bodies)
