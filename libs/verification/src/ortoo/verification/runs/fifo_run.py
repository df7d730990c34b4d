"""Many message groups, many consumers that join and leave, and one message group that always fails.

    python -m ortoo.verification.runs.fifo_run --keys 10000 --consumers 50 --rounds 11

Each round consumes two topics with the same messages, one after the other. In one of them the handlers of one message
group always fail. Order is checked at every delivery: when message n of a group arrives, n - 1 must have been
acknowledged.

The cost of the poisoned group to the others is the ratio of their rates in the same round. On a busy machine, the ratio
of processor time a message of all processes together has less noise.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ortoo.client import Client, Message, PopConsumer, PoppedMessage, PopSettings, connect
from ortoo.common.logs.logger import configure
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.verification.servers.processes import ProcessCluster, process_cluster

QUEUES = 4
GROUP = "g"
POISONED = 0
POISON_DELAY_MS = 20
SEND_AT_ONCE = 2_000
LIVES = (4, 12)
"""The range of pops after which a consumer leaves. It processes half of the last one, and the next consumer joins."""
COUNTED_PART = 0.9
"""The rate is that of this part of the messages: at the end, too few are left for all consumers."""
NEVER = 1_000_000


@dataclass
class FifoObservations:
    """The messages that consumers of one topic received."""

    keys: int
    per_key: int
    done: list[int] = field(init=False)
    """For each key, the first number that is not acknowledged."""
    remaining: int = field(init=False)
    """Messages of healthy keys that are not acknowledged."""
    inversions: int = 0
    redelivered: int = 0
    poison_deliveries: int = 0
    consumers: int = 0
    counted_at_s: float = 0.0
    finished: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        """Start with nothing received."""
        self.done = [0] * self.keys
        self.remaining = (self.keys - 1) * self.per_key

    def delivered(self, key: int, number: int) -> None:
        """A consumer received a message."""
        self.inversions += number > self.done[key]
        self.redelivered += number < self.done[key]

    def acknowledged(self, key: int, number: int, now_s: float) -> None:
        """A consumer is about to acknowledge a message."""
        if number < self.done[key]:
            return
        self.done[key] = number + 1
        self.remaining -= key != POISONED
        if not self.counted_at_s and self.remaining <= (1 - COUNTED_PART) * (self.keys - 1) * self.per_key:
            self.counted_at_s = now_s
        if not self.remaining:
            self.finished.set()


class FifoRun:
    """One run."""

    def __init__(
        self,
        folder: Path,
        *,
        keys: int,
        per_key: int = 3,
        consumers: int = 50,
        rounds: int = 3,
        pop_messages: int = 32,
        seed: int = 0,
    ) -> None:
        """Use `folder` for all data."""
        self._pop_messages = pop_messages
        self._folder, self._keys, self._per_key = folder, keys, per_key
        self._consumers, self._rounds = consumers, rounds
        self._chance, self._clock = Randomness(seed), SystemClock()

    async def run(self) -> dict[str, Any]:
        """Run it and return the figures."""
        rates: dict[bool, list[float]] = {False: [], True: []}
        costs_us: dict[bool, list[float]] = {False: [], True: []}
        seen: list[FifoObservations] = []
        store = {"STORE_HEADROOM_BYTES": 0}
        async with process_cluster(self._folder, environ={"enode": store}) as cluster, connect(cluster.address) as mq:
            for number in range(self._rounds):
                for is_poisoned in (False, True) if number % 2 else (True, False):
                    topic = f"round-{number}-{'poisoned' if is_poisoned else 'healthy'}"
                    await self._send(mq, topic)
                    before_s = cpu_s(cluster)
                    one, rate = await self._consume(cluster.address, topic, is_poisoned=is_poisoned)
                    seen.append(one)
                    rates[is_poisoned].append(rate)
                    costs_us[is_poisoned].append((cpu_s(cluster) - before_s) * 1e6 / (self._keys * self._per_key))
        ratios = [ill / well for ill, well in zip(rates[True], rates[False], strict=True)]
        cost_ratios = [ill / well for ill, well in zip(costs_us[True], costs_us[False], strict=True)]
        return {
            "keys": self._keys,
            "messages_a_topic": self._keys * self._per_key,
            "consumers_at_once": self._consumers,
            "consumers_joined": sum(one.consumers for one in seen),
            "inversions": sum(one.inversions for one in seen),
            "redelivered": sum(one.redelivered for one in seen),
            "poison_deliveries": sum(one.poison_deliveries for one in seen),
            "messages_per_s": {
                "healthy": [round(rate) for rate in rates[False]],
                "poisoned": [round(rate) for rate in rates[True]],
            },
            "others_beside_poison_to_without": [round(ratio, 3) for ratio in ratios],
            "median_ratio": round(statistics.median(ratios), 3),
            "cpu_us_a_message": {
                "healthy": round(statistics.median(costs_us[False]), 1),
                "poisoned": round(statistics.median(costs_us[True]), 1),
            },
            "median_cpu_ratio": round(statistics.median(cost_ratios), 3),
        }

    async def _send(self, mq: Client, topic: str) -> None:
        await mq.admin.create_topic(topic, queue_count=QUEUES)
        everything = [
            Message(b"%d/%d" % (key, number), message_group=f"key-{key}")
            for number in range(self._per_key)
            for key in range(self._keys)
        ]
        async with mq.producer(topic) as producer:
            for start in range(0, len(everything), SEND_AT_ONCE):
                await producer.send_many(everything[start : start + SEND_AT_ONCE])
            await producer.flush()

    async def _consume(self, address: str, topic: str, *, is_poisoned: bool) -> tuple[FifoObservations, float]:
        seen = FifoObservations(self._keys, self._per_key)
        began_s = self._clock.monotonic_s()
        async with asyncio.TaskGroup() as group:
            for _ in range(self._consumers):
                group.create_task(self._live(address, topic, seen, is_poisoned=is_poisoned))
        counted = COUNTED_PART * (self._keys - 1) * self._per_key
        return seen, counted / (seen.counted_at_s - began_s)

    async def _live(self, address: str, topic: str, seen: FifoObservations, *, is_poisoned: bool) -> None:
        """One consumer after another, until all messages of healthy groups are processed."""
        settings = PopSettings(in_order=True, attempts_max=NEVER, messages_max=self._pop_messages)
        while not seen.finished.is_set():
            pops = LIVES[0] + self._chance.below(LIVES[1] - LIVES[0])
            seen.consumers += 1
            async with connect(address) as mq, mq.pop_consumer(GROUP, topic, settings=settings) as consumer:
                for left in reversed(range(pops)):
                    messages = await consumer.pop(wait_ms=100)
                    if not left:
                        messages = messages[: len(messages) // 2]
                    await self._process(consumer, messages, seen, is_poisoned=is_poisoned)
                    if seen.finished.is_set():
                        break

    async def _process(
        self, consumer: PopConsumer, messages: Sequence[PoppedMessage], seen: FifoObservations, *, is_poisoned: bool
    ) -> None:
        for message in messages:
            key, number = map(int, message.body.split(b"/"))
            seen.delivered(key, number)
            if is_poisoned and key == POISONED:
                seen.poison_deliveries += 1
                await message.nack(POISON_DELAY_MS)
        now_s = self._clock.monotonic_s()
        chosen: dict[Any, list[int]] = {}
        for message in messages:
            key, number = map(int, message.body.split(b"/"))
            if not (is_poisoned and key == POISONED):
                seen.acknowledged(key, number, now_s)
                chosen.setdefault(message.lease, []).append(message.offset)
        await asyncio.gather(*[consumer.ack(lease, offsets) for lease, offsets in chosen.items()])


def cpu_s(cluster: ProcessCluster) -> float:
    """Processor seconds so far of snode, enode and this process."""
    spent = sum(os.times()[:2])
    for role in (cluster.enode, cluster.snode):
        fields = Path(f"/proc/{role.pid}/stat").read_text().rsplit(")", 1)[1].split()
        spent += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return spent


def main() -> None:
    """Run it from the command line and print the figures as JSON; exit code 1 when an order was violated."""
    parser = argparse.ArgumentParser(
        prog="python -m ortoo.verification.runs.fifo_run", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--per-key", type=int, default=5)
    parser.add_argument("--consumers", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    configure(level="error")
    with tempfile.TemporaryDirectory() as folder:
        run = FifoRun(
            Path(folder),
            keys=options.keys,
            per_key=options.per_key,
            consumers=options.consumers,
            rounds=options.rounds,
        )
        seen = asyncio.run(run.run())
    sys.stdout.write(json.dumps(seen) + "\n")
    sys.exit(seen["inversions"] > 0)


if __name__ == "__main__":
    main()
