"""Two snodes over Redis servers watched by a Sentinel, and over a Redis cluster."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio

from ortoo.common.errors import Invalid
from ortoo.common.process.clock import SystemClock
from ortoo.snode.membership.redis_url import redis_client
from ortoo.verification.servers.cluster import open_cluster
from ortoo.verification.servers.ports import free_ports
from ortoo.verification.servers.valkey import Valkey, valkey
from tests.integration.session_client import SessionClient
from tests.integration.test_two_snodes import TwoSnodes

SLOTS = 16384
CLOCK = SystemClock()


@contextlib.asynccontextmanager
async def snodes_over(folder: Path, url: str) -> AsyncIterator[TwoSnodes]:
    """A cluster of two snodes that share groups through the Redis at `url`."""
    chosen = {"redis_url": url, "membership_timeout_s": 1.0}
    async with open_cluster(folder, snodes=2, settings={"snode": chosen}) as cluster:
        yield TwoSnodes(cluster)


async def test_snodes_follow_sentinels_to_another_master(tmp_path: Path) -> None:
    """When the master is killed, a Sentinel promotes the replica, and consumers that join later are seen everywhere."""
    async with (
        valkey(tmp_path / "master") as master,
        valkey(tmp_path / "replica", "--replicaof", "127.0.0.1", str(master.port)) as replica,
        valkey(
            tmp_path / "sentinel",
            sentinel=f"sentinel monitor groups 127.0.0.1 {master.port} 1\n"
            "sentinel down-after-milliseconds groups 500\nsentinel failover-timeout groups 3000\n",
        ) as sentinel,
    ):
        await until_replica_follows(replica)
        await until_sentinel_knows_replica(sentinel)
        # The first Sentinel does not exist; the next one is asked.
        url = f"redis+sentinel://127.0.0.1:1,127.0.0.1:{sentinel.port}/0?service=groups"
        async with snodes_over(tmp_path / "cluster", url) as running, asyncio.timeout(120):
            await running.topic("t", 2)
            async with SessionClient(running, "a") as first, SessionClient(running, "b", snode="snode-1") as second:
                await first.consume("g", "t")
                await second.consume("g", "t")
                await running.until("snode-0", "a", "b")
                await master.stop()
                while await role_of(replica) != "master":
                    await running.cluster.clock.sleep(0.05)
                async with SessionClient(running, "c", snode="snode-1") as third:
                    await third.consume("g", "t")
                    for snode in ("snode-0", "snode-1"):
                        while await running.client_ids(snode) != ["a", "b", "c"]:
                            await running.cluster.clock.sleep(0.05)


async def test_snodes_share_groups_through_a_redis_cluster(tmp_path: Path) -> None:
    """All keys lie in one slot, because scripts change several of them; changes are published across the nodes."""
    bus_ports = free_ports(2)  # the default, 10,000 above the other port, may belong to another process
    async with contextlib.AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(
                valkey(tmp_path / str(bus_port), "--cluster-enabled", "yes", "--cluster-port", str(bus_port))
            )
            for bus_port in bus_ports
        ]
        await join_nodes(nodes, bus_ports[0])
        url = f"redis+cluster://127.0.0.1:1,127.0.0.1:{nodes[0].port}"
        async with snodes_over(tmp_path / "cluster", url) as running, asyncio.timeout(60):
            await running.topic("t", 2)
            async with SessionClient(running, "a") as first, SessionClient(running, "b", snode="snode-1") as second:
                await first.consume("g", "t")
                await second.consume("g", "t")
                for snode in ("snode-0", "snode-1"):
                    await running.until(snode, "a", "b")
            keys = [key for node in nodes for key in await keys_of(node)]
            assert keys
            assert all(key.startswith("{ortoo}/") for key in keys)


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://a:1/0",
        "redis+sentinel://a/0?service=x",
        "redis+cluster://a:1,b",
        "redis+cluster://",
        "redis+sentinel://u:p/q@a:1/0?service=x",
        "redis+other://a:1",
    ],
)
def test_other_urls_are_refused_with_the_three_forms(url: str) -> None:
    """A missing service, a missing port and an unknown scheme are refused without a part of the password."""
    with pytest.raises(Invalid, match="service=NAME or redis") as refused:
        redis_client(url)
    assert refused.value.field == "redis_url"


async def test_credentials_and_tls_of_a_url_reach_the_servers() -> None:
    """Sentinels have credentials of their own; addresses of the sixth version are in brackets."""
    url = "rediss+sentinel://u:s%2Fx@[::1]:1,b:2/3?service=m&sentinel_username=w&sentinel_password=q"
    client = redis_client(url)
    kept = client.connection_pool.connection_kwargs
    assert (kept["username"], kept["password"], kept["db"]) == ("u", "s/x", 3)
    assert client.connection_pool.service_name == "m"
    watching = [one.connection_pool.connection_kwargs for one in client.connection_pool.sentinel_manager.sentinels]
    assert [(one["host"], one["port"], one["username"], one["password"]) for one in watching] == [
        ("::1", 1, "w", "q"),
        ("b", 2, "w", "q"),
    ]
    tls = [client.connection_pool, *(one.connection_pool for one in client.connection_pool.sentinel_manager.sentinels)]
    assert all(issubclass(one.connection_class, redis.asyncio.SSLConnection) for one in tls)


async def until_replica_follows(replica: Valkey) -> None:
    """Wait until the replica has its master's data."""
    async with asyncio.timeout(60), contextlib.aclosing(redis_client(replica.url)) as client:
        while (await client.info("replication"))["master_link_status"] != "up":
            await CLOCK.sleep(0.05)


async def role_of(server: Valkey) -> str:
    """The present role of a server. It is empty while the server changes its role or the machine stalls."""
    async with contextlib.aclosing(redis_client(server.url)) as client:
        with contextlib.suppress(redis.ConnectionError, redis.TimeoutError):
            return str((await client.role())[0])
    return ""


async def until_sentinel_knows_replica(sentinel: Valkey) -> None:
    """Wait until the Sentinel could promote the replica."""
    async with asyncio.timeout(60), contextlib.aclosing(redis.asyncio.from_url(sentinel.url)) as client:
        while not await client.sentinel_slaves("groups"):
            await CLOCK.sleep(0.05)


async def join_nodes(nodes: list[Valkey], first_bus_port: int) -> None:
    """Make one cluster of these nodes, each with an equal part of the slots, and wait until it is complete."""
    part = SLOTS // len(nodes)
    async with asyncio.timeout(60):
        for n, node in enumerate(nodes):
            async with contextlib.aclosing(node_client(node)) as client:
                await client.execute_command("CLUSTER", "ADDSLOTSRANGE", n * part, (n + 1) * part - 1)
                await client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", n + 1)
                if n:
                    await client.execute_command("CLUSTER", "MEET", "127.0.0.1", nodes[0].port, first_bus_port)
        for node in nodes:
            async with contextlib.aclosing(node_client(node)) as client:
                while "cluster_state:ok" not in str(await client.execute_command("CLUSTER", "INFO")):
                    await CLOCK.sleep(0.05)


async def keys_of(node: Valkey) -> list[str]:
    """All keys of one node."""
    async with contextlib.aclosing(node_client(node)) as client:
        return [key async for key in client.scan_iter()]


def node_client(node: Valkey) -> Any:
    """A client of one node, which follows no redirection."""
    return redis.asyncio.from_url(node.url, decode_responses=True)
