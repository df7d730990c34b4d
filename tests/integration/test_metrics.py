"""The Prometheus metrics of a running cluster (E-246)."""

import asyncio
import contextlib
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from apache.rocketmq.v2.definition_pb2 import Code, Resource, SystemProperties
from apache.rocketmq.v2.definition_pb2 import Message as RocketmqMessage
from apache.rocketmq.v2.service_pb2 import SendMessageRequest
from apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from ortoo.client import (
    ConsumerSettings,
    Message,
    OrtooError,
    ProducerSettings,
    TransactionCheck,
    TransactionVerdict,
    connect,
)
from ortoo.common.grpc.channels import Channels
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.batch import encode
from ortoo.common.telemetry.metrics import Metrics
from ortoo.common.telemetry.text import chunks
from ortoo.enode.disk.disk import RealDisk
from ortoo.enode.log.results import TopicCopy
from ortoo.enode.log.settings import StoreSettings
from ortoo.enode.observe.backlog import Backlogs
from ortoo.enode.observe.metrics import register_backlogs, register_store
from ortoo.v1 import record_pb2
from ortoo.v1.producer_pb2 import PublishRequest
from ortoo.v1.producer_pb2_grpc import ProducerServiceStub
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster
from ortoo.verification.servers.ports import free_ports
from ortoo.verification.servers.scrape import families, get, scraped
from ortoo.verification.store.single_store import open_single_store
from tests.deploy.prometheus import PROMTOOL

ROLES = ("namesrv", "enode", "snode")


async def undecided(check: TransactionCheck) -> TransactionVerdict:
    """Never decide."""
    return TransactionVerdict.UNKNOWN


@pytest.fixture
async def addresses() -> dict[str, str]:
    """The metrics address of each role."""
    return {role: f"127.0.0.1:{port}" for role, port in zip(ROLES, free_ports(3), strict=True)}


@pytest.fixture
async def metered(tmp_path: Path, addresses: dict[str, str]) -> AsyncIterator[InProcessCluster]:
    """A cluster whose processes serve metrics."""
    settings = {role: {"metrics_address": address} for role, address in addresses.items()}
    async with open_cluster(tmp_path, settings=settings) as opened:
        yield opened


async def test_messages_are_counted_on_their_way(metered: InProcessCluster, addresses: dict[str, str]) -> None:
    """In and out by topic and group, bytes, pushes, sessions, requests by status: with RocketMQ's names (E-246)."""
    async with connect(metered.address) as mq:
        await mq.admin.create_topic("t")
        async with mq.producer("t") as producer:
            for sending in await producer.send_many([b"x" * 100] * 50):
                await sending
        async with mq.consumer("g", "t", ConsumerSettings(from_beginning=True)) as consumer:
            seen = 0
            async for batch in consumer.batches():
                seen += len(batch.bodies())
                if seen == 50:
                    break
            snode = await scraped(addresses["snode"])
            pair = (("consumer_group", "g"), ("topic", "t"))
            pushed = (pair[0], ("mode", "push"), pair[1])
            assert snode["rocketmq_messages_out_total"] == {pushed: 50}
            assert snode["rocketmq_throughput_out_total"][pushed] > 5000
            assert snode["rocketmq_consumer_connections"] == {(("consumer_group", "g"),): 1}
            assert snode["ortoo_slow_consumers_evicted_total"] == {(): 0}
            calls = snode["rocketmq_rpc_latency_count"]
            create = ("request_code", "ortoo.v1.AdminService/CreateTopic")
            assert [n for labels, n in calls.items() if create in labels and ("response_code", "OK") in labels] == [1]
    enode = await scraped(addresses["enode"])
    assert enode["rocketmq_messages_in_total"] == {(("topic", "t"),): 50}
    assert enode["rocketmq_consumer_lag_messages"] == {pair: 50}
    assert enode["rocketmq_consumer_lag_latency"][pair] > 0
    assert enode["ortoo_writable"] == {(): 1}
    namesrv = await scraped(addresses["namesrv"])
    assert namesrv["ortoo_process_alive"][("node_id", "enode-0"), ("node_type", "enode")] == 1
    assert namesrv["rocketmq_topic_number"] == {(): 1}


async def test_transactions_dead_letters_and_producers_are_counted(
    metered: InProcessCluster, addresses: dict[str, str]
) -> None:
    """With RocketMQ's names: open transactions, their outcomes, dead letters, producers."""
    topic = (("topic", "t"),)
    async with connect(metered.address) as mq:
        await mq.admin.create_topic("t")
        async with mq.transactional_producer("t", "shop", undecided) as producer, mq.producer("t") as sender:
            open_one, committed, rolled_back = [await producer.begin(Message(b"x"), Message(b"y")) for _ in range(3)]
            await committed.commit()
            await rolled_back.rollback()
            await sender.send(b"plain")
            assert (await scraped(addresses["snode"]))["rocketmq_producer_connections"] == {(): 1}
            enode = await scraped(addresses["enode"])
            for name in ("half_messages", "commit_messages_total", "rollback_messages_total"):
                assert enode[f"rocketmq_{name}"] == {topic: 2}
            (age,) = enode["ortoo_oldest_transaction_seconds"].items()
            assert (age[0], age[1] >= 0) == ((("producer_group", "shop"), ("topic", "t")), True)
            await open_one.rollback()
        async with mq.pop_consumer("g", "t") as consumer:
            async with asyncio.timeout(60):
                while not (popped := await consumer.pop()):
                    pass
            await popped[0].park(error="no use")
    enode = await scraped(addresses["enode"])
    assert enode["rocketmq_send_to_dlq_messages_total"] == {(("consumer_group", "g"), ("topic", "t")): 1}
    assert {"rocketmq_half_messages", "ortoo_oldest_transaction_seconds"}.isdisjoint(enode)


async def test_refusals_are_counted_by_status(metered: InProcessCluster, addresses: dict[str, str]) -> None:
    """A request that was refused has its gRPC status as label."""
    async with connect(metered.address) as mq:
        for _ in range(3):
            with pytest.raises(Exception, match="nowhere"):
                await mq.admin.delete_topic("nowhere")

    async def refused() -> float:
        calls = (await scraped(addresses["snode"]))["rocketmq_rpc_latency_count"]
        found = {dict(labels)["response_code"]: n for labels, n in calls.items() if "DeleteTopic" in str(labels)}
        return found.get("NOT_FOUND", 0)

    async with asyncio.timeout(60):
        while await refused() < 3:  # a caller gets its refusal a moment before that is counted
            await SystemClock().sleep(0.05)
    assert await refused() == 3


async def test_every_way_of_sending_and_receiving_is_counted(
    metered: InProcessCluster, addresses: dict[str, str]
) -> None:
    """Batches of streams, single calls of both protocols with their errors, pulls and pops."""
    send, publish = "ortoo.v1.ProducerService/Produce", "ortoo.v1.ProducerService/Publish"
    begin = "ortoo.v1.ProducerService/BeginTransaction"
    rocketmq = "apache.rocketmq.v2.MessagingService/SendMessage"
    async with connect(metered.address) as mq, Channels() as channels:
        await mq.admin.create_topic("t", queue_count=1)
        channel = channels.channel_to(metered.address)
        publishing, messaging = ProducerServiceStub(channel), MessagingServiceStub(channel)
        async with mq.producer("t") as producer:
            for _ in range(3):
                await producer.send(b"x")
        await publishing.Publish(PublishRequest(topic="t", messages=[record_pb2.Message(body=b"x")]))
        with pytest.raises(grpc.aio.AioRpcError):
            await publishing.Publish(PublishRequest(topic="nowhere", messages=[record_pb2.Message(body=b"x")]))
        async with mq.transactional_producer("t", "shop", undecided) as transactional:
            transaction = await transactional.begin(Message(b"x"))
            await transaction.rollback()
        message = RocketmqMessage(
            topic=Resource(name="t"), system_properties=SystemProperties(message_id="01" * 17), body=b"x"
        )
        metadata = (("x-mq-client-id", "c"), ("x-mq-language", "PYTHON"))
        sent = await messaging.SendMessage(SendMessageRequest(messages=[message]), metadata=metadata)
        assert sent.status.code == Code.OK
        message.topic.name = "nowhere"
        refused = await messaging.SendMessage(SendMessageRequest(messages=[message]), metadata=metadata)
        assert refused.status.code == Code.TOPIC_NOT_FOUND
        async with mq.pop_consumer("popping", "t") as consumer, asyncio.timeout(60):
            popped = 0
            while popped < 5:
                for one in await consumer.pop():
                    await one.ack()
                    popped += 1
            assert (await scraped(addresses["snode"]))["ortoo_pop_consumers"] == {(("consumer_group", "popping"),): 1}
        async with mq.producer("t", ProducerSettings(delivery_timeout_ms=5_000)) as producer:
            await producer.send(b"x")
            await metered.close("enode-0")
            with pytest.raises(OrtooError):
                await producer.send(b"x")
        snode = await scraped(addresses["snode"])
    sends = {tuple(value for _, value in labels): n for labels, n in snode["ortoo_send_latency_count"].items()}
    assert sends.pop((send, "UNAVAILABLE")) >= 1
    assert sends == {
        (send, "OK"): 4,
        (publish, "OK"): 1,
        (publish, "NOT_FOUND"): 1,
        (begin, "OK"): 1,
        (rocketmq, "OK"): 1,
        (rocketmq, "NOT_FOUND"): 1,
    }
    out = {tuple(value for _, value in labels): n for labels, n in snode["rocketmq_messages_out_total"].items()}
    assert out == {("popping", "pop", "t"): 5}


async def test_deleted_topic_has_no_series(metered: InProcessCluster, addresses: dict[str, str]) -> None:
    """After a topic is deleted no process has a series of it."""
    async with connect(metered.address) as mq:
        await mq.admin.create_topic("t")
        async with (
            mq.producer("t") as producer,
            mq.consumer("g", "t", ConsumerSettings(from_beginning=True)) as consumer,
        ):
            await producer.send(b"hello")
            async for message in consumer:
                message.ack()
                break
        assert 'topic="t"' in (await get(addresses["enode"], "/metrics")).body.decode()
        await mq.admin.delete_topic("t", at_once=True)
    for role in ROLES:
        async with asyncio.timeout(60):
            while 'topic="t"' in (await get(addresses[role], "/metrics")).body.decode():
                await SystemClock().sleep(0.05)


async def test_metrics_are_off_unless_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an address no port is opened for metrics (E-246)."""

    async def must_not_listen(*_: object, **__: object) -> None:
        pytest.fail("something listens")

    monkeypatch.setattr(asyncio, "start_server", must_not_listen)
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        assert await mq.admin.list_topics() == []


@pytest.mark.skipif(not PROMTOOL, reason="NOT CHECKED, no promtool; install Prometheus")
async def test_every_role_satisfies_prometheus(metered: InProcessCluster, addresses: dict[str, str]) -> None:
    """Prometheus' own tool accepts the output of every role."""
    del metered
    for role in ROLES:
        text = (await get(addresses[role], "/metrics")).body
        command = [PROMTOOL, "check", "metrics"]
        done = await asyncio.to_thread(subprocess.run, command, input=text, capture_output=True, check=False)
        complaints = [line for line in done.stderr.decode().splitlines() if "rocketmq_" not in line]
        assert complaints == [], role


async def test_ten_thousand_pairs_are_scraped_quickly(tmp_path: Path) -> None:
    """10,000 (topic, group) pairs take at most 300 ms and 5 MB."""
    settings = StoreSettings(segment_bytes=4 << 20, headroom_bytes=0, key_index=False)
    store = await open_single_store(
        tmp_path, settings=settings, disk=RealDisk(), clock=SystemClock(), randomness=Randomness()
    )
    async with contextlib.AsyncExitStack() as parts:
        parts.push_async_callback(store.close)
        topics = [TopicCopy(n + 1, f"topic-{n:03}", 1, n + 1) for n in range(100)]
        await store.put_topics(topics)
        batch = encode([b"x"] * 10, now_ms=1)
        await asyncio.gather(*(store.append(topic.topic_id, 0, batch) for topic in topics))
        await asyncio.gather(
            *(store.offsets.commit(t.topic_id, f"group-{n:03}", {0: n % 11}) for t in topics for n in range(100))
        )
        metrics = Metrics()
        clock = SystemClock()
        register_store(metrics, store)
        register_backlogs(metrics, Backlogs(store, clock), clock)
        durations, text = [], ""
        for _ in range(3):
            begun_s = time.process_time()  # in this process alone: the machine may be busy
            text = "".join(chunks(metrics))
            durations.append(time.process_time() - begun_s)
    assert len(families(text)["rocketmq_consumer_lag_messages"]) == 10_000
    assert len(text.encode()) <= 5_000_000
    assert min(durations) <= 0.3, durations


@pytest.mark.parametrize(("attempts", "topic"), [(1, "t"), (2, "%RETRY%pushes")])
async def test_a_dead_letter_of_a_group_that_commits_offsets_counts_where_it_failed_last(
    metered: InProcessCluster, addresses: dict[str, str], attempts: int, topic: str
) -> None:
    """Its second attempt and all later ones are copies in the retry topic of the group."""

    async def fail(message: object) -> None:
        raise ValueError("no such customer")

    name = "rocketmq_send_to_dlq_messages_total"
    async with connect(metered.address) as mq, Background("test") as background, asyncio.timeout(60):
        await mq.admin.create_topic("t")
        await mq.admin.groups.update("pushes", attempts_max=attempts, retry="list:10ms")
        async with mq.producer("t") as producer:
            await producer.send(b"x")
        async with mq.consumer("pushes", "t", ConsumerSettings(from_beginning=True)) as consumer:
            running = background.spawn("consumer", consumer.run(fail))
            while not (counted := (await scraped(addresses["enode"])).get(name, {})):
                await SystemClock().sleep(0.05)
            running.cancel()
    assert counted == {(("consumer_group", "pushes"), ("topic", topic)): 1}
