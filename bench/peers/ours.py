"""Ortoo as it is compared: three processes with default settings, or an enode of three replicas."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bench.peers.servers import Servers
from bench.processes import cluster
from ortoo.client import connect
from tests.e2e.replica_cluster import leading, replica_cluster, whole

RETENTION_BYTES = 4 << 30
"""The size of the log. Without a limit the loads would fill the disk. With 8 GiB for each topic, the oldest messages of
both systems no longer fit into the page cache."""


@asynccontextmanager
async def ortoo(
    folder: Path, topics: Sequence[str], queues: int, *, retention_bytes: int = RETENTION_BYTES
) -> AsyncIterator[Servers]:
    """Run name server, enode and snode in `folder`, and create the topics."""
    async with cluster(folder, STORE_RETENTION_BYTES=str(retention_bytes)) as roles:
        await _create_topics(roles.address, topics, queues)
        processes = (roles.namesrv, roles.enode, roles.snode)
        yield Servers(roles.address, {role.role: role.process_id for role in processes})


@asynccontextmanager
async def ortoo_members(folder: Path, topics: Sequence[str], queues: int) -> AsyncIterator[Servers]:
    """Run the same with an enode of three replicas, whose majority has a message before it is acknowledged."""
    limit = {"ORTOO_ENODE_STORE_RETENTION_BYTES": str(RETENTION_BYTES)}
    async with replica_cluster(folder, enode_environ=limit) as roles:
        async with connect(roles.snode.address) as mq:
            await whole(mq)
            leader = await leading(roles, mq)
        await _create_topics(roles.snode.address, topics, queues)
        followers = [one for one in roles.enodes if one is not leader]
        process_ids = {"namesrv": roles.namesrv.pid, "snode": roles.snode.pid, "leader": leader.pid}
        process_ids |= {f"follower-{number}": one.pid for number, one in enumerate(followers, 1)}
        yield Servers(roles.snode.address, process_ids)


async def _create_topics(address: str, topics: Sequence[str], queues: int) -> None:
    async with connect(address) as mq:
        for topic in topics:
            await mq.admin.ensure_topic(topic, queue_count=queues)
