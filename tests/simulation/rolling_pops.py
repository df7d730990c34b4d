"""Enodes and snodes restarted gracefully, one after another, while consumers pop.

python -m tests.simulation.rolling_pops [--seeds N] [--first SEED] [--replicas]

Messages come at random moments. Some are leased just as their pop is cancelled, answered, or released by a stopping
process. None is lost, and no attempt counts that its consumer never saw.
"""

import argparse
import asyncio
from collections.abc import Callable, Sequence

from ortoo.client import Client, Fenced, OrtooError, PopSettings, Unavailable
from ortoo.testing.simulation.cluster.cluster import ClusterShape
from tests.simulation.scripted_cluster import ScriptedCluster, play

SHAPE = ClusterShape(enodes=2, snodes=2)
MEMBERS = ClusterShape(enodes=1, snodes=2, replicas=3)
"""A leading replica transfers leadership when it stops."""
JOINED_S = 10.0
"""After this time every enode has a leader."""
POPPERS = 3
LEASE_MS = 20_000.0
ROUNDS = 2
AT_ONCE = 4
"""Messages that come at once, so that several enodes have some for the same pop."""
BETWEEN_S = 0.05
"""The mean time between two such moments."""
MEANWHILE_S = 0.02
"""The largest delay from then to the stop of a process: during the store, or the delivery to a consumer."""
SETTLED_S = 1.0
"""The time from the readiness of a process to the stop of the next one."""


class RollingPops:
    """The sent messages and their deliveries."""

    def __init__(self, stage: ScriptedCluster, client: Client) -> None:
        self.stored: dict[bytes, None] = {}
        self.popped: dict[bytes, int] = {}
        """Body to the attempt of its first delivery."""
        self._burst = asyncio.Event()
        """Set when messages are about to be sent."""
        self._stage = stage
        self._client = client
        self._chance = stage.world.random_streams.stream("load")

    async def send(self) -> None:
        """Send bursts of messages, without end."""
        async with self._client.producer("t") as producer:
            number = 0
            while True:
                bodies = [b"%06d" % (number + at) for at in range(AT_ONCE)]
                number += AT_ONCE
                self._burst.set()
                await asyncio.gather(*map(producer.send, bodies))
                self.stored.update(dict.fromkeys(bodies))
                await self._stage.clock.sleep(self._chance.uniform(0, 2 * BETWEEN_S))

    async def pop(self) -> None:
        """One pop after another, without end; each message is acknowledged at once."""
        settings = PopSettings(invisible_ms=LEASE_MS, wait_ms=2_000, messages_max=256)
        async with self._client.pop_consumer("g", "t", settings=settings) as consumer:
            while True:
                try:
                    messages = await consumer.pop()
                except Unavailable:
                    continue
                for message in messages:
                    self.popped.setdefault(message.body, message.attempt)
                for outcome in await asyncio.gather(*(one.ack() for one in messages), return_exceptions=True):
                    if isinstance(outcome, OrtooError) and not isinstance(outcome, Fenced):
                        raise outcome

    async def restarts(self) -> None:
        """Restart every enode and snode in turn."""
        cluster = self._stage.cluster
        for _ in range(ROUNDS):
            for machine in (*cluster.stores, *cluster.snodes):
                self._burst.clear()
                await self._burst.wait()
                await self._stage.clock.sleep(self._chance.uniform(0, MEANWHILE_S))
                await machine.stop()
                machine.start()
                await machine.ready.wait()
                await self._stage.clock.sleep(self._chance.uniform(0.2, 2 * SETTLED_S))


def rolling_pops(seed: int, shape: ClusterShape = SHAPE) -> int:
    """Restart everything under pops; returns the number of delivered messages."""
    seen: list[int] = []

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await stage.clock.sleep(SETTLED_S if shape.replicas == 1 else JOINED_S)
            await client.admin.ensure_topic("t", queue_count=2)
            rolling = RollingPops(stage, client)
            async with asyncio.TaskGroup() as group:
                sending = group.create_task(rolling.send())
                popping = [group.create_task(rolling.pop()) for _ in range(POPPERS)]
                await stage.clock.sleep(1)
                await rolling.restarts()
                sending.cancel()
                for _ in range(100):
                    if rolling.stored.keys() <= rolling.popped.keys():
                        break
                    await stage.clock.sleep(LEASE_MS / 20_000)
                for one in popping:
                    one.cancel()
            missing = rolling.stored.keys() - rolling.popped.keys()
            assert not missing, f"{sorted(missing)} never came"
            burned = {body: attempt for body, attempt in rolling.popped.items() if attempt > 1}
            assert not burned, f"the consumer never saw an attempt of {burned}"
            seen.append(len(rolling.popped))

    play(script, seed=seed, shape=shape)
    return seen[0]


def main(arguments: Sequence[str] | None = None, say: Callable[[str], None] = print) -> None:
    """Run it for several seeds; the first attempt that no consumer saw ends it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--replicas", action="store_true", help="of an enode of three replicas")
    options = parser.parse_args(arguments)
    for seed in range(options.first, options.first + options.seeds):
        popped = rolling_pops(seed, MEMBERS if options.replicas else SHAPE)
        say(f"seed {seed}: {popped} messages, none lost, no attempt burned")


if __name__ == "__main__":
    main()
