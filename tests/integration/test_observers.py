"""An observer sees the state of the whole cluster, and neither messages nor sessions, and changes nothing."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from ortoo.client import Client, ConsumerSettings, Forbidden, Queue
from ortoo.client.admin.doctor.facts import collect_facts
from ortoo.client.admin.doctor.findings import cluster_findings
from ortoo.v1 import namesrv_pb2
from ortoo.verification.servers.cluster import open_cluster
from tests.findings import of_cluster
from tests.integration.guarded_cluster import SECRET, as_user

RULES = """
[[user]]
access_key = "watch"
observer = true
[[user]]
access_key = "ann"
admin = true
[[user]]
access_key = "both"
admin = true
observer = true
"""


async def test_an_observer_sees_the_state_and_neither_reads_nor_changes(tmp_path: Path) -> None:
    """Lists, lags and the doctor's findings are those of an admin; a send, a read and each change are refused."""
    rules = tmp_path / "access.toml"
    rules.write_text(RULES)
    async with open_cluster(tmp_path, settings={"snode": {"access_file": str(rules)}}) as cluster, asyncio.timeout(60):
        for user in ("watch", "ann", "both"):
            about = namesrv_pb2.User(access_key=user, enabled=True)
            await cluster.name_service.PutUser(namesrv_pb2.PutUserRequest(user=about, secret_key=SECRET))
        async with as_user(cluster, "ann") as ann, as_user(cluster, "watch") as watch:
            await ann.admin.create_topic("orders", queue_count=1)
            async with ann.producer("orders") as producer:
                await producer.send(b"secret")
            async with ann.consumer("billing", "orders", ConsumerSettings(from_beginning=True)) as consumer:
                async for batch in consumer.batches():
                    batch.ack()
                    break
                (client,) = await ann.admin.groups.list_clients("billing")
                described = await watch.admin.groups.describe("billing")
                assert [one.topic for one in described.progress] == ["orders"]
                assert described.members == (await ann.admin.groups.describe("billing")).members != ()
                assert client.session_id != ""
                assert replace(client, session_id="") in await watch.admin.groups.list_clients("billing")
                async with as_user(cluster, "both") as both:
                    assert client in await both.admin.groups.list_clients("billing"), "an admin sees everything"
            assert await seen(watch) == await seen(ann)
            for refused in (
                watch.admin.create_topic("new"),
                watch.admin.delete_topic("orders"),
                watch.admin.operations.update_settings("snode", {"log_level": "debug"}),
                read(watch),
                send(watch),
            ):
                with pytest.raises(Forbidden):
                    await refused
            for refused_list in (watch.admin.users.list_permissions(), watch.admin.users.list_audit_entries()):
                with pytest.raises(Forbidden):
                    await refused_list
            listed = {one.access_key: one for one in (await ann.admin.users.list_permissions()).users}
            assert (listed["watch"].observer, listed["watch"].admin) == (True, False)
            assert (listed["ann"].observer, listed["ann"].admin) == (False, True)
            found = await findings(watch)
            assert found == await findings(ann)
            assert "checks incomplete" not in found


async def seen(mq: Client) -> tuple[object, ...]:
    """The names in several lists."""
    topics, groups = await mq.admin.list_topics(), await mq.admin.list_groups()
    lag = await mq.admin.describe_lag("billing", "orders")
    await mq.admin.groups.lag_history("billing")
    disks = [one.enode for one in await mq.admin.replicas.list_disks()]
    cluster = await mq.admin.describe_cluster()
    return (
        topics,
        groups,
        lag.lag_messages,
        [one.name for one in cluster.enodes],
        disks,
        await mq.admin.list_transactions(),
    )


async def findings(mq: Client) -> list[str]:
    """The doctor's findings by name."""
    facts = await collect_facts(mq.admin, "orders", "billing", asyncio.get_running_loop().time() + 30, 10)
    return [one.name for one in of_cluster(cluster_findings(facts))]


async def read(mq: Client) -> None:
    """Read the first message."""
    async for _ in mq.fetch(Queue("orders", "enode-0", 0), 0, 1):
        pass


async def send(mq: Client) -> None:
    """Send a message."""
    async with mq.producer("orders") as producer:
        await producer.send(b"x")
