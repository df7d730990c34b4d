"""A whole cluster with the client: graceful restarts lose nothing and repeat nothing."""

import asyncio

import pytest

from ortoo.client import ConsumerSettings, connect
from ortoo.verification.servers.cluster import InProcessCluster
from ortoo.verification.servers.fixtures import cluster

__all__ = ["cluster"]


async def reopen(opened: InProcessCluster, name: str) -> None:
    """Open a service that was closed."""
    if name == "namesrv-0":
        await opened.open_namesrv()
    elif name == "enode-0":
        await opened.open_enode(name)
    else:
        await opened.open_snode(name)


@pytest.mark.parametrize("name", ["namesrv-0", "enode-0", "snode-0"])
async def test_orderly_restart_loses_nothing(cluster: InProcessCluster, name: str) -> None:  # the fixture
    """While a service is drained and restarted, a producer and a consumer continue; each message is stored once."""
    await cluster.create_topic("t")
    received: list[bytes] = []
    async with asyncio.timeout(60), connect(cluster.address) as mq:
        settings = ConsumerSettings(from_beginning=True)
        async with mq.consumer("g", "t", settings) as consumer, mq.producer("t") as producer:
            for number in range(50):
                await producer.send(b"before %d" % number)
            await cluster.close(name)
            during = await producer.send_many([b"during %d" % number for number in range(50)])
            await reopen(cluster, name)
            receipts = await during
            assert len({(r.queue, r.offset) for r in receipts}) == 50
            async for batch in consumer.batches():
                received += batch.bodies()
                batch.ack()
                if len(set(received)) == 100:
                    break
        description = await mq.admin.describe_topic("t")
    assert sum(queue.end_offset for queue in description.queues) == 100
