"""A store from before replication becomes a set of three replicas while messages are sent to it."""

import asyncio
import contextlib
import json
import shutil
from pathlib import Path

from ortoo.client import Client, OrtooError, Queue, connect
from ortoo.enode.log.settings import StoreSettings
from ortoo.verification.servers.cluster import open_cluster
from ortoo.verification.servers.ports import free_ports
from tests.golden.test_older_stores import JOBS, ORDERS, STORES, bodies
from tests.integration.enode_replicas import leading, one_member

SAMPLE = STORES / "b272859"
STORE = StoreSettings(cluster="sample", segment_bytes=1 << 16, headroom_bytes=0, retention_age_ms=0)


async def _send(client: Client, stored: list[bytes]) -> None:
    """Send one message after another, each until it is acknowledged."""
    async with client.producer("load") as producer:
        while True:
            body = b"%d" % len(stored)
            await producer.send(body)
            stored.append(body)


async def _grows_to(client: Client, stored: list[bytes], count: int) -> None:
    while len(stored) < count:
        await client.admin.describe_cluster()


async def test_a_store_of_one_member_becomes_a_set_of_three_under_load(tmp_path: Path) -> None:
    """The messages of b272859 and those sent meanwhile are at the leader after the first replica was removed."""
    shutil.copytree(SAMPLE / "enode", tmp_path / "replica-1")
    chosen = {"cluster": "sample", "name": "enode-a", "store": STORE, "group_retention_ms": 0}
    addresses = [f"127.0.0.1:{port}" for port in free_ports(3)]
    stored: list[bytes] = []
    async with (
        open_cluster(tmp_path, enodes=0) as cluster,
        contextlib.AsyncExitStack() as stack,
        connect(cluster.address) as client,
        asyncio.timeout(120),
    ):
        members = [await stack.enter_async_context(one_member(cluster, 1, addresses[0], **chosen))]
        await leading(cluster, members)
        while True:
            with contextlib.suppress(OrtooError):  # the snode is not connected to the enode yet
                await client.admin.ensure_topic("load", queue_count=1)
                break
            await cluster.clock.sleep(0.05)
        sending = asyncio.ensure_future(_send(client, stored))  # noqa: TID251  # ended below
        for number in (2, 3):
            await _grows_to(client, stored, len(stored) + 50)
            member = one_member(cluster, number, addresses[number - 1], **chosen)
            members.append(await stack.enter_async_context(member))
            while True:
                with contextlib.suppress(OrtooError):  # no name server knows the empty disk yet
                    await client.admin.replicas.add("enode-a", number)
                    break
                await cluster.clock.sleep(0.05)
            while True:
                driver = members[0].process.driver
                if driver is not None and len(driver.replica.log.configuration.voters) == number:
                    break
                await cluster.clock.sleep(0.02)
        await _grows_to(client, stored, len(stored) + 50)
        await members[0].process.stop()
        await leading(cluster, members[1:])
        await _grows_to(client, stored, len(stored) + 50)
        sending.cancel()
        await asyncio.wait({sending})
        found = [body async for batch in client.fetch(Queue("load", "enode-a", 0)) for body in batch.bodies()]
        assert [one for one in stored if one not in set(found)] == []
        assert len(found) == len(set(found))
        expected = json.loads((SAMPLE / "expected.json").read_text())["enode"]
        while (parts := (await leading(cluster, members[1:])).process.services) is None:
            pass  # another one has become leader meanwhile
        for topic_id in (ORDERS, JOBS):
            rows = [tuple(row) for row in await bodies(parts.store, topic_id)]
            assert [row for row in expected["bodies"][str(topic_id)] if tuple(row) not in rows] == []
        assert [one.name for one in parts.store.topics()][:2] == [row[1] for row in expected["topics"]][:2]
