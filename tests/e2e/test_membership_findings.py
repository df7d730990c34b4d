"""Faults of the shared group membership are findings with their reason, and the metric of its alert shows them."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ortoo.common.process.clock import SystemClock
from ortoo.snode.membership.redis_url import redis_client
from ortoo.verification.servers import command
from ortoo.verification.servers.ports import free_address
from ortoo.verification.servers.processes import ProcessCluster, RoleProcess, process_cluster
from ortoo.verification.servers.scrape import scraped
from ortoo.verification.servers.valkey import Valkey, valkey
from tests.findings import OF_THE_MACHINE

UNAVAILABLE, DIFFER = "membership store unavailable", "membership stores differ"


@asynccontextmanager
async def two_snodes(folder: Path) -> AsyncIterator[tuple[ProcessCluster, Valkey]]:
    """A cluster with two snodes that share their members."""
    async with valkey(folder / "valkey") as redis:
        own = {"REDIS_URL": redis.url, "MEMBERSHIP_TIMEOUT_S": 1.0}
        async with process_cluster(folder, snodes=2, environ={"snode": own}) as cluster:
            yield cluster, redis


async def restarted(cluster: ProcessCluster, **environ: object) -> RoleProcess:
    """The second snode, after a restart with other settings."""
    snode = cluster.snodes[1]
    await snode.stop()
    snode.environ.update(environ)
    await snode.start()
    await cluster.wait_until_alive()
    return snode


async def findings(address: str) -> dict[str, dict[str, str]]:
    """The findings of the doctor, by name."""
    outcome = await command.run(("ortoo", "doctor", "--json", "--patience", "10"), address)
    found = {one["name"]: one for one in map(json.loads, outcome.stdout.splitlines())}
    return {name: one for name, one in found.items() if name not in OF_THE_MACHINE}


async def until_found(address: str, *names: str) -> dict[str, dict[str, str]]:
    """The findings, when they are these."""
    async with asyncio.timeout(120):
        while (found := await findings(address)).keys() != set(names):
            await SystemClock().sleep(0.1)
    return found


async def until_up(metrics: str, value: float) -> None:
    """Wait until the metric of the alert has this value."""
    async with asyncio.timeout(120):
        while list((await scraped(metrics))["ortoo_membership_store_up"].values()) != [value]:
            await SystemClock().sleep(0.1)


async def test_a_snode_with_another_prefix_is_named_by_every_snode(tmp_path: Path) -> None:
    """Both stores and their snodes are named; with one prefix again all is well, also after the store was emptied."""
    async with two_snodes(tmp_path) as (cluster, redis):
        await restarted(cluster, REDIS_PREFIX="other")
        for snode in cluster.snodes:
            found = await until_found(snode.address, DIFFER)
            assert found[DIFFER]["critical"]
            assert "prefix ortoo, id" in found[DIFFER]["observed"]
            assert "snode snode-0" in found[DIFFER]["observed"]
            assert "prefix other, id" in found[DIFFER]["observed"]
            assert "redis_prefix" in found[DIFFER]["remedy"]
        await restarted(cluster, REDIS_PREFIX="ortoo")
        assert await until_found(cluster.address) == {}
        client = redis_client(redis.url)
        await client.flushall()
        await client.aclose()
        assert DIFFER not in await findings(cluster.address)
        assert await until_found(cluster.address) == {}
        await restarted(cluster)
        assert await until_found(cluster.address) == {}


async def test_a_wrong_password_is_named_with_its_reason(tmp_path: Path) -> None:
    """The finding shows the answer of Redis and no password, and the remedy is the setting with the password."""
    async with two_snodes(tmp_path) as (cluster, redis):
        client = redis_client(redis.url)
        await client.config_set("requirepass", "right")
        await client.aclose()
        await restarted(cluster, REDIS_URL=redis.url.replace("//", "//:wrong@"))
        found = (await until_found(cluster.address, UNAVAILABLE))[UNAVAILABLE]
        assert found["critical"]
        assert found["process"] == "snode snode-1"
        assert "password" in found["observed"]
        assert "wrong" not in found["observed"].replace("WRONGPASS", "")
        assert "password in redis_url" in found["remedy"]


async def test_a_store_that_does_not_answer_in_time_is_named_and_counted(tmp_path: Path) -> None:
    """The finding has the limit, the metric of the alert is 0; both end when the store answers again."""
    metrics = free_address()
    async with two_snodes(tmp_path) as (cluster, redis):
        await restarted(cluster, METRICS_ADDRESS=metrics)
        redis.freeze()
        found = (await until_found(cluster.address, UNAVAILABLE))[UNAVAILABLE]
        assert "does not answer within 2 s" in found["observed"]
        assert "processor time" in found["remedy"]
        await until_up(metrics, 0.0)
        redis.thaw()
        assert await until_found(cluster.address) == {}
        await until_up(metrics, 1.0)
