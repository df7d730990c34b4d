"""Drain an enode while messages flow, stop it, and report the effect on messages.

    python -m tests.e2e.drained_enode --rate 2000

Two enodes, one snode, real processes. Every fourth message belongs to one of eight message groups; one group is pushed,
another one pops. `ortoo enode drain enode-1 --wait` runs in the middle; when it returns, the process is stopped. The
exit code is 1 when a message was lost to either group or a send failed. It is also 1 when a message took longer than a
second from its planned send to its acknowledgement or to its first delivery.
"""

import argparse
import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ortoo.client import (
    Client,
    ConsumerSettings,
    Message,
    PopConsumer,
    PopSettings,
    Producer,
    ProducerSettings,
    connect,
)
from ortoo.common.logs import logger as logs
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.verification.servers import command
from ortoo.verification.servers.processes import ProcessCluster, process_cluster
from tests.e2e.drill import run_drill
from tests.e2e.machine import Machine

TOPIC, PUSHED, POPPED = "draining", "pushed", "popped"
DELAY_MAX_S = 1.0
QUIET_S = 5.0
"""Seconds of traffic before the drain, and after the enode has stopped."""
TICK_S = 0.01
POPPERS = 4
PATIENCE_S = 120.0
CLOCK = SystemClock()


@dataclass
class Cost:
    """The outcome of the messages."""

    planned_s: dict[bytes, float] = field(default_factory=dict)
    acknowledged: set[bytes] = field(default_factory=set)
    failed: list[str] = field(default_factory=list)
    got: dict[str, set[bytes]] = field(default_factory=lambda: {PUSHED: set(), POPPED: set()})
    slowest_s: dict[str, float] = field(default_factory=dict)
    """The longest time from the planned send to the acknowledgement, and to each group's first delivery."""
    drain_s: float = 0.0
    machine: Machine = field(default_factory=Machine)

    def ended(self, what: str, body: bytes) -> None:
        """A message was acknowledged, or delivered for the first time."""
        took_s = CLOCK.monotonic_s() - self.planned_s[body]
        self.slowest_s[what] = max(took_s, self.slowest_s.get(what, 0.0))

    def came(self, group: str, body: bytes) -> None:
        """A group received a message."""
        if body not in self.got[group]:
            self.got[group].add(body)
            self.ended(group, body)

    @property
    def lost(self) -> int:
        """Acknowledged messages that a group did not receive."""
        return sum(len(self.acknowledged - got) for got in self.got.values())

    def faults(self, delay_max_s: float = DELAY_MAX_S) -> list[str]:
        """The broken guarantees."""
        found = [f"a send failed: {text}" for text in self.failed[:5]]
        found += [f"{self.lost} messages are lost"] if self.lost else []
        late = ((what, took_s) for what, took_s in self.slowest_s.items() if took_s > delay_max_s)
        return found + [f"{what}: a message took {took_s:.2f} s" for what, took_s in late]

    def summary(self) -> str:
        """One line."""
        slowest = ", ".join(f"{what} {took_s * 1000:.0f} ms" for what, took_s in sorted(self.slowest_s.items()))
        return (
            f"{len(self.planned_s)} sent, {len(self.failed)} failed, {self.lost} lost, "
            f"drained in {self.drain_s:.1f} s, slowest {slowest}; {self.machine}"
        )


async def drained(folder: Path, *, rate: int, say: Callable[[str], object]) -> Cost:
    """Run it in `folder`."""
    cost = Cost()
    async with process_cluster(folder, enodes=2) as cluster, connect(cluster.address) as mq:
        await mq.admin.create_topic(TOPIC)
        async with Background("load") as background, connect(cluster.address) as other:
            background.spawn("pushed", _push(other, cost))
            background.spawn("popped", _pop(other, cost))
            async with mq.producer(TOPIC, ProducerSettings(linger_ms=1)) as producer:
                sending = background.spawn("sender", _send(producer, cost, rate, background))
                await _drain(cluster, cost, say)
                sending.cancel()
                with contextlib.suppress(TimeoutError):  # then messages are lost, and the result reports it
                    async with asyncio.timeout(PATIENCE_S):
                        while len(cost.acknowledged) + len(cost.failed) < len(cost.planned_s) or cost.lost:
                            await CLOCK.sleep(0.05)
    return cost


async def _drain(cluster: ProcessCluster, cost: Cost, say: Callable[[str], object]) -> None:
    await CLOCK.sleep(QUIET_S)
    say(f"before the drain: {cost.summary()}")
    begun_s = CLOCK.monotonic_s()
    typed = await command.run(["ortoo", "enode", "drain", "enode-1", "--wait"], cluster.address, timeout_s=PATIENCE_S)
    cost.drain_s = CLOCK.monotonic_s() - begun_s
    say(f"{typed.stdout.strip()} ({cost.drain_s:.1f} s)" if not typed.exit_code else typed.stderr)
    if code := typed.exit_code or await cluster.enodes[1].stop():
        cost.failed.append(f"exit code {code}")
    await CLOCK.sleep(QUIET_S)


async def _push(mq: Client, cost: Cost) -> None:
    async with mq.consumer(PUSHED, TOPIC, ConsumerSettings(from_beginning=True, ack_interval_ms=20)) as consumer:
        async for batch in consumer.batches():
            for body in batch.bodies():
                cost.came(PUSHED, bytes(body))
            batch.ack()


async def _pop(mq: Client, cost: Cost) -> None:
    settings = PopSettings(messages_max=256, wait_ms=2_000)
    async with mq.pop_consumer(POPPED, TOPIC, settings=settings) as consumer, asyncio.TaskGroup() as group:
        for _ in range(POPPERS):
            group.create_task(_pop_on(consumer, cost))


async def _pop_on(consumer: PopConsumer, cost: Cost) -> None:
    while True:
        messages = await consumer.pop()
        for message in messages:
            cost.came(POPPED, message.body)
        leases = dict.fromkeys(message.lease for message in messages)
        await asyncio.gather(*(consumer.ack(lease, sorted(lease.open_offsets)) for lease in leases))


async def _send(producer: Producer, cost: Cost, rate: int, background: Background) -> None:
    """Send `rate` messages a second, each watched on its own; a stall of this process does not hide delays."""
    due_s = CLOCK.monotonic_s()
    while True:
        first, count = len(cost.planned_s), max(1, round(rate * TICK_S))
        bodies = [b"%010d" % number for number in range(first, first + count)]
        cost.planned_s |= dict.fromkeys(bodies, due_s)
        background.spawn("tick", _watch(producer, bodies, cost))
        due_s += TICK_S
        await CLOCK.sleep(max(0.0, due_s - CLOCK.monotonic_s()))
        cost.machine.look(CLOCK.monotonic_s(), due_s)


async def _watch(producer: Producer, bodies: list[bytes], cost: Cost) -> None:
    groups = (f"{number % 32}" if (number := int(body)) % 4 == 0 else None for body in bodies)
    messages = [Message(body, message_group=group) for body, group in zip(bodies, groups, strict=True)]
    for body, sending in zip(bodies, await producer.send_many(messages), strict=True):
        try:
            await sending
        except Exception as error:
            cost.failed.append(repr(error))
        else:
            cost.acknowledged.add(body)
            cost.ended("acknowledged", body)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=2000, help="messages a second")
    arguments = parser.parse_args()
    logs.configure(level="error")
    with tempfile.TemporaryDirectory(prefix="ortoo-drain-") as folder:
        cost = run_drill(drained(Path(folder), rate=arguments.rate, say=lambda text: sys.stdout.write(f"{text}\n")))
    sys.stdout.write("\n".join([*cost.faults(), cost.summary(), ""]))
    return 1 if cost.faults() else 0


if __name__ == "__main__":
    sys.exit(main())
