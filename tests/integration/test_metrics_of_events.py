"""Metrics that operators read are those of what has happened: each event is made in a cluster, and its metric read."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from cryptography import x509

from ortoo.client import Client, ConsumerSettings, PoppedMessage, connect
from ortoo.common.grpc.tls import make_self_signed_certificate
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.v1 import flow_control_pb2, namesrv_pb2, producer_pb2, record_pb2
from ortoo.v1.admin_pb2_grpc import AdminServiceStub
from ortoo.v1.producer_pb2_grpc import ProducerServiceStub
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster
from ortoo.verification.servers.ports import free_address
from ortoo.verification.servers.scrape import Series, scraped
from tests.integration.enode_replicas import leading, one_member
from tests.integration.test_damage import COUNT, LOST, damage

ROLES = ("namesrv", "enode", "snode")


@dataclass(slots=True)
class Metered:
    """A cluster whose processes serve metrics, and a client of it."""

    cluster: InProcessCluster
    mq: Client
    addresses: dict[str, str]

    async def series(self, role: str, name: str) -> Series:
        """The series of a metric; none if it has none."""
        return (await scraped(self.addresses[role])).get(name, {})

    async def value(self, role: str, name: str) -> float:
        """The sum of the series of a metric, which has to exist."""
        found = await self.series(role, name)
        assert found, name
        return sum(found.values())

    async def until(self, role: str, name: str, reached: Callable[[float], bool]) -> None:
        """Wait until the sum of the series of a metric fits."""
        async with asyncio.timeout(60):
            while not reached(sum((await self.series(role, name)).values())):
                await SystemClock().sleep(0.05)


@pytest.fixture
async def metered(tmp_path: Path) -> AsyncIterator[Metered]:
    """One process of each role, with a topic `t` of one queue and a trace topic."""
    addresses = {role: free_address() for role in ROLES}
    settings = {role: {"metrics_address": address} for role, address in addresses.items()}
    settings["snode"]["trace_topic"] = "traces"
    async with (
        asyncio.timeout(120),
        open_cluster(tmp_path, settings=settings) as cluster,
        connect(cluster.address) as mq,
    ):
        await cluster.create_topic("t", queues=1)
        yield Metered(cluster, mq, addresses)


async def test_a_name_server_counts_watchers_groups_and_changes(metered: Metered) -> None:
    """The snode and the enode watch the routes, and each further reader of them is one more watcher."""
    name = "ortoo_route_watchers"
    await metered.until("namesrv", name, lambda count: count >= 2)
    request = namesrv_pb2.WatchRoutesRequest()
    watches = [metered.cluster.name_service.WatchRoutes(request) for _ in range(10)]
    for watch in watches:
        await watch.read()
    await metered.until("namesrv", name, lambda count: count >= 12)
    for watch in watches:
        watch.cancel()
    await metered.until("namesrv", name, lambda count: 2 <= count < 10)
    before = await metered.series("namesrv", "ortoo_changes_total")
    await metered.mq.admin.create_topic("u")
    after = await metered.series("namesrv", "ortoo_changes_total")
    stored = (("outcome", "stored"),)
    assert after[stored] == before[stored] + 1
    async with metered.mq.consumer("g", "t"):
        await metered.until("namesrv", "rocketmq_consumer_group_number", lambda count: count == 1)


async def test_an_enode_measures_its_log_and_its_deduplication_ids(metered: Metered) -> None:
    """Bytes grow by those of the messages; an id that is sent twice is remembered once."""
    before = await metered.value("enode", "rocketmq_storage_size")
    async with metered.mq.producer("t") as producer:
        await producer.send(bytes(100_000))
        for dedup_id in ("a", "b", "b"):
            await producer.send_once(b"x", dedup_id)
    assert await metered.value("enode", "rocketmq_storage_size") - before > 0
    assert (await metered.series("enode", "rocketmq_throughput_in_total"))[(("topic", "t"),)] > 0
    assert await metered.value("enode", "ortoo_dedup_ids") == 2
    assert await metered.value("enode", "ortoo_flushes_total") > 0
    await metered.until("enode", "rocketmq_storage_flush_behind_bytes", lambda count: count == 0)
    assert await metered.value("enode", "ortoo_index_bytes") < await metered.value("enode", "ortoo_index_bytes_max")


async def test_a_snode_counts_sessions_trace_records_and_confirmed_replies(metered: Metered) -> None:
    """A batch is one trace record; a requester has received its reply."""

    async def reply(message: PoppedMessage) -> None:
        await message.reply(b"yes")

    async with metered.mq.producer("t") as producer:
        await producer.send(b"x")
        await metered.until("snode", "ortoo_trace_records_total", lambda count: count == 1)
        assert await metered.value("snode", "ortoo_trace_records_dropped_total") == 0
        assert await metered.value("snode", "ortoo_replies_delivered_total") == 0
        async with metered.mq.pop_consumer("g", "t") as consumer, Background("replier") as background:
            background.spawn("run", consumer.run(reply))
            assert (await producer.request(b"?", timeout_s=30)).body == b"yes"
            await metered.until("snode", "ortoo_replies_delivered_total", lambda count: count == 1)
    async with metered.mq.consumer("pushed", "t", ConsumerSettings(from_beginning=True)) as pushed:
        async for message in pushed:
            assert message.body == b"x"
            break
        assert await metered.value("snode", "ortoo_client_sessions") >= 1
        inflight = await metered.series("snode", "rocketmq_consumer_inflight_messages")
        assert inflight.keys() <= {(("consumer_group", "pushed"), ("topic", "t"))}
        open_streams = await metered.series("snode", "ortoo_open_streams")
        assert open_streams[(("method", "ortoo.v1.ConsumerService/Push"),)] == 1


async def test_calls_above_a_limit_are_counted_by_its_rule(metered: Metered) -> None:
    """With the unit, the method and the topic of the rule."""
    rule = flow_control_pb2.FlowRule(method="ProducerService/Publish", topic="t", per_second=1)
    admin = AdminServiceStub(metered.cluster.channels.channel_to(metered.cluster.address))
    await admin.UpdateFlowControl(flow_control_pb2.UpdateFlowControlRequest(rules=[rule]))
    labels = (("method", "ProducerService/Publish"), ("topic", "t"), ("unit", "requests"))
    assert await metered.series("snode", "ortoo_flow_control_refused_total") == {labels: 0}
    producing = ProducerServiceStub(metered.cluster.channels.channel_to(metered.cluster.address))
    request = producer_pb2.PublishRequest(topic="t", messages=[record_pb2.Message(body=b"x")])
    before = await metered.series("snode", "ortoo_failures_total")
    with pytest.raises(grpc.aio.AioRpcError, match="RESOURCE_EXHAUSTED"):
        while True:
            await producing.Publish(request)
    assert await metered.series("snode", "ortoo_flow_control_refused_total") == {labels: 1}
    failures = await metered.series("snode", "ortoo_failures_total")
    overloaded = (("kind", "OVERLOADED"),)
    assert failures[overloaded] == before[overloaded] + 1


async def test_each_process_measures_itself(metered: Metered) -> None:
    """Its identity, its clock, its cores and memory, its event loop, and the calls that it serves."""
    for role in ROLES:
        found = await scraped(metered.addresses[role])
        [(labels, one)] = found["ortoo_build_info"].items()
        assert (one, dict(labels)["node_type"]) == (1, role)
        assert found["ortoo_ready"] == {(): 1}
        assert abs(found["ortoo_clock_seconds"][()] - SystemClock().now_ms() / 1000) < 60
        assert found["ortoo_cores"][()] >= 1
        assert found["process_resident_memory_bytes"][()] > 1 << 20
        assert found["process_cpu_seconds_total"][()] > 0
        assert 0 < found["process_open_fds"][()] < found["process_max_fds"][()]
        assert found["ortoo_unary_calls_in_flight"][()] >= 0
        assert found["ortoo_log_lines_dropped_total"] == {(): 0}
        assert "ortoo_connections_ended_total" not in found or sum(found["ortoo_connections_ended_total"].values()) == 0
    await metered.until("snode", "ortoo_event_loop_delay_seconds_count", lambda count: count > 0)


async def test_the_validity_of_a_certificate_is_that_of_its_file(tmp_path: Path) -> None:
    """In seconds since 1970, with the setting that names the file."""
    certificate, key = make_self_signed_certificate(("localhost", "127.0.0.1"))
    (tmp_path / "certificate").write_bytes(certificate)
    (tmp_path / "key").write_bytes(key)
    address = free_address()
    tls = {"tls_certificate_file": str(tmp_path / "certificate"), "tls_key_file": str(tmp_path / "key")}
    settings = {"snode": {"metrics_address": address, "tls_listen_address": free_address(), **tls}}
    async with asyncio.timeout(120), open_cluster(tmp_path / "data", settings=settings):
        found = await scraped(address)
    known = x509.load_pem_x509_certificate(certificate)
    setting = (("setting", "tls_certificate_file"),)
    end, begin = known.not_valid_after_utc.timestamp(), known.not_valid_before_utc.timestamp()
    assert found["ortoo_certificate_expiry_timestamp_seconds"][setting] == end
    assert found["ortoo_certificate_begin_timestamp_seconds"][setting] == begin


async def test_messages_whose_copy_is_damaged_are_counted_by_group(metered: Metered, tmp_path: Path) -> None:
    """Once for each group that skips them."""
    async with metered.mq.producer("t") as producer:
        for number in range(COUNT):
            await producer.send(b"body number %d" % number)
    await metered.cluster.close("enode-0")
    damage(tmp_path, b"body number %d" % LOST)
    await metered.cluster.open_enode("enode-0")
    async with metered.mq.consumer("g", "t", ConsumerSettings(from_beginning=True)) as consumer:
        async for message in consumer:
            message.ack()
            if message.offset == COUNT - 1:
                break
    lost = await metered.series("snode", "ortoo_messages_lost_total")
    assert lost == {(("consumer_group", "g"), ("topic", "t")): 1}
    assert await metered.value("enode", "ortoo_damaged_places") == 1


async def shipped(metrics: Sequence[str]) -> tuple[float, float]:
    """The shipments and the shipped bytes of all replicas, whichever of them leads."""
    found = [await scraped(address) for address in metrics]
    names = "ortoo_shipments_total", "ortoo_shipped_bytes_total"
    shipments, shipped_bytes = (sum(one[name][()] for one in found) for name in names)
    return shipments, shipped_bytes


async def test_a_leader_counts_what_it_ships_and_followers_are_in_sync(tmp_path: Path) -> None:
    """A follower lacks no bytes of the committed log, and nothing was truncated or repaired."""
    known = free_address()
    inner, metrics = [free_address() for _ in range(3)], [free_address() for _ in range(3)]
    async with (
        asyncio.timeout(120),
        open_cluster(tmp_path, enodes=0, settings={"namesrv": {"metrics_address": known}}) as cluster,
        contextlib.AsyncExitStack() as stack,
        connect(cluster.address) as mq,
    ):
        members = []
        for number in range(3):
            chosen = {"metrics_address": metrics[number], "replicas": 3, "replica_addresses": ";".join(inner)}
            members.append(await stack.enter_async_context(one_member(cluster, number + 1, inner[number], **chosen)))
        await leading(cluster, members)
        before = await shipped(metrics)
        await mq.admin.ensure_topic("t")
        async with mq.producer("t") as producer:
            await producer.send(bytes(50_000))
        after = await shipped(metrics)
        assert after[0] > before[0]
        assert after[1] > before[1]
        for address in metrics:
            while (found := await scraped(address))["ortoo_replica_in_sync"] != {(): 1}:
                await SystemClock().sleep(0.05)
            assert found["ortoo_cut_messages_total"] == found["ortoo_repaired_frames_total"] == {(): 0}
            assert found["ortoo_replica_lag_bytes"][()] >= 0
            assert found["ortoo_state_differs"] == {(): 0}
        enode = (("enode", "enode-0"),)
        # If the machine stalls, all voters report for a moment while none of them leads.
        healthy = {"ortoo_enode_under_replicated": {enode: 0}, "ortoo_enode_leaderless": {enode: 0}}
        while (found := await scraped(known)) | healthy != found:
            await SystemClock().sleep(0.05)
        # Each take-over has a new epoch. There is one if the machine stalls.
        assert 0 <= found["ortoo_enode_take_overs_total"][enode] < found["ortoo_enode_epoch"][enode]
