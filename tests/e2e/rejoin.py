"""Empty the disk of a follower, add it again, and measure the time until it votes and the effect on sends.

    python -m tests.e2e.rejoin --megabytes 2000

The first round has no load and measures bytes a second. In the second one a client sends, and its slowest sends before
and during the rejoin are compared. The exit code is 1 when the first is slower than 60 MB/s, or the 99th percentile of
the second grows by more than half.
"""

import argparse
import contextlib
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ortoo.client import Client, OrtooError, Producer, ProducerSettings, connect
from ortoo.common.logs import logger as logs
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.verification.servers.processes import ProcessCluster, RoleProcess
from tests.e2e.drill import run_drill, say
from tests.e2e.replica_cluster import leading, replace_disk, replica_cluster, whole

TOPIC = "rejoin"
BODY = bytes(64 << 10)
SMALL_BODY = b"." * 100
SENDS_PER_S = 50
BEFORE_S = 10.0
SEGMENT_BYTES = 64 << 20
LEAST_MB_PER_S, MOST_GROWTH = 60.0, 1.5


@dataclass(slots=True)
class Rejoined:
    """The measurements."""

    log_bytes: int = 0
    idle_s: float = 0.0
    busy_s: float = 0.0
    before_s: list[float] = field(default_factory=list)
    """Duration of sends while all replicas were up."""
    meanwhile_s: list[float] = field(default_factory=list)
    """Duration of sends while one replica was catching up."""

    @property
    def idle_mb_per_s(self) -> float:
        """From the start of the empty disk's process until it votes."""
        return self.log_bytes / 1e6 / self.idle_s

    def faults(self) -> list[str]:
        """The broken guarantees."""
        found = []
        if self.idle_mb_per_s < LEAST_MB_PER_S:
            found.append(f"{self.idle_mb_per_s:.0f} MB/s, expected {LEAST_MB_PER_S:.0f}")
        if p99_ms(self.meanwhile_s) > MOST_GROWTH * p99_ms(self.before_s):
            found.append("sends took more than half as long again")
        return found

    def summary(self) -> str:
        """Two lines."""
        return (
            f"{self.log_bytes / 1e6:.0f} MB: a voter again after {self.idle_s:.1f} s, {self.idle_mb_per_s:.0f} MB/s; "
            f"under load after {self.busy_s:.1f} s\n"
            f"p99 of sends {p99_ms(self.before_s):.1f} ms before, {p99_ms(self.meanwhile_s):.1f} ms meanwhile"
        )


def p99_ms(took_s: list[float]) -> float:
    """The 99th percentile."""
    return statistics.quantiles(took_s, n=100)[98] * 1000 if len(took_s) > 1 else 0.0


async def rejoin(folder: Path, *, megabytes: int, say: Callable[[str], object]) -> Rejoined:
    """Run it in `folder`."""
    done, clock = Rejoined(), SystemClock()
    environ = {"STORE_SEGMENT_BYTES": SEGMENT_BYTES}
    async with replica_cluster(folder, enode_environ=environ) as cluster, connect([cluster.address]) as mq:
        await leading(cluster, mq)
        await fill(mq, megabytes << 20)
        done.log_bytes = sum(path.stat().st_size for path in cluster.enodes[0].data.glob("*.seg"))
        say(f"{done.log_bytes / 1e6:.0f} MB are stored")
        done.idle_s = await _replaced(cluster, mq, clock)
        async with Background("load") as background, mq.producer(TOPIC, ProducerSettings(linger_ms=1)) as producer:
            took_s = done.before_s
            sending = background.spawn("send", _send(producer, lambda one: took_s.append(one), clock))
            await clock.sleep(BEFORE_S)
            took_s = done.meanwhile_s
            done.busy_s = await _replaced(cluster, mq, clock)
            sending.cancel()
    return done


async def fill(mq: Client, size: int) -> None:
    """Store messages of this size in bytes."""
    while True:
        with contextlib.suppress(OrtooError):
            await mq.admin.ensure_topic(TOPIC, queue_count=2)
            break
    async with mq.producer(TOPIC) as producer:
        for _ in range(size // len(BODY)):
            await producer.enqueue(BODY)
        await producer.flush()


async def _replaced(cluster: ProcessCluster, mq: Client, clock: SystemClock) -> float:
    """Replace the disk of a follower; return the seconds from its start until it votes."""
    await whole(mq)
    leads = await leading(cluster, mq)
    lost: RoleProcess = next(one for one in cluster.enodes if one is not leads)
    await lost.kill()
    begun_s = clock.monotonic_s()
    await replace_disk(mq, lost)
    return clock.monotonic_s() - begun_s


async def _send(producer: Producer, took: Callable[[float], object], clock: SystemClock) -> None:
    """Send one after another, at most `SENDS_PER_S` a second."""
    while True:
        begun_s = clock.monotonic_s()
        await producer.send(SMALL_BODY)
        took(clock.monotonic_s() - begun_s)
        await clock.sleep(max(0.0, 1 / SENDS_PER_S - (clock.monotonic_s() - begun_s)))


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=2000)
    given = parser.parse_args()
    logs.configure(level="error")

    with tempfile.TemporaryDirectory(prefix="ortoo-rejoin-") as folder:
        done = run_drill(rejoin(Path(folder), megabytes=given.megabytes, say=say))
    say(done.summary())
    for fault in done.faults():
        say(f"broken: {fault}")
    return 1 if done.faults() else 0


if __name__ == "__main__":
    sys.exit(main())
