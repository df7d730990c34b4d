"""Every alert is fired by its fault in real processes scraped by a real Prometheus, and resolves with the fault.

    python -m tests.deploy.alert_faults

A name server over PostgreSQL, two enodes and a snode, under constant traffic; the machine of one enode can be made
faulty. The same Prometheus scrapes a second cluster with topics and groups of the same names. It stays healthy, and no
alert may ever name it. First no alert may fire for a while. Then the faults are injected one by one. Exactly the alerts
of a fault must fire, apart from those of processes that it restarts, and all must resolve afterwards. Time runs thirty
times faster for Prometheus (see `tests.deploy.prometheus`). Prints a table with the times of the run, and in brackets
those of production. The exit code is 1 when an alert was missing, wrong, or did not resolve.
"""

import argparse
import asyncio
import contextlib
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from ortoo.client import (
    DataLoss,
    Message,
    OrtooError,
    PopSettings,
    Queue,
    TransactionCheck,
    TransactionVerdict,
    connect,
)
from ortoo.common.logs import logger as logs
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.v1 import producer_pb2, record_pb2, topic_pb2
from ortoo.v1.producer_pb2_grpc import ProducerServiceStub
from ortoo.verification.servers.ports import free_ports
from ortoo.verification.servers.postgres import postgres
from ortoo.verification.servers.processes import SMALL_STORE, ProcessCluster, RoleProcess
from ortoo.verification.servers.valkey import valkey
from tests.deploy import ailing_enode
from tests.deploy.alert_group_faults import failing_handler, lost_messages, short_retention
from tests.deploy.alert_machine_faults import expiring_certificate, few_descriptors, late_clock, tls_environ
from tests.deploy.alert_replica_faults import missing_member, unsteady_leader
from tests.deploy.alert_scene import AilingEnode, Scene, healthy_cluster, keep_receiving, running
from tests.deploy.alert_watch import FAULTY, HEALTHY, AlertWatch, Fault, Report
from tests.deploy.prometheus import MISSING, Prometheus, prometheus
from tests.e2e.drill import run_drill, say

HARMED = b"a body that comes to harm"
QUEUES = 512
SLOW_SENDERS = 10
"""The number of senders with which most sends of the cluster are slow."""
INDEX_BYTES_MAX = 600 * 362
"""The queues of `full_index` leave less than a fifth of it, those of the other faults more."""
RESTARTED = frozenset({"OrtooProcessDown", "OrtooEnodeAway", "OrtooNotReady"})
"""Alerts that may also fire when a fault needs a process to be restarted."""


@asynccontextmanager
async def forgotten_message(scene: Scene) -> AsyncIterator[None]:
    """A group has not received a message, and a transaction has been open, for more than half an hour."""
    scene.enode.ail(clock_behind_ms=0)  # until now its clock was late, and both looked new
    yield
    await scene.catch_up("forgetful", "old")
    for one in await scene.mq.admin.list_transactions():
        await scene.mq.admin.end_transaction(one.transaction_id, TransactionVerdict.ROLLBACK)


@asynccontextmanager
async def dead_enode(scene: Scene) -> AsyncIterator[None]:
    """An enode is killed, and the other processes restart: they know it only from the placements of topics."""
    await scene.enode.kill()
    await scene.namesrv.restart()
    await scene.snode.restart()
    yield
    await scene.enode.start()
    await scene.cluster.wait_until_alive()


@asynccontextmanager
async def nobody_left(scene: Scene) -> AsyncIterator[None]:
    """All processes are stopped."""
    for role in reversed(scene.cluster.roles):
        await role.kill()
    yield
    for role in scene.cluster.roles:
        await role.start()
    await scene.cluster.wait_until_alive()


@asynccontextmanager
async def failing_sends(scene: Scene) -> AsyncIterator[None]:
    """Single sends go to a topic whose only enode is down."""
    await scene.new_topic("lonely")
    await scene.enode.kill()
    async with running(scene.background, scene.keep_publishing("lonely", interval_s=0.1)):
        yield
    await scene.enode.start()
    await scene.cluster.wait_until_alive()
    await scene.publish("steady", 3_000)  # so that few of all sends of the last hour have failed


@asynccontextmanager
async def failing_consumer(scene: Scene) -> AsyncIterator[None]:
    """A consumer parks one message after the other."""
    await scene.new_topic("poison")
    await scene.send("poison", 150)
    async with scene.mq.pop_consumer("failing", "poison", "*", PopSettings(messages_max=50)) as consumer:
        parked = 0
        while parked < 150:
            for message in await consumer.pop(wait_ms=1_000):
                await message.park(error="no such customer")
                parked += 1
        yield


@asynccontextmanager
async def full_disk(scene: Scene) -> AsyncIterator[None]:
    """The disk of an enode is full."""
    scene.enode.ail(disk_full=True)
    async with running(scene.background, scene.keep_sending("old", interval_s=0.1)):
        yield
    scene.enode.ail(disk_full=False)


@asynccontextmanager
async def damaged_log(scene: Scene) -> AsyncIterator[None]:
    """A byte of a stored message changed on the disk, and a consumer reads it."""
    await scene.new_topic("damaged")
    async with scene.mq.producer("damaged") as producer:
        await producer.send(HARMED)
        await producer.send(b"unharmed")
    await scene.enode.stop()
    segment, position = next(
        (file, file.read_bytes().index(HARMED))
        for file in sorted(scene.enode.data.rglob("*.seg"))
        if HARMED in file.read_bytes()
    )
    _write_byte(segment, position, b"?")
    await scene.enode.start()
    queue = Queue("damaged", scene.enode.folder.name, 0)
    with contextlib.suppress(DataLoss):
        async for _ in scene.mq.fetch(queue, 0, 1):
            pass
    yield
    await scene.enode.stop()
    _write_byte(segment, position, HARMED[:1])
    await scene.enode.start()


def _write_byte(file: Path, position: int, byte: bytes) -> None:
    with file.open("r+b") as opened:
        opened.seek(position)
        opened.write(byte)


@asynccontextmanager
async def no_database(scene: Scene) -> AsyncIterator[None]:
    """PostgreSQL is down when a topic is created."""
    await scene.database.stop()
    with contextlib.suppress(OrtooError):
        await scene.mq.admin.create_topic("never")
    yield
    await scene.database.start()


@asynccontextmanager
async def waiting_name_server(scene: Scene) -> AsyncIterator[None]:
    """A name server starts while its database is down."""
    await scene.database.stop()
    await scene.namesrv.kill()
    async with asyncio.TaskGroup() as group:
        group.create_task(scene.namesrv.start())  # ready when the database is
        yield
        await scene.database.start()
    await scene.cluster.wait_until_alive()


@asynccontextmanager
async def silent_membership_store(scene: Scene) -> AsyncIterator[None]:
    """Redis accepts connections and does not answer."""
    scene.redis.freeze()
    yield
    scene.redis.thaw()


@asynccontextmanager
async def group_behind(scene: Scene) -> AsyncIterator[None]:
    """The consumers of a group have ended, and producers continue."""
    await scene.new_topic("behind")
    await scene.send("behind", 1)
    await scene.catch_up("absent", "behind")
    await scene.send("behind", 12_000)
    async with running(scene.background, scene.keep_sending("behind", interval_s=0.05)):
        yield
    await scene.catch_up("absent", "behind")


@asynccontextmanager
async def frozen_handler(scene: Scene) -> AsyncIterator[None]:
    """A consumer receives messages and never acknowledges them."""
    await scene.new_topic("stuck")
    await scene.send("stuck", 1)
    await scene.mq.admin.put_group("frozen", slow_consumer_threshold_messages=100, slow_consumer_grace_ms=1_000)
    await scene.catch_up("frozen", "stuck")

    async def take() -> None:
        async with scene.mq.consumer("frozen", "stuck") as consumer:
            async for _ in consumer.batches():
                pass

    async with running(scene.background, take()):
        await scene.send("stuck", 500)
        yield
    await scene.catch_up("frozen", "stuck")


@asynccontextmanager
async def starved_snode(scene: Scene) -> AsyncIterator[None]:
    """A snode gets processor time for a fifth of each second."""
    clock = SystemClock()

    async def starve() -> None:
        while True:
            scene.snode.freeze()
            await clock.sleep(0.8)
            scene.snode.thaw()
            await clock.sleep(0.2)

    async with running(scene.background, starve()):
        yield
    scene.snode.thaw()


@asynccontextmanager
async def slow_disk(scene: Scene) -> AsyncIterator[None]:
    """Each fdatasync takes 0.2 s."""
    scene.enode.ail(sync_delay_s=0.2)
    async with contextlib.AsyncExitStack() as senders:
        for _ in range(SLOW_SENDERS):
            publishing = scene.keep_publishing("old", interval_s=0.1)
            await senders.enter_async_context(running(scene.background, publishing))
        yield
        scene.enode.ail(sync_delay_s=0.0)
    await scene.publish("steady", 3_000)  # so that few of all sends of the last hour were slow
    # The rule is about flushes: it fires only if there are some.
    await scene.catch_up("forgetful", "old")


@asynccontextmanager
async def many_topics(scene: Scene) -> AsyncIterator[None]:
    """More topics than the metrics budget, which is small on this enode."""
    names = [f"many-{number}" for number in range(ailing_enode.SERIES_MAX + 10)]
    for name in names:
        await scene.new_topic(name)
    yield
    for name in names:
        await scene.mq.admin.delete_topic(name, at_once=True)


@asynccontextmanager
async def full_index(scene: Scene) -> AsyncIterator[None]:
    """A topic has so many queues that the memory for the index is nearly used up."""
    await scene.mq.admin.create_topic("wide", queue_count=QUEUES, enodes=[scene.enode.folder.name])
    for number in range(QUEUES):
        queue = topic_pb2.Queue(topic="wide", enode=scene.enode.folder.name, queue_id=number)
        request = producer_pb2.PublishRequest(topic="wide", queue=queue, messages=[record_pb2.Message(body=b"x")])
        await scene.mq._connection.call(ProducerServiceStub, "Publish", request)
    yield
    await scene.mq.admin.delete_topic("wide", at_once=True)


FAULTS = (
    Fault(forgotten_message, frozenset({"OrtooOldMessage", "OrtooOldTransaction"}), frozenset({"OrtooClockDiffers"})),
    Fault(dead_enode, frozenset({"OrtooProcessDown", "OrtooEnodeAway"}), RESTARTED),
    Fault(nobody_left, frozenset({"OrtooNoNameServer", "OrtooNoEnode", "OrtooNoSnode", "OrtooProcessDown"}), RESTARTED),
    Fault(failing_sends, frozenset({"OrtooSendsFail"}), RESTARTED),
    Fault(failing_consumer, frozenset({"OrtooDeadLetters", "OrtooManyDeadLetters"})),
    Fault(failing_handler, frozenset({"OrtooHandlerFails"})),
    Fault(
        full_disk,
        frozenset({"OrtooNotWritable", "OrtooNotReady", "OrtooDiskFillsUp", "OrtooDiskNearlyFull"}),
        frozenset({"OrtooSendsFail"}),
    ),
    Fault(damaged_log, frozenset({"OrtooDamagedLog", "OrtooDefect"}), RESTARTED),
    Fault(no_database, frozenset({"OrtooDatabaseAway"})),
    Fault(waiting_name_server, frozenset({"OrtooNotReady"}), RESTARTED),
    Fault(silent_membership_store, frozenset({"OrtooMembershipStoreAway"})),
    Fault(group_behind, frozenset({"OrtooGroupFallsBehind"})),
    Fault(frozen_handler, frozenset({"OrtooSlowConsumer"})),
    Fault(starved_snode, frozenset({"OrtooOverloaded"}), RESTARTED),
    Fault(slow_disk, frozenset({"OrtooSlowDisk", "OrtooSendsSlow"})),
    Fault(missing_member, frozenset({"OrtooLeaderless", "OrtooUnderReplicated"})),
    Fault(unsteady_leader, frozenset({"OrtooTakeOvers"})),
    Fault(many_topics, frozenset({"OrtooTooManySeries"})),
    Fault(full_index, frozenset({"OrtooIndexNearlyFull"})),
    Fault(late_clock, frozenset({"OrtooClockDiffers"})),
    Fault(few_descriptors, frozenset({"OrtooFewDescriptors"})),
    Fault(
        expiring_certificate,
        frozenset(f"OrtooCertificateExpiresIn{left}" for left in ("21Days", "7Days", "1Day")),
    ),
    Fault(short_retention, frozenset({"OrtooRetentionNearlyUsed"}), frozenset({"OrtooMessagesLost"})),
    Fault(lost_messages, frozenset({"OrtooMessagesLost"}), frozenset({"OrtooRetentionNearlyUsed"})),
)


async def alert_faults(
    folder: Path, faults: Sequence[Fault] = FAULTS, *, clean_s: float, say: Callable[[str], object]
) -> Report:
    """Inject the faults in `folder`, after `clean_s` seconds in which no alert may fire."""
    async with _scene(folder) as (scene, server):
        watch = AlertWatch(scene, server)
        report = watch.report
        await _prepare(scene)
        await watch.stays_silent(clean_s)
        say(f"{clean_s:.0f} s without a fault: {', '.join(report.false_alarms) or 'no alert'}")
        for fault in faults:
            before = len(report.rows)
            await watch.during(fault)
            say(f"{fault.what}: {', '.join(one.alert for one in report.rows[before:]) or 'NO ALERT'}")
    return report


@asynccontextmanager
async def _scene(folder: Path) -> AsyncIterator[tuple[Scene, Prometheus]]:
    ports = free_ports(5)
    metrics = [f"127.0.0.1:{port}" for port in ports[:4]]
    async with (
        postgres() as database,
        valkey(folder / "valkey") as redis,
        contextlib.AsyncExitStack() as parts,
    ):
        namesrv = RoleProcess(
            "namesrv",
            folder / "namesrv",
            {"DATABASE_URL": database.url, "LEASE_S": 2.0, "METRICS_ADDRESS": metrics[0]},
        )
        enodes = [
            make(folder / name, {"NAME": name, **SMALL_STORE, "METRICS_ADDRESS": address, "HEARTBEAT_INTERVAL_S": 0.5})
            for name, make, address in (
                ("enode-0", lambda folder, environ: RoleProcess("enode", folder, environ), metrics[1]),
                ("enode-1", AilingEnode, metrics[2]),
            )
        ]
        enodes[1].environ["STORE_INDEX_BYTES_MAX"] = INDEX_BYTES_MAX
        snode = RoleProcess(
            "snode",
            folder / "snode",
            {"NAME": "snode", "METRICS_ADDRESS": metrics[3], "REDIS_URL": redis.url}
            | await tls_environ(folder / "authority"),
        )
        await namesrv.start()
        parts.push_async_callback(namesrv.kill)
        for role in (*enodes, snode):
            role.environ["NAMESRV_ADDRESS"] = namesrv.address
            parts.push_async_callback(role.kill)
            await role.start()
        victim = enodes[1]
        assert isinstance(victim, AilingEnode)
        cluster = ProcessCluster(folder, namesrv, enodes, [snode])
        await cluster.wait_until_alive()
        mq = await parts.enter_async_context(connect(snode.address))
        background = await parts.enter_async_context(Background("faults"))
        healthy = await parts.enter_async_context(healthy_cluster(folder / "healthy", background))
        targets = {FAULTY: metrics, HEALTHY: healthy}
        server = await parts.enter_async_context(prometheus(folder / "prometheus", f"127.0.0.1:{ports[4]}", targets))
        yield Scene(database, redis, namesrv, victim, snode, cluster, mq, background), server


async def _prepare(scene: Scene) -> None:
    """Start constant traffic, and send a message that its group does not consume."""
    await scene.mq.admin.create_topic("steady", enodes=["enode-0"])
    scene.background.spawn("senders", scene.keep_sending("steady", interval_s=0.05))
    scene.background.spawn("receivers", keep_receiving(scene.mq, "steady", "steady"))
    await scene.new_topic("old")
    await scene.send("old", 1)
    await scene.catch_up("forgetful", "old")
    await scene.send("old", 1)
    async with scene.mq.transactional_producer("old", "forgetful", _undecided) as producer:
        await producer.begin(Message(b"undecided"))


async def _undecided(check: TransactionCheck) -> TransactionVerdict:
    return TransactionVerdict.UNKNOWN


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clean-s", type=float, default=60.0, help="seconds at the start in which no alert may fire")
    parser.add_argument("--only", default="", help="run one fault only: the name of its function")
    arguments = parser.parse_args()
    if MISSING:
        sys.stderr.write(f"NOT CHECKED: {', '.join(MISSING)} not installed here\n")
        return 77
    logs.configure(level="error")
    chosen = [fault for fault in FAULTS if arguments.only in ("", fault.make.__name__)]
    with tempfile.TemporaryDirectory(prefix="ortoo-alerts-") as folder:
        report = run_drill(alert_faults(Path(folder), chosen, clean_s=arguments.clean_s, say=say))
    sys.stdout.write(report.table())
    return 1 if report.wrong or report.false_alarms else 0


if __name__ == "__main__":
    sys.exit(main())
