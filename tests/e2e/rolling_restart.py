"""Restart every process of a cluster, one after another, while messages flow; then report the effects.

    python -m tests.e2e.rolling_restart --rate 2000
    python -m tests.e2e.rolling_restart --rate 200 --since b272859
    python -m tests.e2e.rolling_restart --replicas
    python -m tests.e2e.rolling_restart --replicas --rate 1000 --behind-mb 2000

Two name servers over PostgreSQL, two enodes, two snodes over Valkey. Each process gets SIGTERM, must end with 0, and is
started again after its exit; the next one follows when it is ready. One group is pushed its messages, another pops and
leases them. Prints one line for each restart and a summary. The exit code is 1 when a message was lost to either group,
or a send failed or took longer than two seconds. It is also 1 when a restart cost a message one of its attempts, or a
process did not start.

With `--since` all processes start with the version of that revision of the repository. They are upgraded one after the
other to today's, in the order of docs/operations/upgrades.md, with a client of today. Then all of them are downgraded,
as far as that page allows it, and upgraded again. An enode or name server whose store or database the older version
refuses with 253 keeps today's version. An older snode may refuse the sealed receipt handles of a newer one; such
messages come again later, and are counted.

With `--replicas` there is one enode of three replicas, and only these are restarted, followers before the leader. No
send may take longer than a second. With `--behind-mb` a follower is down at the beginning, until it lacks this amount
of messages. Each next replica is then restarted as soon as the readiness probe of the chart allows it, as in a rolling
update on Kubernetes. Sends while the messages are written are reported, and not limited.
"""

import argparse
import asyncio
import contextlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ortoo.client import (
    Client,
    ConsumerSettings,
    Fenced,
    Invalid,
    PopSettings,
    Producer,
    ProducerSettings,
    Unavailable,
    connect,
)
from ortoo.common.logs import logger as logs
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.service import EXIT_INVALID_SETTINGS
from ortoo.verification.servers.postgres import postgres
from ortoo.verification.servers.processes import SMALL_STORE, DidNotStart, ProcessCluster, RoleProcess
from ortoo.verification.servers.valkey import valkey
from tests.e2e.drill import run_drill, say
from tests.e2e.machine import Machine
from tests.e2e.rejoin import SEGMENT_BYTES, fill
from tests.e2e.replica_cluster import leading, replica_cluster, until_in_sync, whole
from tests.repo.tree import ROOT

Step = tuple[RoleProcess, Mapping[str, str]]
"""The process to restart, and its environment afterwards."""
TOPIC, GROUP, POPPERS = "rolling", "readers", "poppers"
SEND_MAX_S, SEND_MAX_MEMBERS_S = 2.0, 1.0
WRITING = "the writing of messages"
MEMBER_TURNS = 3
"""Number of restarts of each replica."""
TICK_S = 0.02
PATIENCE_S = 60.0


@dataclass
class Outcome:
    """The effects of the restarts."""

    sent: int = 0
    failed: list[str] = field(default_factory=list)
    slowest_during: dict[str, float] = field(default_factory=dict)
    """The slowest send, in seconds, among those that ended while a process restarted."""
    received: Counter[bytes] = field(default_factory=Counter)
    popped: Counter[bytes] = field(default_factory=Counter)
    attempts_burned: list[tuple[str, bytes, int]] = field(default_factory=list)
    """(during, body, attempt) of messages that were popped again."""
    acknowledged: set[bytes] = field(default_factory=set)
    refused: set[bytes] = field(default_factory=set)
    """Messages whose receipt handle an older snode refused: they come again."""
    settled_twice: int = 0
    """Acknowledgements without effect: the answer to a first try was lost, or an attempt is burned."""
    exit_codes: dict[str, int] = field(default_factory=dict)
    during: str = "start"
    machine: Machine | None = None
    """The machine's effect on the load."""

    @property
    def slowest(self) -> tuple[str, float]:
        """The process whose restart had the slowest send, and its seconds."""
        restarts = [one for one in self.slowest_during.items() if one[0] != WRITING]
        return max(restarts, key=lambda one: one[1], default=("start", 0.0))

    def sent_within(self, took_s: float) -> None:
        """A send has ended."""
        self.slowest_during[self.during] = max(took_s, self.slowest_during.get(self.during, 0.0))

    @property
    def lost(self) -> int:
        """Acknowledged messages that one of the groups never received."""
        return len(self.acknowledged - self.received.keys()) + len(self.acknowledged - self.popped.keys())

    @property
    def duplicates(self) -> int:
        """Deliveries beyond the first of each message."""
        return sum(self.received.values()) - len(self.received)

    def faults(self, send_max_s: float = SEND_MAX_S) -> list[str]:
        """The broken guarantees; on a loaded machine sends may be given more time."""
        found = [f"a send failed: {text}" for text in self.failed[:5]]
        for during, body, attempt in [one for one in self.attempts_burned if one[1] not in self.refused][:5]:
            found.append(f"{body.decode()} was popped as attempt {attempt} while {during} restarted")
        if self.lost:
            found.append(f"{self.lost} messages are lost")
        during, slowest_s = self.slowest
        if slowest_s > send_max_s:
            found.append(f"a send took {slowest_s:.2f} s while {during} restarted")
        found += [f"{name} ended with {code}" for name, code in self.exit_codes.items() if code]
        return found

    def summary(self) -> str:
        """One line."""
        return (
            f"{self.sent} sent, {len(self.failed)} failed, {self.lost} lost, {self.duplicates} delivered again, "
            f"{len(self.popped)} popped, {len(self.attempts_burned)} attempts burned, "
            f"{len(self.refused)} handles refused, {self.settled_twice} acknowledged twice. "
            f"Slowest send {self.slowest[1] * 1000:.0f} ms ({self.slowest[0]}); {self.machine}"
        )


def older_version(revision: str, folder: Path) -> dict[str, str]:
    """The environment of processes that run the code of a revision, which is unpacked into `folder`.

    They share the libraries that are installed. Errors: CalledProcessError when the repository has no such revision.
    """
    packed = subprocess.run(
        ("git", "archive", revision, "libs", "services"), cwd=ROOT, check=True, capture_output=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return {"PYTHONPATH": os.pathsep.join(map(str, sorted(folder.glob("*/*/src"))))}


async def rolling_restart(
    folder: Path, *, rate: int, say: Callable[[str], object], older: Mapping[str, str] | None = None
) -> Outcome:
    """Run it in `folder`; the processes start in the environment `older`, if there is one."""
    outcome = Outcome()
    async with postgres() as database, valkey(folder / "valkey") as redis, contextlib.AsyncExitStack() as parts:
        namesrvs = [
            RoleProcess("namesrv", folder / f"namesrv-{n}", {"DATABASE_URL": database.url, "NAME": f"namesrv-{n}"})
            for n in range(2)
        ]
        enodes = [RoleProcess("enode", folder / f"enode-{n}", {"NAME": f"enode-{n}", **SMALL_STORE}) for n in range(2)]
        snodes = [
            RoleProcess("snode", folder / f"snode-{n}", {"NAME": f"snode-{n}", "REDIS_URL": redis.url})
            for n in range(2)
        ]
        for role in (*namesrvs, *enodes, *snodes):
            role.environ_more = older or {}
        for namesrv in namesrvs:
            parts.push_async_callback(namesrv.kill)
            await namesrv.start()
        addresses = ";".join(namesrv.address for namesrv in namesrvs)
        for role in (*enodes, *snodes):
            parts.push_async_callback(role.kill)
            role.environ["NAMESRV_ADDRESS"] = addresses
            await role.start()
        await ProcessCluster(folder, namesrvs[1], enodes, snodes).wait_until_alive()

        async def steps() -> AsyncIterator[Step]:
            for role in (*namesrvs, *enodes, *snodes):
                yield role, {}
            if older:
                for role in (*snodes, *enodes, *namesrvs):
                    yield role, older
                for role in (*namesrvs, *enodes, *snodes):
                    yield role, {}

        async with connect([snode.address for snode in snodes]) as mq:
            await mq.admin.create_topic(TOPIC)
            await _under_load(mq, steps(), outcome, rate, say)
    return outcome


async def rolling_members(folder: Path, *, rate: int, say: Callable[[str], object], behind_mb: int = 0) -> Outcome:
    """Restart the replicas of one enode, followers before the leader, each of them several times.

    With `behind_mb` once, and the first one lacks this amount of messages when it starts.
    """
    outcome, clock = Outcome(), SystemClock()
    store = {"STORE_SEGMENT_BYTES": SEGMENT_BYTES} if behind_mb else SMALL_STORE
    async with (
        postgres() as database,
        valkey(folder / "valkey") as redis,
        replica_cluster(
            folder, name_servers=2, database_url=database.url, snodes=2, redis_url=redis.url, enode_environ=store
        ) as cluster,
        connect([snode.address for snode in cluster.snodes]) as mq,
    ):

        async def update() -> AsyncIterator[Step]:
            leader = await leading(cluster, mq)
            late, follower = (one for one in cluster.enodes if one is not leader)
            outcome.during = WRITING
            outcome.exit_codes[late.folder.name] = await late.stop()
            await fill(mq, behind_mb << 20)
            say(f"{late.folder.name} lacks {behind_mb} MiB")
            for member in (late, follower, leader):
                yield member, {}
                begun_s = clock.monotonic_s()
                await asyncio.gather(*map(until_in_sync, cluster.enodes))
                say(f"all replicas were ready {clock.monotonic_s() - begun_s:.1f} s later")

        async def steps() -> AsyncIterator[Step]:
            for _ in range(MEMBER_TURNS):
                leader = await leading(cluster, mq)
                for member in (*(one for one in cluster.enodes if one is not leader), leader):
                    await whole(mq)
                    yield member, {}

        await whole(mq)
        while True:
            with contextlib.suppress(Unavailable):  # a new leader may not be known to all processes
                await mq.admin.ensure_topic(TOPIC)
                break
            await SystemClock().sleep(TICK_S)
        await _under_load(mq, update() if behind_mb else steps(), outcome, rate, say)
    return outcome


async def _under_load(
    mq: Client, steps: AsyncIterator[Step], outcome: Outcome, rate: int, say: Callable[[str], object]
) -> None:
    clock = SystemClock()
    async with Background("load") as background:
        settings = ConsumerSettings(from_beginning=True, ack_interval_ms=20)
        for number in range(2):
            background.spawn(f"consumer {number}", _consume(mq, settings, outcome))
            background.spawn(f"popper {number}", _pop(mq, outcome))
        async with mq.producer(TOPIC, ProducerSettings(linger_ms=1)) as producer:
            sending = background.spawn("sender", _send(producer, outcome, rate, background))
            await clock.sleep(1)
            async for role, environ in steps:
                outcome.during = role.folder.name
                if role.alive:
                    outcome.exit_codes[role.folder.name] = await role.stop()
                role.environ_more = environ
                version = " as the older version" if environ else ""
                try:
                    await role.start()
                except DidNotStart as error:
                    if not environ or error.exit_code != EXIT_INVALID_SETTINGS:
                        raise
                    version, role.environ_more = ": the older version refuses its data, today's runs again", {}
                    await role.start()
                await clock.sleep(1)
                slowest_ms = outcome.slowest_during.get(role.folder.name, 0.0) * 1000
                say(f"{role.folder.name} restarted{version}, slowest send {slowest_ms:.0f} ms; {outcome.summary()}")
            outcome.during = "end"
            sending.cancel()
            async with asyncio.timeout(PATIENCE_S):
                while len(outcome.acknowledged) + len(outcome.failed) < outcome.sent:
                    await clock.sleep(0.05)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                while outcome.lost:
                    await clock.sleep(0.05)


async def _consume(mq: Client, settings: ConsumerSettings, outcome: Outcome) -> None:
    async with mq.consumer(GROUP, TOPIC, settings) as consumer:
        async for batch in consumer.batches():
            outcome.received.update(batch.bodies())
            batch.ack()


async def _pop(mq: Client, outcome: Outcome) -> None:
    async with mq.pop_consumer(POPPERS, TOPIC, settings=PopSettings(messages_max=256, wait_ms=2_000)) as consumer:
        while True:
            try:
                messages = await consumer.pop()
            except Unavailable:
                continue  # the enodes of all queues were down; the next pop is the retry
            for message in messages:
                outcome.popped[message.body] += 1
                if message.attempt > 1:
                    outcome.attempts_burned.append((outcome.during, message.body, message.attempt))
            # A message whose enode is down stays leased, and is acknowledged when the enode is back.
            acks = await asyncio.gather(*(message.ack() for message in messages), return_exceptions=True)
            for message, error in zip(messages, acks, strict=True):
                if isinstance(error, Invalid) and error.field == "receipts.receipt_handle":
                    outcome.refused.add(message.body)
                elif isinstance(error, Fenced):
                    outcome.settled_twice += 1
                elif error is not None:
                    raise error


async def _send(producer: Producer, outcome: Outcome, rate: int, background: Background) -> None:
    """Send `rate` messages a second, each watched on its own."""
    clock = SystemClock()
    due_s = clock.monotonic_s()
    outcome.machine = Machine()
    while True:
        outcome.machine.look(clock.monotonic_s(), due_s)
        count = max(1, round(rate * TICK_S))
        bodies = [b"%010d" % number for number in range(outcome.sent, outcome.sent + count)]
        outcome.sent += count
        background.spawn("tick", _watch(producer, bodies, outcome))
        due_s += TICK_S
        await clock.sleep(max(0.0, due_s - clock.monotonic_s()))


async def _watch(producer: Producer, bodies: list[bytes], outcome: Outcome) -> None:
    clock = SystemClock()
    begun_s = clock.monotonic_s()
    for body, sending in zip(bodies, await producer.send_many(bodies), strict=True):
        try:
            await sending
        except Exception as error:
            outcome.failed.append(repr(error))
        else:
            outcome.acknowledged.add(body)
    outcome.sent_within(clock.monotonic_s() - begun_s)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=2000, help="messages a second")
    parser.add_argument("--since", default="", metavar="REVISION", help="the version that all processes start with")
    parser.add_argument("--replicas", action="store_true", help="restart the replicas of an enode that has three")
    parser.add_argument("--behind-mb", type=int, default=0, help="messages that the first replica lacks, in MiB")
    arguments = parser.parse_args()
    logs.configure(level="error")

    with tempfile.TemporaryDirectory(prefix="ortoo-rolling-") as folder:
        older = older_version(arguments.since, Path(folder) / "older") if arguments.since else None
        if arguments.replicas:
            run = rolling_members(Path(folder), rate=arguments.rate, say=say, behind_mb=arguments.behind_mb)
        else:
            run = rolling_restart(Path(folder), rate=arguments.rate, say=say, older=older)
        outcome = run_drill(run)
    faults = outcome.faults(SEND_MAX_MEMBERS_S if arguments.replicas else SEND_MAX_S)
    say("\n".join([*faults, outcome.summary()]))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
