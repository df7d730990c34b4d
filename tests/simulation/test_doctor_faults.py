"""The findings of `ortoo doctor` in a simulated cluster with one injected fault, and in a healthy one under load."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace

import pytest

from ortoo.cli.doctor import run as doctor
from ortoo.client import (
    Client,
    ConsumerSettings,
    Message,
    OrtooError,
    PopSettings,
    ProducerSettings,
    ReceivedMessage,
    TransactionVerdict,
)
from ortoo.client.admin.address_check import AddressCheck, SpokenProtocol
from ortoo.client.admin.doctor import facts
from ortoo.client.admin.doctor.findings import DoctorFinding, cluster_findings
from ortoo.client.core.handlers import nack_messages
from ortoo.enode.log.settings import StoreSettings
from ortoo.testing.simulation.cluster.cluster import ClusterShape
from ortoo.testing.simulation.cluster.roles import SEGMENT_BYTES, STORE
from ortoo.v1 import namesrv_pb2, topic_pb2
from ortoo.v1.namesrv_pb2_grpc import NameServiceStub
from tests.simulation.scripted_cluster import ScriptedCluster, play

WITHIN_S = 5.0
BODY = b"m" * 2_000
RETENTION_MS = 100_000


@dataclass
class Patient:
    """A cluster with topic `t` of one queue an enode and group `g`, and a client that inspects it."""

    stage: ScriptedCluster
    client: Client
    topic: str = "t"
    group: str = ""
    undo: Callable[[], object] = lambda: None
    """Ends a fault of the network."""

    async def findings(self) -> list[DoctorFinding]:
        """The doctor's findings behind the snode, by virtual time."""
        deadline_s = asyncio.get_running_loop().time() + doctor.TIMEOUT_S
        found = await facts.collect_facts(self.client.admin, self.topic, self.group, deadline_s)
        return cluster_findings(found)

    async def sends(self, count: int, body: bytes = BODY) -> None:
        """Send some messages, accepted or not."""
        with contextlib.suppress(OrtooError):
            async with self.client.producer("t", ProducerSettings(delivery_timeout_ms=2_000)) as producer:
                for _ in range(count):
                    producer.enqueue_nowait(body)
                    await self.stage.clock.sleep(0.01)

    async def push(self, handler: Callable[[ReceivedMessage], Awaitable[None]], seconds: float) -> None:
        """Run a push consumer of the group."""
        async with self.client.consumer("g", "t", ConsumerSettings(from_beginning=True)) as consumer:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await consumer.run(handler)

    async def pop(self, *, error: str = "", attempts_max: int = 16) -> None:
        """Pop messages and nack them."""
        settings = PopSettings(invisible_ms=60_000, attempts_max=attempts_max)
        async with self.client.pop_consumer("g", "t", "*", settings) as consumer:
            for one in await consumer.pop(wait_ms=1_000):
                await one.nack(0, error=error)


Fault = Callable[[Patient], Awaitable[None]]


async def full_disk(it: Patient) -> None:
    platter = it.stage.cluster.enodes[0].disk.current.platter
    platter.capacity_bytes = platter.image.used_bytes()
    await it.sends(200)


async def failed_disk(it: Patient) -> None:
    it.stage.cluster.enodes[0].disk.current.fail_sync()
    await it.sends(4)


async def damaged_log(it: Patient) -> None:
    enode = it.stage.cluster.enodes[0]
    await it.sends(200)
    await enode.stop()
    first = next(path for path in enode.disk.files() if path.suffix == ".seg")
    number = enode.disk._image.folders[first.parent].current[first.name]
    content = enode.disk._image.contents[number]
    for data in (content.durable, content.current):
        data[SEGMENT_BYTES // 2 : SEGMENT_BYTES // 2 + 8] = b"\xff" * 8
    enode.start()
    await enode.ready.wait()
    for _ in range(5):
        with contextlib.suppress(OrtooError):
            async for _ in it.client.admin.tail("t", from_beginning=True, follow=False):
                pass
        await it.stage.clock.sleep(1)


async def hanging_disk(it: Patient) -> None:
    latency = it.stage.cluster.enodes[0].disk.latency
    latency.least_s, latency.usual_s, latency.seldom_s = 20.0, 20.0, 20.0
    await it.sends(4)
    await it.stage.clock.sleep(2)


async def slow_disk(it: Patient) -> None:
    it.stage.cluster.enodes[0].disk.latency.least_s = 0.2
    it.stage.cluster.enodes[0].disk.latency.usual_s = 0.3
    await it.sends(20)


async def clock_set_back(it: Patient) -> None:
    it.stage.cluster.enodes[0].clock.jump(-60_000)


async def clock_corrected(it: Patient) -> None:
    it.stage.cluster.enodes[0].clock.jump(60_000)
    await it.sends(4)
    it.stage.cluster.enodes[0].clock.jump(-60_000)


async def clock_ahead(it: Patient) -> None:
    it.stage.cluster.enodes[1].clock.jump(60_000)


async def name_server_gone(it: Patient) -> None:
    it.stage.cluster.name_servers[1].kill()


async def no_name_server(it: Patient) -> None:
    for one in it.stage.cluster.name_servers:
        one.kill()


async def no_database(it: Patient) -> None:
    it.stage.world.database.away = True
    await it.stage.clock.sleep(2)


async def second_enode(it: Patient) -> None:
    known = it.stage.cluster.enodes[0]
    double = topic_pb2.Enode(name=known.name, address="10.0.9.9:1", store_id="another")
    with pytest.raises(Exception, match="is alive at"):
        await stub(it).RegisterEnode(namesrv_pb2.RegisterEnodeRequest(enode=double))


async def lonely_snode(it: Patient) -> None:
    snode = topic_pb2.Snode(name="lonely", address="10.0.9.9:1")
    with pytest.raises(Exception, match="groups would be split"):
        await stub(it).RegisterSnode(namesrv_pb2.RegisterSnodeRequest(snode=snode, incarnation="i"))


def stub(it: Patient) -> NameServiceStub:
    """The first name server."""
    return NameServiceStub(it.client.admin._connection._channels.channel_to(it.stage.cluster.name_servers[0].address))


async def silent_redis(it: Patient) -> None:
    it.stage.world.redis.stop_answering()
    await it.stage.clock.sleep(8)


async def enode_gone(it: Patient) -> None:
    it.stage.cluster.enodes[1].kill()
    await it.stage.clock.sleep(20)


async def no_enode_of_topic(it: Patient) -> None:
    await it.client.admin.create_topic("lonely", queue_count=1)
    it.topic = "lonely"
    for enode in it.stage.cluster.enodes:
        enode.kill()
    await it.stage.clock.sleep(20)


async def frozen_enode(it: Patient) -> None:
    it.stage.cluster.enodes[1].pause()


async def frozen_snode(it: Patient) -> None:
    it.stage.cluster.snodes[1].pause()


async def dead_letters(it: Patient) -> None:
    await it.sends(3)
    for _ in range(8):
        await it.pop(error="it fails", attempts_max=1)


async def poison_handler(it: Patient) -> None:
    await it.sends(2)
    for _ in range(4):
        await it.pop(error="no such customer")


async def stalled_transaction(it: Patient) -> None:
    async def undecided(message: object) -> TransactionVerdict:
        return TransactionVerdict.UNKNOWN

    async with it.client.transactional_producer("t", "banks", undecided) as producer:
        await producer.begin(Message(b"half"), check_after_ms=100)
        await it.stage.clock.sleep(60)


async def unchecked_transaction(it: Patient) -> None:
    async def never(message: object) -> TransactionVerdict:
        raise AssertionError("no producer is left to answer")

    async with it.client.transactional_producer("t", "banks", never) as producer:
        await producer.begin(Message(b"half"), check_after_ms=100)
    await it.stage.clock.sleep(601)


async def deleted_topic(it: Patient) -> None:
    await it.client.admin.ensure_topic("old")
    await it.client.admin.delete_topic("old")


async def misspelt_topic(it: Patient) -> None:
    await it.client.admin.ensure_topic("orders")
    it.topic = "order"


async def read_only_topic(it: Patient) -> None:
    await it.client.admin.update_topic("t", permission="read_only")


async def misspelt_group(it: Patient) -> None:
    await it.client.admin.put_group("billing")
    it.group = "biling"


async def switched_off(it: Patient) -> None:
    await it.client.admin.put_group("g", consume_enabled=False)
    it.group = "g"


async def nobody_consumes(it: Patient) -> None:
    await it.client.admin.put_group("g")
    await it.sends(3)
    it.group = "g"


async def lost_directory(it: Patient) -> None:
    backup = it.stage.world.database.backup()
    await it.client.admin.create_topic("younger")
    await it.stage.clock.sleep(1)
    for one in it.stage.cluster.name_servers:
        await one.stop()
    it.stage.world.database.restore(backup)
    for one in it.stage.cluster.name_servers:
        one.start()
        await one.ready.wait()
    await it.stage.clock.sleep(12)


async def narrow_index(it: Patient) -> None:
    for _ in range(8):
        await it.sends(40)


async def narrow_disk(it: Patient) -> None:
    await it.sends(40)
    platter = it.stage.cluster.enodes[0].disk.current.platter
    platter.capacity_bytes = platter.image.used_bytes() * 100 // 95
    await it.stage.clock.sleep(10)


async def failing_push_handler(it: Patient) -> None:
    """As `Consumer.run` when a handler raises, without its log line, which would count as a defect of the script."""
    connection = it.client.admin._connection

    async def fail(received: ReceivedMessage) -> None:
        error = ValueError("no such customer")
        await nack_messages(connection, "g", [received], error, 0, client_id="worker")

    await it.sends(2)
    await it.push(fail, 40)


async def popped_by_nobody(it: Patient) -> None:
    await it.sends(1)
    async with it.client.pop_consumer("g", "t", "*", PopSettings()) as consumer:
        for one in await consumer.pop(wait_ms=1_000):
            await one.ack()
    await it.sends(3)
    await it.stage.clock.sleep(60)  # until the list of consumers has forgotten it
    it.group = "g"


async def slow_group(it: Patient) -> None:
    await it.sends(4)
    async with it.client.pop_consumer("g", "t", "*", PopSettings()) as consumer:
        [one, *_] = await consumer.pop(wait_ms=1_000)
        await one.ack()
    await it.stage.clock.sleep(RETENTION_MS / 1000 * 0.8)


async def cut_off_snode(it: Patient) -> None:
    it.undo = it.stage.world.network.partition("snode-1", "enode-1", both_ways=True)
    await it.stage.clock.sleep(10)


FAULTS: dict[str, tuple[Fault, str, str]] = {
    "disk full": (full_disk, "disk full", "store.retention_bytes"),
    "fdatasync failed": (failed_disk, "disk failed", "dmesg"),
    "damaged log": (damaged_log, "damaged log", "ortoo-enode inspect DIR --verify"),
    "disk hangs": (hanging_disk, "disk hangs", "iostat"),
    "slow disk": (slow_disk, "slow disk", "iostat"),
    "clock set back": (clock_set_back, "clock set back", "If it is right now, wait"),
    "clock corrected": (clock_corrected, "clock set back", "If it is right now, wait"),
    "clock ahead": (clock_ahead, "clock differs", "chronyc"),
    "one name server away": (name_server_gone, "name server unavailable", "namesrv_address"),
    "no name server": (no_name_server, "name server unavailable", "start it"),
    "database unavailable": (no_database, "database unavailable", "PostgreSQL"),
    "second enode of a name": (second_enode, "registration rejected", "another name"),
    "snode that shares nothing": (lonely_snode, "registration rejected", "the same redis_url"),
    "Redis silent": (silent_redis, "membership store unavailable", "start Redis"),
    "enode unavailable": (enode_gone, "enode unavailable", "with its volume"),
    "no enode of the topic": (no_enode_of_topic, "topic unreachable", "start one of these enodes"),
    "enode frozen": (frozen_enode, "enode unresponsive", "restart it"),
    "snode frozen": (frozen_snode, "snode unresponsive", "restart it"),
    "dead letters": (dead_letters, "dead letters", "ortoo dlq list g"),
    "poison handler": (poison_handler, "failing handler", "ortoo explain g t"),
    "stalled transaction": (stalled_transaction, "stalled transactions", "ortoo tx list --parked"),
    "unchecked transaction": (unchecked_transaction, "unchecked transactions", "start a producer of the group"),
    "deleted topic": (deleted_topic, "deleted topics", "ortoo topic undelete old"),
    "misspelt topic": (misspelt_topic, "unknown topic", "did you mean orders"),
    "read-only topic": (read_only_topic, "permission", "ortoo topic update t"),
    "misspelt group": (misspelt_group, "unknown group", "did you mean billing"),
    "group disabled": (switched_off, "group disabled", "ortoo group update g --consume"),
    "no consumers": (nobody_consumes, "no consumers", "start a consumer"),
    "directory lost": (lost_directory, "unregistered topics", "ortoo topic adopt younger"),
    "disk 95 % full": (narrow_disk, "disk nearly full", "enlarge the volume"),
    "failing push handler": (failing_push_handler, "failing handler", "ortoo group describe g"),
    "pop group without consumer": (popped_by_nobody, "no consumers", "start a consumer"),
    "group slower than retention": (slow_group, "retention nearly used up", "run more consumers"),
    "snode cut off from an enode": (cut_off_snode, "enode unresponsive", "network"),
    "narrow index": (narrow_index, "index nearly full", "store.index_bytes_max"),
}

SLOW = {"unchecked transaction"}
"""Faults that take ten virtual minutes to become one."""


@contextlib.asynccontextmanager
async def patient(stage: ScriptedCluster, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Patient]:
    """A cluster to inspect; the doctor uses its time, and need not reach addresses by sockets."""
    monkeypatch.setattr(facts, "SystemClock", lambda: stage.clock)

    async def reached(address: str, timeout_s: float) -> AddressCheck:
        return AddressCheck(
            address, True, True, connects=True, protocol=SpokenProtocol.NOT_ASKED, role="snode", serving=True
        )

    monkeypatch.setattr(facts, "_check_reachable", reached)
    async with stage.connect("operator") as client:
        await client.admin.ensure_topic("t", queue_count=1)
        yield Patient(stage, client)


def shaken(stage: ScriptedCluster, fault: str) -> None:
    """Settings that let a fault show soon."""
    for enode in stage.cluster.enodes:
        if fault == "stalled transaction":
            enode.chosen = {"transaction_checks_max": 1, "transaction_check_interval_ms": 100}
        if fault == "narrow index":
            small = StoreSettings(segment_bytes=SEGMENT_BYTES, headroom_bytes=0, threads=False, index_bytes_max=2_000)
            enode.chosen = {"store": small}
        if fault == "group slower than retention":
            enode.chosen = {"store": replace(STORE, retention_age_ms=RETENTION_MS)}


@pytest.mark.parametrize(
    "fault", [pytest.param(name, marks=pytest.mark.deep) if name in SLOW else name for name in FAULTS]
)
def test_each_fault_is_named_within_five_seconds_with_what_to_do(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fault is reported in time with its name, impact and remedy."""
    happens, name, cure = FAULTS[fault]

    async def script(stage: ScriptedCluster) -> None:
        async with patient(stage, monkeypatch) as it:
            await happens(it)
            begun_s = stage.clock.monotonic_s()
            while name not in (named := {one.name: one for one in await it.findings()}):
                assert stage.clock.monotonic_s() - begun_s < WITHIN_S, named
                await stage.clock.sleep(0.2)
            assert stage.clock.monotonic_s() - begun_s < WITHIN_S
            assert cure in named[name].remedy
            assert named[name].observed
            it.undo()
            stage.world.database.away = False
            stage.world.redis.resume_answering()
            for machine in stage.cluster.machines:
                machine.resume()
                machine.start()
            for enode in stage.cluster.enodes:
                enode.disk.latency.least_s, enode.disk.latency.usual_s = 0.0001, 0.003

    shape = ClusterShape(name_servers=2, enodes=2, snodes=2)
    play(script, shape=shape, prepare=lambda stage: shaken(stage, fault))


def test_a_healthy_cluster_under_load_has_no_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No finding in twenty inspections while messages are sent, popped and acknowledged."""

    async def script(stage: ScriptedCluster) -> None:
        async with patient(stage, monkeypatch) as it:
            it.group = "g"
            await it.client.admin.put_group("g")
            over = asyncio.Event()

            async def consume() -> None:
                async with it.client.pop_consumer("g", "t", "*", PopSettings()) as consumer:
                    while not over.is_set():
                        for one in await consumer.pop(wait_ms=500):
                            await one.ack()

            async def load() -> None:
                async with it.client.producer("t") as producer:
                    while not over.is_set():
                        for _ in range(20):
                            producer.enqueue_nowait(b"m" * 200)
                        await producer.flush()
                        await stage.clock.sleep(0.05)

            async with asyncio.TaskGroup() as work:
                work.create_task(consume())  # a task of the test, in a group
                work.create_task(load())
                for _ in range(20):
                    await stage.clock.sleep(0.5)
                    assert [str(one) for one in await it.findings()] == []
                over.set()

    play(script, shape=ClusterShape(name_servers=2, enodes=2, snodes=2))
