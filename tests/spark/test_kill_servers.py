"""Drivers, workers, a snode, an enode and the leader of three replicas are killed in rounds, while topics change.

In each round, each of them is killed once, in a random order and at random times. An archive, a replay and an
exactly-once copy run meanwhile. The driver comes last, because its workers are gone then. Another driver waits to
follow it.
Between rounds, a topic gets messages and queues, and loses messages that both queries have read, as by retention. Other
topics are created, and deleted before they are read completely.

`ORTOO_SPARK_KILLS_OF_EACH` sets the number of kills of each kind during each job. `make spark-server-kills` uses 50. No
round begins after `ORTOO_SPARK_KILLS_S` seconds, if this is set.
"""

import contextlib
import os
import re
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ortoo.client import Message, NotFound, OrtooError, Receipt, blocking, connect
from ortoo.client.blocking.loop_thread import LoopThread
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.spark.lake.accounts import LakeAccounts
from ortoo.spark.lake.checkpoint import Checkpoint
from ortoo.spark.lake.table import Lake
from ortoo.verification.servers.processes import SMALL_STORE, RoleProcess
from tests.e2e.replica_cluster import leading, replica_cluster, whole
from tests.spark.killed_driver import WRONG, Driver
from tests.spark.killed_jobs import BACK, COPY, ENDED_EARLY, JOBS, PASSING

KILLS_OF_EACH = int(os.environ.get("ORTOO_SPARK_KILLS_OF_EACH", "1"))
KILLS_S = float(os.environ.get("ORTOO_SPARK_KILLS_S", "inf"))
ROUNDS_MIN = 3
"""Number of rounds in which each change of topics is made."""
Place = tuple[str, str, int, int, str]
"""Topic, enode, queue, offset and body."""
AtKill = Callable[[], None]
"""Is called at the moment of a kill."""
QUEUES, QUEUES_MAX = 2, 6
WORKER, SNODE, ENODE, LEADER, DRIVER = "a worker", "the snode", "the enode", "the leader", "the driver"
PASSING_SENDS = 10
SENT_AT_ONCE = 50
SEND_INTERVAL_S = 0.5
KILL_AFTER_COMMITS = 3
KILL_WITHIN_S = 180.0
"""A round begins after a random number of committed batches up to this, or at the latest after this time."""
KILL_UNDER_ALL_S = 20.0
"""A kill waits for all jobs, at most for this time."""
KILL_LATER_S = 1.0
"""The largest random pause before each kill."""
LOOK_S = 0.05
FAILURES_MAX = 3
"""Number of ends of unhurt drivers for each kill; a query may end when a server is away for long."""
RUN_S = 14_400
PLACES = "topic", "enode", "queue_id", "`offset`", "cast(body as string)"
BODIES = "count(*) rows", "count(distinct body) bodies", "bit_xor(xxhash64(body)) hash"


class Growth:
    """Sends numbered messages until it is stopped. A send whose outcome is unknown is not repeated."""

    def __init__(self, address: str, topic: str) -> None:
        self._address, self._topic = address, topic
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged: set[Place] = set()
        self.sent = 0

    def __enter__(self) -> "Growth":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        with blocking.connect(self._address) as client, client.producer(self._topic) as producer:
            while not self._ended.wait(SEND_INTERVAL_S):
                bodies = [f"{number}" for number in range(self.sent, self.sent + SENT_AT_ONCE)]
                self.sent += SENT_AT_ONCE
                with contextlib.suppress(OrtooError):
                    self.acknowledged |= places(producer.send_many(Message(body.encode()) for body in bodies), bodies)


def places(receipts: Sequence[Receipt], bodies: Sequence[str]) -> set[Place]:
    """Where messages are stored, with their bodies."""
    return {
        (receipt.queue.topic, receipt.queue.enode, receipt.queue.queue_id, receipt.offset, body)
        for receipt, body in zip(receipts, bodies, strict=True)
    }


class Changes:
    """Changes of topics between the kills, each repeated until the servers have made it."""

    def __init__(self, client: blocking.BlockingClient, topic: str, folder: Path) -> None:
        self._client, self._topic = client, topic
        self._checkpoints = Checkpoint(folder / "lake_checkpoint"), Checkpoint(folder / f"checkpoint-{COPY}")
        self._queues = QUEUES
        self._passing = 0
        self.acknowledged: set[Place] = set()
        """The messages of topics that are deleted."""
        self.trimmed = 0

    def make(self, number: int, look: Callable[[], None]) -> None:
        """Make the change with this number; `look` is called while the servers cannot make it."""
        change = (self._add_queue, self._trim, self._replace_passing)[number % 3]
        while True:
            try:
                return change()
            except OrtooError:
                look()

    def _add_queue(self) -> None:
        count = min(self._queues + 1, QUEUES_MAX)
        self._client.admin.update_topic(self._topic, read_queue_count=count, write_queue_count=count)
        self._queues = count

    def _trim(self) -> None:
        """Remove what both queries have read, as retention does in a cluster whose consumers keep up."""
        committed = [checkpoint.committed() for checkpoint in self._checkpoints]
        ends = [offsets.queues if offsets is not None else {} for offsets in committed]
        read = {queue: min(end[queue] for end in ends) for queue in ends[0] if all(queue in end for end in ends)}
        offsets = {queue: offset for queue, offset in read.items() if queue.topic == self._topic}
        if offsets:
            self._client.admin.trim_topic(self._topic, offsets=offsets)
            self.trimmed = max(self.trimmed, sum(offsets.values()))

    def _replace_passing(self) -> None:
        """Delete a topic, half of them beyond repair, while the archive may still read it; create another one."""
        if self._passing:
            with contextlib.suppress(NotFound):
                self._client.admin.delete_topic(self._name(), at_once=self._passing % 2 == 0)
        self._passing += 1
        self._client.admin.create_topic(self._name(), queue_count=1)
        with self._client.producer(self._name()) as producer:
            for part in range(PASSING_SENDS):
                bodies = [f"{self._passing}-{part}-{n}" for n in range(SENT_AT_ONCE)]
                self.acknowledged |= places(producer.send_many(Message(body.encode()) for body in bodies), bodies)

    def _name(self) -> str:
        return f"{self._topic}-{PASSING}-{self._passing}"


class Servers:
    """The cluster: an enode of three replicas, an enode of its own, a snode, and the kills of these."""

    def __init__(self, thread: LoopThread, cluster: Any, lone: RoleProcess, client: Any) -> None:
        self._thread, self._cluster, self._client = thread, cluster, client
        self.kills: dict[str, Callable[[AtKill], None]] = {
            SNODE: lambda at_kill: self._restart(cluster.snode, at_kill),
            ENODE: lambda at_kill: self._restart(lone, at_kill),
            LEADER: self._kill_leader,
        }

    @property
    def address(self) -> str:
        """Where clients connect."""
        return str(self._cluster.address)

    def _restart(self, process: RoleProcess, at_kill: AtKill) -> None:
        at_kill()
        self._thread.run(process.restart())

    def _kill_leader(self, at_kill: AtKill) -> None:
        self._thread.run(whole(self._client))  # otherwise two of three may be away
        leader = self._thread.run(leading(self._cluster, self._client))
        at_kill()
        self._thread.run(leader.kill())
        self._thread.run(leading(self._cluster, self._client))
        self._thread.run(leader.start())


@pytest.fixture
def servers(folder: Path) -> Iterator[Servers]:
    """The cluster of the test."""
    thread = LoopThread()
    try:
        with thread.enter_context(replica_cluster(folder / "cluster")) as cluster:
            environ = {"NAME": "enode-1", "NAMESRV_ADDRESS": cluster.namesrv.address, **SMALL_STORE}
            lone = RoleProcess("enode", folder / "enode-1", environ)
            try:
                thread.run(lone.start())
                with thread.enter_context(connect(cluster.address)) as client:
                    thread.run(whole(client))
                    yield Servers(thread, cluster, lone, client)
            finally:
                thread.run(lone.kill())
    finally:
        thread.close()


class Jobs:
    """The driver, followed by another one whenever it ends."""

    def __init__(self, servers: Servers, topic: str, folder: Path) -> None:
        self._arguments, self._folder = (servers.address, topic, str(folder)), folder
        self._reserve: Driver | None = None
        self.failures = 0
        self.driver = self._start()

    @classmethod
    def started(cls, client: blocking.BlockingClient, servers: Servers, topic: str, folder: Path) -> "Jobs":
        """The driver of new topics."""
        for name in (topic, f"{topic}-{COPY}"):
            client.admin.create_topic(name, queue_count=QUEUES)
        return cls(servers, topic, folder)

    def __enter__(self) -> "Jobs":
        return self

    def __exit__(self, *error: object) -> None:
        for driver in (self.driver, self._reserve):
            if driver is not None and driver.ends_within(0) is None:
                driver.kill()

    def _start(self, *, held: bool = False) -> Driver:
        return Driver("tests.spark.killed_jobs", self._arguments, self._folder, held=held)

    def prepare(self) -> None:
        """Start the driver that will follow this one; a JVM needs seconds for its start."""
        self._reserve = self._reserve or self._start(held=True)

    def _follow(self) -> None:
        for name in JOBS:
            self._mark(name).unlink(missing_ok=True)
        self.driver, self._reserve = self._reserve or self._start(held=True), None
        self.driver.release()

    def look(self) -> None:
        """Start the driver again if it has ended. Errors: AssertionError if it failed too often, or found an error."""
        code = self.driver.ends_within(LOOK_S)
        if code is None:
            return
        assert code != WRONG, self.driver.said()
        self.failures += not self.driver.hurt
        assert self.failures <= FAILURES_MAX * max(KILLS_OF_EACH, 1) * 5, self.driver.said()
        self._follow()

    def _mark(self, name: str) -> Path:
        return self._folder / f"running-{name}"

    @property
    def running(self) -> list[str]:
        """The jobs that run now."""
        return [name for name in JOBS if self._mark(name).exists()]

    @property
    def batches(self) -> int:
        """Number of committed batches of all queries. Spark deletes the files of the first ones."""
        folders = (self._folder / "lake_checkpoint/commits", self._folder / f"checkpoint-{COPY}/commits")
        return sum(max((int(file.name) + 1 for file in folder.glob("[0-9]*")), default=0) for folder in folders)

    @property
    def ended_early(self) -> Counter[str]:
        """The jobs that ended with an error, by name and error, each with its number."""
        found = re.findall(rf"^(\w+) {ENDED_EARLY}: (\w+)", self._log().read_text(), re.MULTILINE)
        return Counter(f"{name} {error}" for name, error in found)

    def _log(self) -> Path:
        return self._folder / "driver.log"

    def wait_for_batches(self, count: int) -> None:
        """Wait for `count` more committed batches, at most `KILL_WITHIN_S`."""
        until = self.batches + count
        self._wait(lambda: self.batches >= until, KILL_WITHIN_S)

    def wait_for_all_jobs(self) -> None:
        """Wait until all jobs run, at most `KILL_UNDER_ALL_S`."""
        self._wait(lambda: len(self.running) == len(JOBS), KILL_UNDER_ALL_S)

    def _wait(self, condition: Callable[[], bool], seconds: float) -> None:
        clock = SystemClock()
        until_s = clock.monotonic_s() + seconds
        while not condition() and clock.monotonic_s() < until_s:
            self.look()

    def kill_driver(self, at_kill: AtKill) -> None:
        """Kill the driver and its JVM."""
        if self.driver.ends_within(0) is None:
            at_kill()
            self.driver.kill()
        self._follow()

    def kill_worker(self, at_kill: AtKill) -> None:
        """Kill one of its Python processes, as soon as there are some."""
        while not (workers := self.driver.worker_ids()):
            self.look()
        at_kill()
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(workers[Randomness().below(len(workers))], signal.SIGKILL)
        self.driver.hurt = True

    def finish(self) -> None:
        """Let the driver run each job once more, and wait for its end."""
        (self._folder / "finish").touch()
        self.driver.hurt = True  # the jobs that are running may have met a kill
        while (code := self.driver.ends_within(RUN_S)) != 0:
            assert code != WRONG, self.driver.said()
            self.failures += 1
            assert self.failures <= FAILURES_MAX * max(KILLS_OF_EACH, 1) * 5, self.driver.said()
            self._follow()


class Tally:
    """The numbers of kills of each kind, and of those during each job."""

    def __init__(self, kinds: Sequence[str]) -> None:
        self._counts = {kind: dict.fromkeys(JOBS, 0) for kind in kinds}

    def add(self, kind: str, running: Sequence[str]) -> None:
        """Count a kill for the jobs that ran at that moment."""
        for job in running:
            self._counts[kind][job] += 1

    @property
    def least(self) -> int:
        """The smallest number of kills of a kind during a job."""
        return min(count for by_job in self._counts.values() for count in by_job.values())

    def __str__(self) -> str:
        return "; ".join(f"{kind}: {' '.join(map(str, jobs.values()))}" for kind, jobs in self._counts.items())


@pytest.mark.long
@pytest.mark.timeout(RUN_S)
def test_kills_of_spark_and_of_servers_lose_and_double_nothing(spark: Any, servers: Servers, folder: Path) -> None:
    """Check 6, 7 and 16: lake, replay and copy have each message once, and every loss is reported."""
    topic, randomness, clock = "grows", Randomness(11), SystemClock()
    began_s, rounds = clock.monotonic_s(), 0
    with blocking.connect(servers.address) as client, Jobs.started(client, servers, topic, folder) as jobs:
        kinds = {WORKER: jobs.kill_worker, **servers.kills, DRIVER: jobs.kill_driver}
        tally, changes = Tally([*kinds]), Changes(client, topic, folder)

        def counted(name: str) -> AtKill:
            return lambda: tally.add(name, jobs.running)

        def progress() -> str:
            return (
                f"{clock.monotonic_s() - began_s:6.0f} s, {rounds} rounds, kills during {', '.join(JOBS)}: {tally}. "
                f"{jobs.batches} batches, {len(growth.acknowledged)} messages, {jobs.failures} other ends of drivers, "
                f"ends of jobs: {dict(jobs.ended_early)}"
            )

        with Growth(servers.address, topic) as growth:
            while tally.least < KILLS_OF_EACH or rounds < ROUNDS_MIN:
                if clock.monotonic_s() - began_s > KILLS_S:
                    break
                changes.make(rounds, jobs.look)
                jobs.wait_for_batches(1 + randomness.below(KILL_AFTER_COMMITS))
                jobs.prepare()
                for name in ordered(kinds, randomness):
                    jobs.wait_for_all_jobs()
                    jobs.driver.ends_within(randomness.uniform(0.0, KILL_LATER_S))
                    kinds[name](counted(name))
                rounds += 1
                tell(progress())
        jobs.finish()
        tell(progress())
    options = {"address": servers.address, "columns": "body"}
    lake = Lake(str(folder / "lake"), "delta").read(spark)
    back, copied = (
        spark.read.format("ortoo").options(subscribe=f"{topic}-{suffix}", **options).load() for suffix in (BACK, COPY)
    )
    frames = (lake, back, lake.where(f"topic = '{topic}'"), copied)
    archived = [tuple(row) for row in lake.selectExpr(*PLACES).collect()]
    whole_lake, replayed, of_topic, copy = (tuple(frame.selectExpr(*BODIES).first()) for frame in frames)
    tell(f"{changes.trimmed} trimmed. Rows, bodies and hash: {whole_lake}, and {of_topic} of the topic that grows")
    assert len(archived) == len(set(archived))
    assert growth.acknowledged <= set(archived)
    unknown = {int(place[4]) for place in set(archived) - growth.acknowledged if place[0] == topic}
    assert unknown <= set(range(growth.sent))
    assert whole_lake == replayed
    assert of_topic == copy
    lost = {place[0] for place in changes.acknowledged - set(archived)}
    reported = (folder / "driver.log").read_text()
    known = {name for account in LakeAccounts(Lake(str(folder / "lake"), "delta")).all() for name in account.topics}
    assert [name for name in lost & known if f" of {name} on " not in reported] == []
    assert changes.trimmed > 0 or rounds < ROUNDS_MIN


def ordered(kinds: Mapping[str, object], randomness: Randomness) -> list[str]:
    """The kinds of kills in a random order, with the driver last."""
    rest = [name for name in kinds if name != DRIVER]
    return [*(rest.pop(randomness.below(len(rest))) for _ in range(len(rest))), DRIVER]


def tell(line: str) -> None:
    """Print the progress of the test."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
