"""Findings say since when they are seen, and processes say until when their certificates are valid."""

import asyncio
from pathlib import Path

from ortoo.client import Client, ClusterFinding, connect
from ortoo.common.process.clock import Clock
from ortoo.verification.servers.cluster import open_cluster
from tests.findings import of_cluster


async def findings(mq: Client, timeout_s: float = 30.0) -> list[ClusterFinding]:
    """The findings of the cluster. A slow machine has its own, and has time for all processes."""
    return of_cluster(await mq.admin.operations.list_findings(timeout_s=timeout_s))


async def unavailable(mq: Client, clock: Clock) -> ClusterFinding:
    """The finding about an enode without a lease, when it is there."""
    while True:
        found = [one for one in await findings(mq) if one.name == "enode unavailable"]
        if found:
            return found[0]
        await clock.sleep(0.1)


async def test_an_enode_is_away_since_the_check_that_noticed_it(tmp_path: Path) -> None:
    """Later checks keep the time. After the return and another loss the time is a later one."""
    async with (
        open_cluster(tmp_path) as cluster,
        connect(cluster.address) as mq,
        asyncio.timeout(120),
    ):
        await cluster.create_topic("t", queues=1)
        assert await findings(mq) == []
        closed_ms = cluster.clock.now_ms()
        await cluster.close("enode-0")
        first = await unavailable(mq, cluster.clock)
        assert closed_ms <= first.since_ms <= cluster.clock.now_ms()
        assert first.seen_from_ms < first.since_ms
        await cluster.clock.sleep(0.1)
        usual = {(one.process, one.name): one.since_ms for one in await findings(mq)}
        assert first.since_ms in usual.values()
        hurried = await findings(mq, timeout_s=0.001)
        assert hurried
        times = {one.since_ms - usual.get((one.process, one.name), 0) for one in hurried if one.since_ms}
        assert times == {0}, "others did not answer in a millisecond, which is no problem"
        assert (await unavailable(mq, cluster.clock)).since_ms == first.since_ms
        await cluster.open_enode("enode-0")
        while await findings(mq):
            await cluster.clock.sleep(0.1)
        await cluster.close("enode-0")
        assert (await unavailable(mq, cluster.clock)).since_ms > first.since_ms
