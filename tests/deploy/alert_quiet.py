"""No alert fires for healthy clusters under load; a real Prometheus scrapes two of them at its real intervals.

    python -m tests.deploy.alert_quiet

One cluster has an enode of three replicas and gets 1,000 messages a second. A push group and a pop group consume them.
Calls that send single messages go to the same topic. The other cluster has little traffic. The rules are those of the
chart, with their own durations unless `--speed` says otherwise. Prints each alert that fired, those that were pending,
and the rate of the messages. The exit code is 1 when an alert fired, or when less than half of the messages were sent
or read.
"""

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ortoo.client import (
    Client,
    ConsumerSettings,
    OrtooError,
    PopSettings,
    ProducerSettings,
    SendFutures,
    Unavailable,
    connect,
)
from ortoo.common.logs import logger as logs
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.verification.servers.ports import free_ports
from tests.deploy.alert_scene import healthy_cluster, keep_publishing
from tests.deploy.prometheus import CLUSTER, MISSING, Prometheus, prometheus
from tests.e2e.drill import run_drill, say
from tests.e2e.replica_cluster import replica_cluster, whole

TOPIC = "busy"
TICK_S = 0.02
WATCH_S = 1.0
BODY = b"m" * 200
POPPED_MAX = 1_000
"""Messages of a pop; a group that pops each message alone would need more processor time than the whole rest."""


@dataclass(slots=True)
class Quiet:
    """The results of a run."""

    seconds: float = 0.0
    rate: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    """Messages that were sent, pushed and popped."""
    fired: dict[str, float] = field(default_factory=dict)
    """Alert and cluster to the time of the first look that saw it firing, s."""
    pending: dict[str, float] = field(default_factory=dict)
    """Alert and cluster to the time for which its condition held, s."""
    loads: list[float] = field(default_factory=list)
    """The load average of the machine at each look: an alert of an overloaded machine may be true."""

    @property
    def is_busy(self) -> bool:
        """Whether at least half of the messages were sent and read by each group."""
        return min(self.counts[way] for way in ("sent", "pushed", "popped")) >= self.rate * self.seconds / 2

    def table(self) -> str:
        """The results as text."""
        loads = f"{min(self.loads):.1f} to {max(self.loads):.1f} on {os.cpu_count()} processors"
        lines = [f"{self.seconds:.0f} s under load; load average {loads}"]
        lines += [f"{way}: {self.counts[way] / self.seconds:.0f} messages/s" for way in ("sent", "pushed", "popped")]
        lines += [f"fired after {at_s:.0f} s: {alert}" for alert, at_s in self.fired.items()] or ["no alert fired"]
        lines += [f"pending for {for_s:.0f} s: {alert}" for alert, for_s in self.pending.items()]
        return "\n".join([*lines, ""])


async def quiet(folder: Path, *, seconds: float, rate: int, speed: int, say: Callable[[str], object]) -> Quiet:
    """Run it in `folder` for this time, with time for Prometheus `speed` times as fast."""
    found = Quiet(rate=rate)
    clock = SystemClock()
    async with _clusters(folder, speed) as (mq, server), Background("load") as background:
        await _load(mq, background, rate, found.counts)
        begun_s = clock.monotonic_s()
        while found.seconds < seconds:
            await clock.sleep(WATCH_S)
            found.seconds = clock.monotonic_s() - begun_s
            found.loads.append(os.getloadavg()[0])
            await _look(server, found, say)
    return found


async def _look(server: Prometheus, found: Quiet, say: Callable[[str], object]) -> None:
    with contextlib.suppress(OSError, ValueError, KeyError):
        for alert, about in (await server.alerts("pending")).items():
            for name in {f"{alert} in {one.get(CLUSTER)}" for one in about}:
                found.pending[name] = found.pending.get(name, 0.0) + WATCH_S
        for alert, about in (await server.alerts()).items():
            for one in about:
                if (name := f"{alert} {one}") not in found.fired:
                    found.fired[name] = found.seconds
                    say(f"{found.seconds:.0f} s: {name} fires")


@asynccontextmanager
async def _clusters(folder: Path, speed: int) -> AsyncIterator[tuple[Client, Prometheus]]:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    async with (
        Background("steady") as background,
        replica_cluster(folder / "busy", metrics=True) as cluster,
        healthy_cluster(folder / "steady", background) as steady,
        connect(cluster.address) as mq,
    ):
        await whole(mq)
        targets = {"busy": [str(role.environ["METRICS_ADDRESS"]) for role in cluster.roles], "steady": steady}
        async with prometheus(folder / "prometheus", address, targets, speed=speed) as server:
            yield mq, server


async def _load(mq: Client, background: Background, rate: int, counts: Counter[str]) -> None:
    while True:
        with contextlib.suppress(Unavailable):  # the leader may not be known to all processes yet
            await mq.admin.ensure_topic(TOPIC)
            break
        await SystemClock().sleep(TICK_S)
    background.spawn("sender", _send(mq, rate, counts, background))
    background.spawn("single sends", keep_publishing(mq, TOPIC, interval_s=0.1))
    background.spawn("pushes", _push(mq, counts))
    background.spawn("pops", _pop(mq, counts))


async def _send(mq: Client, rate: int, counts: Counter[str], background: Background) -> None:
    """Send at this rate, without waiting for acknowledgements."""
    clock = SystemClock()
    due, begun_s = 0, clock.monotonic_s()
    async with mq.producer(TOPIC, ProducerSettings(linger_ms=5)) as producer:
        while True:
            behind = int((clock.monotonic_s() - begun_s) * rate) - due
            due += behind
            background.spawn("tick", _count(await producer.send_many([BODY] * behind), counts))
            await clock.sleep(TICK_S)


async def _count(sending: SendFutures, counts: Counter[str]) -> None:
    with contextlib.suppress(OrtooError):
        receipts = await sending
        counts["sent"] += len(receipts)


async def _push(mq: Client, counts: Counter[str]) -> None:
    settings = ConsumerSettings(from_beginning=True, ack_interval_ms=100)
    async with mq.consumer("pushes", TOPIC, settings) as consumer:
        async for batch in consumer.batches():
            counts["pushed"] += len(batch)
            batch.ack()


async def _pop(mq: Client, counts: Counter[str]) -> None:
    async with mq.pop_consumer("pops", TOPIC, "*", PopSettings(messages_max=POPPED_MAX)) as consumer:
        while True:
            messages = []
            with contextlib.suppress(Unavailable):  # no leader; the next pop is the retry
                messages = await consumer.pop(wait_ms=1_000)
            # An acknowledgement that is repeated after an election may find the message acknowledged.
            await asyncio.gather(*(message.ack() for message in messages), return_exceptions=True)
            counts["popped"] += len(messages)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0, help="time under load")
    parser.add_argument("--rate", type=int, default=1_000, help="messages a second")
    parser.add_argument("--speed", type=int, default=1, help="times faster than in production, for Prometheus")
    arguments = parser.parse_args()
    if MISSING:
        sys.stderr.write(f"NOT CHECKED: {', '.join(MISSING)} not installed here\n")
        return 77
    logs.configure(level="error")
    with tempfile.TemporaryDirectory(prefix="ortoo-quiet-") as folder:
        run = quiet(Path(folder), seconds=arguments.seconds, rate=arguments.rate, speed=arguments.speed, say=say)
        found = run_drill(run)
    say(found.table())
    return 1 if found.fired or not found.is_busy else 0


if __name__ == "__main__":
    sys.exit(main())
