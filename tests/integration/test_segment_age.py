"""Old messages of an enode with replicas are deleted on all of them, without later traffic."""

import asyncio
import dataclasses
from pathlib import Path

from ortoo.client import connect
from ortoo.enode.app import RunningEnode
from ortoo.verification.servers.cluster import SMALL_STORE, open_cluster
from tests.integration.enode_replicas import leading, open_members

AGED = dataclasses.replace(SMALL_STORE, retention_age_ms=1_000, retention_interval_ms=100)


def is_trimmed(member: RunningEnode) -> bool:
    """Whether a replica has deleted the begin of its log."""
    driver = member.process.driver
    return driver is not None and driver.log.engine.catalog.begin_position > 0


async def test_each_replica_deletes_the_segment_that_its_leader_ended(tmp_path: Path) -> None:
    """Followers copy the end of the segment, the checkpoints and the new begin."""
    async with open_cluster(tmp_path, enodes=0, store=AGED) as cluster, open_members(cluster) as members:
        await leading(cluster, members)
        async with connect(cluster.address) as mq, asyncio.timeout(60):
            await mq.admin.create_topic("t", queue_count=1)
            async with mq.producer("t") as producer:
                for number in range(10):
                    await producer.send(b"%d" % number)
                while not all(is_trimmed(one) for one in members):
                    await cluster.clock.sleep(0.05)
                assert (await producer.send(b"next")).offset == 10
