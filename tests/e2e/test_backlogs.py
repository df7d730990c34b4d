"""Operators see every unfinished message of a group: those that wait in retries, too."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ortoo.client import App, Client, ConsumerSettings, ReceivedMessage, blocking, connect
from ortoo.common.grpc.channels import Channels
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.keda import externalscaler_pb2
from ortoo.keda.externalscaler_pb2_grpc import ExternalScalerStub
from ortoo.verification.servers import command
from ortoo.verification.servers.ports import free_ports
from ortoo.verification.servers.processes import SMALL_STORE, ProcessCluster, process_cluster
from ortoo.verification.servers.scrape import scraped
from tests.official.client import official

COUNT = 5
DAY_MS = 86_400_000
PAIR = (("consumer_group", "g"), ("topic", "%RETRY%g"))


async def json_of(cluster: ProcessCluster, *words: str, check: bool = True) -> list[dict[str, Any]]:
    """The objects that a command prints; `check`: whether it must succeed."""
    outcome = await command.run(["ortoo", *words, "--json"], cluster.address)
    assert outcome.exit_code == 0 or not check, outcome.stderr
    return [json.loads(line) for line in outcome.stdout.splitlines()]


async def send(mq: Client, topic: str, count: int) -> None:
    """Send `count` messages and wait until they are stored."""
    async with mq.producer(topic) as producer:
        await (await producer.send_many([b"message %d" % number for number in range(count)]))


@asynccontextmanager
async def failing_consumer(mq: Client, seen: list[str]) -> AsyncIterator[None]:
    """A push consumer of group g whose handler fails at every message."""

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message.message_id or "")
        raise RuntimeError("the shop is closed")

    async with (
        mq.consumer(
            "g", "t", ConsumerSettings(from_beginning=True, ack_interval_ms=10, client_id="worker-1")
        ) as consumer,
        Background("consumer") as background,
    ):
        background.spawn("consumer", consumer.run(handle))
        yield


async def test_messages_that_wait_in_retries_are_lag_and_are_explained(tmp_path: Path) -> None:
    """A push consumer that fails at every message: lag, group, doctor, explain, metrics and KEDA show all of them."""
    metrics = f"127.0.0.1:{free_ports(1)[0]}"
    clock = SystemClock()
    environ = {"enode": {**SMALL_STORE, "METRICS_ADDRESS": metrics}}
    async with (
        asyncio.timeout(280),
        process_cluster(tmp_path, environ=environ) as cluster,
        connect(cluster.address) as mq,
    ):
        await mq.admin.create_topic("t", queue_count=1)
        await mq.admin.groups.update("g", retry="list:1h")
        await send(mq, "t", COUNT)
        async with failing_consumer(mq, []):
            while (await mq.admin.describe_lag("g", "t")).queues[0].committed_offset < COUNT:
                await clock.sleep(0.05)
            lag = await mq.admin.describe_lag("g", "t")
            assert lag.lag_messages == lag.by_state.retrying == COUNT
            assert lag.by_state.next_retry_at_ms > clock.now_ms() + 3_000_000
            assert (lag.by_state.consumer, lag.by_state.attempts) == ("worker-1", 1)
            assert "the shop is closed" in lag.by_state.error

            described = await mq.admin.groups.describe("g")
            assert described.retries.retrying == COUNT
            shown = (await command.run(["ortoo", "group", "describe", "g"], cluster.address)).stdout
            assert f"{COUNT} messages wait in retries" in shown
            assert "the shop is closed" in shown

            reasons = {one.name: one.observed for one in (await explained(mq)).reasons}
            assert f"{COUNT} messages wait in retries" in reasons["retrying"]
            assert "the shop is closed" in reasons["retrying"]
            assert "no backlog" not in reasons

            found = {one["name"]: one["observed"] for one in await json_of(cluster, "doctor", "--patience", "10")}
            assert f"{COUNT} messages wait in retries of group g" in found["failing handler"]
            assert "the shop is closed" in found["failing handler"]

            series = await scraped(metrics)
            assert series["rocketmq_consumer_lag_messages"][PAIR] == COUNT
            by_state = series["ortoo_group_messages"]
            assert by_state[*PAIR[:1], ("state", "retrying"), *PAIR[1:]] == COUNT

            async with Channels() as channels:
                scaler = ExternalScalerStub(channels.channel_to(cluster.address))
                about = externalscaler_pb2.ScaledObjectRef(scalerMetadata={"group": "g", "topic": "t"})
                assert (await scaler.IsActive(about)).result is True

        # Without a consumer the retries wait for one: that is said, too.
        reasons = {one.name: one.observed for one in (await explained(mq)).reasons}
        assert f"{COUNT} messages wait" in reasons["no consumers"]


async def explained(mq: Client, group: str = "g") -> Any:
    """Why a group does not consume topic t."""
    return await mq.admin.operations.explain_consumption(group, "t")


async def restarted(cluster: ProcessCluster, **environ: object) -> None:
    """Restart the enode with other settings."""
    await cluster.enode.stop()
    cluster.enode.environ.update(environ)
    await cluster.enode.start()
    await cluster.wait_until_alive()


async def test_messages_that_retention_takes_are_counted_and_announced_before(tmp_path: Path) -> None:
    """A push group and a pop group that do not read in time: a warning before the loss, its number afterwards."""
    metrics = f"127.0.0.1:{free_ports(1)[0]}"
    store = {**SMALL_STORE, "STORE_RETENTION_INTERVAL_MS": DAY_MS, "STORE_RETENTION_AGE_MS": 5_000}
    clock = SystemClock()
    async with (
        asyncio.timeout(280),
        process_cluster(tmp_path, environ={"enode": {**store, "METRICS_ADDRESS": metrics}}) as cluster,
        connect(cluster.address) as mq,
    ):
        await mq.admin.create_topic("t", queue_count=1)
        await send(mq, "t", 1)
        async with mq.consumer("pushes", "t", ConsumerSettings(from_beginning=True)) as consumer:
            async for batch in consumer.batches():
                batch.ack()
                break
        async with mq.pop_consumer("pops", "t") as popping:
            (message,) = await popping.pop(wait_ms=10_000)
            await message.ack()
        await send(mq, "t", COUNT)

        def of_groups(series: dict[Any, float]) -> dict[str, float]:
            return {dict(labels)["consumer_group"]: value for labels, value in series.items()}

        soon = set[str]()
        while "retention nearly used up" not in soon:
            soon = {one["name"] for one in await json_of(cluster, "doctor", "--patience", "10", check=False)}
        used = of_groups((await scraped(metrics))["ortoo_group_retention_used_ratio"])
        assert min(used["pushes"], used["pops"]) > 0.75

        # The enode has not looked for old segments yet, so that the warning stayed until the commands had read it.
        await restarted(cluster, STORE_RETENTION_INTERVAL_MS=100)

        lost: dict[str, float] = {}
        while lost != {"pushes": COUNT, "pops": COUNT}:
            await clock.sleep(0.2)
            lost = of_groups((await scraped(metrics)).get("ortoo_group_lost_messages_total", {}))
        for group in ("pushes", "pops"):
            reasons = {one.name: one.observed for one in (await explained(mq, group)).reasons}
            assert f"retention deleted {COUNT} messages" in reasons["lost to retention"]
            for words in (["lag", group, "t"], ["group", "describe", group]):
                shown = (await command.run(["ortoo", *words], cluster.address)).stdout
                assert f"retention deleted {COUNT} messages before the group finished them" in shown
        found = [one["observed"] for one in await json_of(cluster, "doctor", "--patience", "10", check=False)]
        for group in ("pushes", "pops"):
            text = f"retention deleted {COUNT} messages of t before group {group} finished them, the last ones "
            assert any(one.startswith(text) and one.endswith(" min ago") for one in found)

        await restarted(cluster, STORE_RETENTION_AGE_MS=3_600_000)
        # No group has passed the loss yet, so the next process counts it too.
        assert of_groups((await scraped(metrics))["ortoo_group_lost_messages_total"]) == lost


async def test_consumers_that_pop_are_members_and_a_group_without_one_is_a_finding(tmp_path: Path) -> None:
    """Native, blocking, App and RocketMQ's simple consumers are listed; they go soon after their last pop."""
    clock = SystemClock()
    async with (
        asyncio.timeout(280),
        process_cluster(tmp_path) as cluster,
        connect(cluster.address, client_id="native") as mq,
        connect(cluster.address, client_id="app") as app_mq,
        official("python", cluster.address) as rocketmq,
    ):
        await mq.admin.create_topic("t", queue_count=1)
        program = App("g")

        @program.consumer("t")
        async def ignore(body: bytes) -> None:
            pass

        await rocketmq("simple", name="simple", group="g", subscriptions={"t": {"expression": "*"}})
        with blocking.connect(cluster.address, client_id="blocking") as blocked, blocked.pop_consumer("g", "t") as old:
            async with mq.pop_consumer("g", "t") as consumer, program.running(app_mq):
                await asyncio.to_thread(old.pop, wait_ms=1)
                await consumer.pop(wait_ms=1)
                shown = await listed(mq)
                while len(shown) < 4:
                    await clock.sleep(0.1)
                    shown = await listed(mq)
                # They are listed for half a minute after their last pop.
                described = (await command.run(["ortoo", "group", "describe", "g"], cluster.address)).stdout
                clients = (await command.run(["ortoo", "clients", "--group", "g"], cluster.address)).stdout
        assert {"native", "blocking", "app"} < shown.keys()
        assert set(shown.values()) == {(("t",), True)}
        assert described.count(" pop ") == 4
        assert all(name in clients for name in shown)
        assert await mq.admin.groups.list_topic_groups("t") == ["g"]

        await rocketmq("shutdown", name="simple")
        await send(mq, "t", COUNT)
        found: dict[str, str] = {}
        words = ("doctor", "--patience", "10", "--group", "g", "--topic", "t")
        while "no consumers" not in found:
            await clock.sleep(0.5)
            found = {one["name"]: one["observed"] for one in await json_of(cluster, *words, check=False)}
        assert found["no consumers"] == f"group g is {COUNT} messages behind, and it has no consumer"
        reasons = {one.name: one.observed for one in (await explained(mq)).reasons}
        assert reasons["no consumers"] == f"group g has no consumer, and {COUNT} messages wait"


async def listed(mq: Client) -> dict[str, tuple[tuple[str, ...], bool]]:
    """Client id of each member of group g to its topics and whether it pops."""
    return {one.client_id: (one.topics, one.pops) for one in (await mq.admin.groups.describe("g")).members}
