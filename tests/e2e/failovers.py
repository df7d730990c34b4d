"""Harm the leader of an enode of three replicas, round after round, under load; then check the answers to clients.

    python -m tests.e2e.failovers --rounds 12
    python -m tests.e2e.failovers --rounds 50 --only hand-over
    python -m tests.e2e.failovers --saturated 1800

Rounds rotate through these kinds:

* kill -9, or freeze (SIGSTOP, later SIGCONT);
* an emptied disk;
* a stop, which transfers leadership;
* cut off from the other replicas only;
* deaf to the other replicas, which still receive its bytes: only their answers are lost.

With `--only` all rounds are of one kind; also `hand-over`, a transfer of leadership by an operator, after which no
process stops. Planned kinds must cost little: sends of the second that follows are compared with those of the second
before. Each round reports its slowest send, and the time from the fault until a send that a client began afterwards was
acknowledged. A round in which the machine itself stalled for more than 200 ms is repeated and counted. At the end the
whole history is compared with what a single log could have returned.

With `--saturated` there are no faults. A producer sends at full speed for `SECONDS`, the leader must not change, and no
other send may be refused.
"""

import argparse
import asyncio
import contextlib
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.percentiles import percentile
from bench.traffic import produce_for
from ortoo.client import Client, NotFound, OrtooError, Producer, ProducerSettings, Queue, connect
from ortoo.common.logs import logger as logs
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.verification.servers.processes import ProcessCluster, RoleProcess
from tests.e2e.drill import run_drill, say
from tests.e2e.history import History, Read, Send
from tests.e2e.replica_cluster import ENODE, REPLICAS, leading, number_of, reign, replace_disk, replica_cluster, whole
from tests.e2e.replica_network import ReplicaNetwork, replica_network

TOPIC = "take-overs"
QUEUES = 2
CUT_OFF, DEAF = "cut-off", "deaf"
HARMS = ("kill", "freeze", "empty", "stop", CUT_OFF, DEAF)
PLANNED = ("stop", "hand-over")
STALL_S = 0.2
PROBE_S = 0.01
READ_S = 0.2
CALM_S = 1.0
"""Pause between two rounds, at least; planned rounds compare sends over this time before and after."""
ROUND_S = 120.0
MEDIAN_MAX_S, MOST_S = 2.0, 3.0
PLANNED_MAX_S = 0.3
"""Limit for the slowest sends around planned rounds: for p99.9, and for the growth of the longest."""

BULK_TOPIC, BULK_QUEUES, BULK_BODY_BYTES = "bulk", 8, 256
KEPT_LITTLE = {"STORE_SEGMENT_BYTES": 32 << 20, "STORE_RETENTION_BYTES": 512 << 20}
"""Settings of an enode that never fills the disk."""


@dataclass(slots=True)
class Round:
    """The result of one round."""

    harm: str
    took_s: float
    slowest_s: float
    stalled_s: float
    """The longest stall of the machine."""
    before_s: list[float] = field(default_factory=list)
    """Duration of sends in the second before."""
    sends_s: list[float] = field(default_factory=list)
    """Duration of sends that were under way or began in the second after."""


@dataclass(slots=True)
class Load:
    """One client that sends and one that reads, with the history of both."""

    clock: SystemClock
    rate: int
    history: History = field(default_factory=History)
    stalled_s: float = 0.0
    _sent: int = 0
    _open: dict[bytes, float] = field(default_factory=dict)
    """Start times of sends that have not ended."""

    async def send(self, producer: Producer, background: Background) -> None:
        """Send `rate` messages a second, each watched on its own."""
        due_s = self.clock.monotonic_s()
        while True:
            self._sent += 1
            background.run_contained("send", self._send(producer, b"%d" % self._sent))
            due_s = max(due_s + 1 / self.rate, self.clock.monotonic_s() - 1)
            await self.clock.sleep(max(0.0, due_s - self.clock.monotonic_s()))

    async def _send(self, producer: Producer, body: bytes) -> None:
        begun_s = self._open[body] = self.clock.monotonic_s()
        try:
            receipt = await producer.send(body)
        except OrtooError:
            self.history.sends.append(Send(body, self._open.pop(body), self.clock.monotonic_s()))
            return
        del self._open[body]
        ended_s = self.clock.monotonic_s()
        self.history.sends.append(Send(body, begun_s, ended_s, receipt.queue.queue_id, receipt.offset))

    async def read(self, mq: Client) -> None:
        """Read the new messages of each queue, again and again."""
        at: dict[int, int] = {}
        while True:
            with contextlib.suppress(OrtooError):
                begun_s = self.clock.monotonic_s()
                for item in (await mq.admin.describe_topic(TOPIC)).queues:
                    number = item.queue.queue_id
                    begin = at.get(number, item.begin_offset)
                    read = await self._read(mq, item.queue, begin, item.end_offset, begun_s)
                    self.history.reads.append(read)
                    at[number] = max(begin, *(offset + 1 for offset, _ in read.found), begin)
            await self.clock.sleep(READ_S)

    async def last_look(self, mq: Client) -> None:
        """Read all messages; a send that is unanswered by now may be stored or not."""
        now_s = self.clock.monotonic_s()
        self.history.sends += [Send(body, begun_s, now_s) for body, begun_s in self._open.items()]
        self._open.clear()
        begun_s = self.clock.monotonic_s()
        for item in (await mq.admin.describe_topic(TOPIC)).queues:
            self.history.final.append(await self._read(mq, item.queue, item.begin_offset, item.end_offset, begun_s))

    async def _read(self, mq: Client, queue: Queue, begin: int, end: int, begun_s: float) -> Read:
        found: list[tuple[int, bytes]] = []
        if begin < end:
            async for batch in mq.fetch(queue, begin, end):
                found += zip(batch.offsets, batch.bodies(), strict=True)
        return Read(queue.queue_id, begun_s, self.clock.monotonic_s(), end, tuple(found))

    async def probe(self) -> None:
        """Record the delay of a short sleep: no cluster can be faster than its processes are scheduled."""
        while True:
            before_s = self.clock.monotonic_s()
            await self.clock.sleep(PROBE_S)
            self.stalled_s = max(self.stalled_s, self.clock.monotonic_s() - before_s - PROBE_S)

    async def first_after(self, at_s: float) -> float:
        """When a send that began after `at_s` was acknowledged."""
        looked = len(self.history.sends)
        while True:
            for one in self.history.sends[looked:]:
                if one.offset >= 0 and one.invoked_s >= at_s:
                    return one.ended_s
            looked = len(self.history.sends)
            await self.clock.sleep(PROBE_S)


@dataclass(slots=True)
class TakeOvers:
    """All rounds of one run."""

    cluster: ProcessCluster
    mq: Client
    load: Load
    say: Callable[[str], object]
    lines: ReplicaNetwork
    harms: tuple[str, ...] = HARMS
    rounds: list[Round] = field(default_factory=list)
    repeated: int = 0

    async def run(self, count: int) -> None:
        """Run `count` rounds with meaningful times."""
        while len(self.rounds) < count and self.repeated < 2 * count:
            async with asyncio.timeout(ROUND_S):
                done = await self.round(self.harms[len(self.rounds) % len(self.harms)], await self.ready())
            self.say(
                f"{done.harm}: {done.took_s:.2f} s, slowest send {done.slowest_s:.2f} s, "
                f"machine stalled for {done.stalled_s * 1000:.0f} ms"
            )
            if done.stalled_s > STALL_S:
                self.repeated += 1
            else:
                self.rounds.append(done)

    async def ready(self) -> RoleProcess:
        """Wait until all replicas are up, and a little longer; return the leader."""
        await whole(self.mq)
        await self.load.clock.sleep(CALM_S)
        return await leading(self.cluster, self.mq)

    async def round(self, harm: str, leader: RoleProcess) -> Round:
        """Harm the leader, wait until a send is acknowledged again, and repair it."""
        load, clock = self.load, self.load.clock
        load.stalled_s = 0.0
        begun_s = clock.monotonic_s()
        stopping = await self._harm(leader, harm)
        took_s = await load.first_after(begun_s) - begun_s
        stalled_s = load.stalled_s
        if stopping is not None:
            await stopping
        await self._mend(leader, harm)
        await clock.sleep(max(0.0, begun_s + CALM_S - clock.monotonic_s()))
        sends = load.history.sends
        slowest_s = max((one.ended_s - one.invoked_s for one in sends if one.ended_s > begun_s), default=0)
        near = [one for one in sends if abs(one.invoked_s - begun_s) < CALM_S or one.invoked_s < begun_s < one.ended_s]
        before_s = [one.ended_s - one.invoked_s for one in near if one.ended_s <= begun_s]
        sends_s = [one.ended_s - one.invoked_s for one in near if one.ended_s > begun_s]
        return Round(harm, took_s, slowest_s, stalled_s, before_s, sends_s)

    async def _harm(self, leader: RoleProcess, harm: str) -> "asyncio.Future[int] | None":
        if harm == "freeze":
            leader.freeze()
        elif harm == CUT_OFF:
            self.lines.cut_off(number_of(leader))
        elif harm == DEAF:
            self.lines.deafen(number_of(leader))
        elif harm == "hand-over":
            await self.mq.admin.replicas.transfer_leadership(ENODE)
        elif harm == "stop":
            return asyncio.ensure_future(leader.stop())  # noqa: TID251  # awaited in the same round
        else:
            await leader.kill()
        return None

    async def _mend(self, leader: RoleProcess, harm: str) -> None:
        self.lines.heal()
        if harm == "freeze":
            leader.thaw()
        elif harm == "empty":
            await replace_disk(self.mq, leader)
        elif not leader.alive:
            await leader.start()

    def faults(self) -> list[str]:
        """The broken guarantees."""
        found = self.load.history.problems()
        unplanned = [one.took_s for one in self.rounds if one.harm not in PLANNED]
        if unplanned and statistics.median(unplanned) > MEDIAN_MAX_S:
            found.append(f"the median failover took longer than {MEDIAN_MAX_S} s")
        if unplanned and max(unplanned) > MOST_S:
            found.append(f"a failover took {max(unplanned):.2f} s")
        if self.harms[0] in PLANNED:
            before, behind = self._planned(self.harms[0])
            if behind[1] > PLANNED_MAX_S or behind[2] > before[2] + PLANNED_MAX_S:
                found.append(f"sends took up to {behind[2]:.2f} s, one in a thousand {behind[1]:.2f} s")
        return found

    def _planned(self, harm: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """p50, p99.9 and the longest of sends before and after, in seconds."""
        rounds = [one for one in self.rounds if one.harm == harm]
        before = [took_s for one in rounds for took_s in one.before_s]
        behind = [took_s for one in rounds for took_s in one.sends_s]
        shares = (0.5, 0.999, 1.0)
        return tuple(percentile(before, one) for one in shares), tuple(percentile(behind, one) for one in shares)

    def summary(self) -> str:
        """A few lines."""
        history = self.load.history
        acknowledged = sum(one.offset >= 0 for one in history.sends)
        lines = [f"{len(history.sends)} sent, {acknowledged} acknowledged, {len(history.reads)} reads"]
        for harm in dict.fromkeys((*HARMS, *PLANNED)):
            some = [one for one in self.rounds if one.harm == harm]
            if some:
                took, slowest = [one.took_s for one in some], max(one.slowest_s for one in some)
                lines.append(
                    f"{harm}: {len(some)} rounds, until a send was acknowledged p50 {statistics.median(took):.2f} s, "
                    f"max {max(took):.2f} s; slowest send {slowest:.2f} s"
                )
            if some and harm in PLANNED:
                told = (" / ".join(f"{took_s:.3f}" for took_s in one) for one in self._planned(harm))
                lines.append("{}: sends p50 / p99.9 / max {} s in the second before, {} s after".format(harm, *told))
        lines.append(f"{self.repeated} rounds were repeated, because the machine itself stalled")
        return "\n".join(lines)


@contextlib.asynccontextmanager
async def under_load(
    cluster: ProcessCluster,
    *,
    rate: int,
    say: Callable[[str], object],
    is_kept: bool = True,
    lines: ReplicaNetwork | None = None,
) -> AsyncIterator[TakeOvers]:
    """Send and read while the block runs; if `is_kept`, complete the history at the end."""
    clock = SystemClock()
    load = Load(clock, rate)
    async with connect([one.address for one in cluster.snodes]) as mq, Background("load") as background:
        await leading(cluster, mq)
        while True:
            with contextlib.suppress(OrtooError):
                await mq.admin.ensure_topic(TOPIC, queue_count=QUEUES)
                break
            await clock.sleep(PROBE_S)
        async with Background("senders") as senders:
            producer = await _producer(mq, senders, clock)
            senders.spawn("send", load.send(producer, background))
            senders.spawn("read", load.read(mq))
            senders.spawn("probe", load.probe())
            yield TakeOvers(cluster, mq, load, say, lines or ReplicaNetwork(0))
        if is_kept:
            await whole(mq)
        while is_kept:
            try:
                await load.last_look(mq)
                return
            except (OrtooError, NotFound):
                load.history.final.clear()
                await clock.sleep(CALM_S)


async def failovers(
    folder: Path, *, rounds: int, rate: int, say: Callable[[str], object], harms: tuple[str, ...] = HARMS
) -> TakeOvers:
    """Run it in `folder`."""
    async with (
        replica_network(REPLICAS if {CUT_OFF, DEAF} & set(harms) else 0) as lines,
        replica_cluster(folder, lines=lines) as cluster,
        under_load(cluster, rate=rate, say=say, lines=lines) as done,
    ):
        done.harms = harms
        await done.run(rounds)
    return done


async def saturated(folder: Path, *, seconds: float, rate: int, say: Callable[[str], object]) -> list[str]:
    """Send at full speed for `seconds`; return the broken guarantees."""
    async with (
        replica_cluster(folder, enode_environ=KEPT_LITTLE) as cluster,
        under_load(cluster, rate=rate, say=say, is_kept=False) as done,
    ):
        await done.ready()
        await done.mq.admin.create_topic(BULK_TOPIC, queue_count=BULK_QUEUES)
        before = await reign(done.mq)
        async with done.mq.producer(BULK_TOPIC) as producer:
            sent = await produce_for(producer, BULK_BODY_BYTES, seconds)
        after = await reign(done.mq)
        ended = [one.folder.name for one in cluster.enodes if not one.alive]
    sends = done.load.history.sends
    refused, slowest_s = sum(one.offset < 0 for one in sends), max(one.ended_s - one.invoked_s for one in sends)
    say(
        f"{sent.messages} messages in {sent.seconds:.0f} s, {sent.messages_per_s:.0f} a second, beside "
        f"{len(sends)} sends, {refused} refused, slowest {slowest_s:.2f} s; leader (replica, epoch) "
        f"{before} before, {after} after"
    )
    faults = [f"{refused} sends were refused"] if refused else []
    faults += [f"{name} ended on its own" for name in ended]
    return faults + ([f"{after} leads and {before} did, though no replica died"] if before != after else [])


async def _producer(mq: Client, background: Background, clock: SystemClock) -> Producer:
    """A producer that stays open until `background` ends."""
    opened: asyncio.Future[Producer] = asyncio.get_running_loop().create_future()

    async def keep() -> None:
        async with mq.producer(TOPIC, ProducerSettings(linger_ms=1)) as producer:
            opened.set_result(producer)
            await asyncio.get_running_loop().create_future()

    background.spawn("producer", keep())
    return await opened


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--rate", type=int, default=50, help="messages a second")
    parser.add_argument("--only", choices=(*HARMS, "hand-over"), help="one kind of rounds")
    parser.add_argument("--saturated", type=float, default=0.0, metavar="SECONDS", help="no faults, send at full speed")
    given = parser.parse_args()
    harms = (given.only,) if given.only else HARMS
    logs.configure(level="error")

    with tempfile.TemporaryDirectory() as folder:
        if given.saturated:
            faults = run_drill(saturated(Path(folder), seconds=given.saturated, rate=given.rate, say=say))
        else:
            done = run_drill(failovers(Path(folder), rounds=given.rounds, rate=given.rate, say=say, harms=harms))
            faults = done.faults()
            say(done.summary())
    for fault in faults:
        say(f"broken: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
