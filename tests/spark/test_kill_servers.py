"""Drivers, workers, a snode, an enode and the leader of three replicas are killed in rounds, while topics change.

In each round, each of them is killed once, in a random order and at random times. The driver comes last, because its
workers are gone then. Between rounds, a topic gets messages and queues, and loses messages that both queries have
read, as by retention. Other topics are created, and deleted before they are read completely.

`ORTOO_SPARK_KILLS_OF_EACH` sets the number of rounds. `make spark-server-kills` uses 50. No round begins after
`ORTOO_SPARK_KILLS_S` seconds, if this is set.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ortoo.client import Message, NotFound, OrtooError, Receipt, blocking, connect
from ortoo.client.blocking.loop_thread import LoopThread
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.spark.lake.checkpoint import Checkpoint
from ortoo.spark.lake.table import Lake
from ortoo.verification.servers.processes import SMALL_STORE, RoleProcess
from tests.e2e.replica_cluster import leading, replica_cluster, whole
from tests.spark.killed_driver import Driver
from tests.spark.killed_jobs import BACK, COPY, PASSING

KILLS_OF_EACH = int(os.environ.get("ORTOO_SPARK_KILLS_OF_EACH", "1"))
KILLS_S = float(os.environ.get("ORTOO_SPARK_KILLS_S", "inf"))
Place = tuple[str, str, int, int, str]
"""Topic, enode, queue, offset and body."""
QUEUES, QUEUES_MAX = 2, 6
DRIVER = "the driver"
PASSING_SENDS = 10
SENT_AT_ONCE = 50
SEND_INTERVAL_S = 0.5
KILL_AFTER_COMMITS = 3
KILL_WITHIN_S = 180.0
"""A round begins after a random number of committed batches up to this, or at the latest after this time."""
KILL_LATER_S = 3.0
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
        self._thread, self._cluster, self._lone, self._client = thread, cluster, lone, client
        self.kills: dict[str, Callable[[], None]] = {
            "the snode": lambda: thread.run(cluster.snode.restart()),
            "the enode": lambda: thread.run(lone.restart()),
            "the leader": self._kill_leader,
        }

    @property
    def address(self) -> str:
        """Where clients connect."""
        return str(self._cluster.address)

    def _kill_leader(self) -> None:
        self._thread.run(whole(self._client))  # otherwise two of three may be away
        leader = self._thread.run(leading(self._cluster, self._client))
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
    """The driver, started again whenever it ends."""

    def __init__(self, servers: Servers, topic: str, folder: Path) -> None:
        self._arguments, self._folder = (servers.address, topic, str(folder)), folder
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
        if self.driver.ends_within(0) is None:
            self.driver.kill()

    def _start(self) -> Driver:
        return Driver("tests.spark.killed_jobs", self._arguments, self._folder)

    def look(self) -> None:
        """Start the driver again if it has ended. Errors: AssertionError if it failed too often."""
        if self.driver.ends_within(LOOK_S) is None:
            return
        self.failures += not self.driver.hurt
        assert self.failures <= FAILURES_MAX * max(KILLS_OF_EACH, 1) * 5, self.driver.said()
        self.driver = self._start()

    @property
    def commits(self) -> int:
        """Number of committed batches of all queries."""
        return sum(1 for _ in self._folder.glob("**/commits/[0-9]*"))

    def wait_for_commits(self, count: int) -> None:
        """Wait for `count` more committed batches, at most `KILL_WITHIN_S`."""
        clock, until = SystemClock(), self.commits + count
        until_s = clock.monotonic_s() + KILL_WITHIN_S
        while self.commits < until and clock.monotonic_s() < until_s:
            self.look()

    def kill_driver(self) -> None:
        """Kill the driver and its JVM."""
        if self.driver.ends_within(0) is None:
            self.driver.kill()
        self.driver = self._start()

    def kill_worker(self) -> None:
        """Kill one of its Python processes, as soon as there are some."""
        while not (workers := self.driver.worker_ids()):
            self.look()
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(workers[Randomness().below(len(workers))], signal.SIGKILL)
        self.driver.hurt = True

    def finish(self) -> None:
        """Let the driver end after one more pass, and wait for it."""
        (self._folder / "finish").touch()
        self.driver.hurt = True  # the pass that is running may have met a kill
        while self.driver.ends_within(RUN_S) != 0:
            self.failures += 1
            assert self.failures <= FAILURES_MAX * max(KILLS_OF_EACH, 1) * 5, self.driver.said()
            self.driver = self._start()


@pytest.mark.long
@pytest.mark.timeout(RUN_S)
def test_kills_of_spark_and_of_servers_lose_and_double_nothing(spark: Any, servers: Servers, folder: Path) -> None:
    """Check 6, 7 and 16: lake, replay and copy have each message once, and every loss is reported."""
    topic, randomness = "grows", Randomness(11)
    kills: dict[str, int] = {}
    clock = SystemClock()
    began_s = clock.monotonic_s()
    until_s = began_s + KILLS_S
    with blocking.connect(servers.address) as client, Jobs.started(client, servers, topic, folder) as jobs:
        kinds = {"a worker": jobs.kill_worker, **servers.kills, DRIVER: jobs.kill_driver}
        changes = Changes(client, topic, folder)
        with Growth(servers.address, topic) as growth:
            for number in range(KILLS_OF_EACH):
                if clock.monotonic_s() > until_s:
                    break
                changes.make(number, jobs.look)
                jobs.wait_for_commits(1 + randomness.below(KILL_AFTER_COMMITS))
                for name in ordered(kinds, randomness):
                    jobs.driver.ends_within(randomness.uniform(0.0, KILL_LATER_S))
                    kinds[name]()
                    kills[name] = kills.get(name, 0) + 1
                tell(
                    f"{clock.monotonic_s() - began_s:6.0f} s, kills {kills}; {jobs.commits} batches, "
                    f"{jobs.failures} other ends, {len(growth.acknowledged)} messages"
                )
        jobs.finish()
    options = {"address": servers.address, "columns": "body"}
    lake = Lake(str(folder / "lake"), "delta").read(spark)
    back, copied = (
        spark.read.format("ortoo").options(subscribe=f"{topic}-{suffix}", **options).load() for suffix in (BACK, COPY)
    )
    frames = (lake, back, lake.where(f"topic = '{topic}'"), copied)
    archived = [tuple(row) for row in lake.selectExpr(*PLACES).collect()]
    whole_lake, replayed, of_topic, copy = (tuple(frame.selectExpr(*BODIES).first()) for frame in frames)
    tell(f"kills {kills}, {jobs.failures} other ends of drivers, {changes.trimmed} trimmed, {whole_lake}, {of_topic}")
    assert len(archived) == len(set(archived))
    assert growth.acknowledged <= set(archived)
    unknown = {int(place[4]) for place in set(archived) - growth.acknowledged if place[0] == topic}
    assert unknown <= set(range(growth.sent))
    assert whole_lake == replayed
    assert of_topic == copy
    lost = {place[0] for place in changes.acknowledged - set(archived)}
    reported = (folder / "driver.log").read_text()
    known = "".join(file.read_text() for file in (folder / "lake_checkpoint/offsets").glob("[0-9]*"))
    assert [name for name in lost if f'"{name}"' in known and f" of {name} on " not in reported] == []
    assert len(set(kills.values())) == 1
    assert changes.trimmed > 0


def ordered(kinds: Mapping[str, object], randomness: Randomness) -> list[str]:
    """The kinds of kills in a random order, with the driver last."""
    rest = [name for name in kinds if name != DRIVER]
    return [*(rest.pop(randomness.below(len(rest))) for _ in range(len(rest))), DRIVER]


def tell(line: str) -> None:
    """Print the progress of the test."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
