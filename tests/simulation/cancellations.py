"""Calls of producers and consumers, each cancelled at a random moment: at every await, with enough of them.

python -m tests.simulation.cancellations [--count N] [--seeds N]

The time before the cancellation is drawn for each call from the usual durations. So a call ends before it begins, in
the middle of any conversation, or not at all. Afterwards nothing may be left: no lost message, no lease without an
owner, no group member, no open call, no task.
"""

import argparse
import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

from ortoo.client import Client, ConsumerSettings, Message, NotFound, PopSettings, PullSettings
from ortoo.snode.app import CLIENT_SWEEP_INTERVAL_S
from ortoo.snode.clients.pop_consumers import LEASE_EXPIRY_S_MAX
from ortoo.testing.simulation.cluster.cluster import ClusterShape
from ortoo.testing.simulation.kernel.process import current_process
from tests.simulation.scripted_cluster import ScriptedCluster, play

SHAPE = ClusterShape(enodes=2, snodes=2)
PATIENCE_S = (0.012, 0.08)
"""About the duration of the shortest of the calls when messages are there, and of the longest."""
BURST = 6
"""Messages sent at once, so that there are always some."""
LEASE_MS = 3_600_000.0
"""Longer than any run: messages of a cancelled pop must come again because they were released."""
REST_S = 20.0
"""The time after the last cancellation within which all clean-up is complete."""
LISTED_S = LEASE_EXPIRY_S_MAX + CLIENT_SWEEP_INTERVAL_S
"""The time for which a consumer that popped is listed: its leases are long."""
WHOLE_S = 3.0
"""Longer than any of the calls that end."""
GROUPS = ("popping", "pulling", "pushed")


class Cancellations:
    """One client that cancels calls repeatedly."""

    def __init__(self, stage: ScriptedCluster, client: Client) -> None:
        self.chance = stage.world.random_streams.stream("patience")
        self.called_off = 0
        self.acknowledged: dict[bytes, None] = {}
        self.doubtful: dict[bytes, None] = {}
        """Bodies whose acknowledgement was requested and then cancelled."""
        self.stored: dict[bytes, None] = {}
        self._client = client
        self._sent = 0
        self._popping = PopSettings(invisible_ms=LEASE_MS, renew_max_ms=0, wait_ms=30, messages_max=4)

    async def some(self, count: int) -> None:
        """Cancel `count` calls; pops are the most frequent, because they have the most to lose."""
        calls = (self._send, self._pop, self._pull, self._pop, self._push, self._pop)
        tries = 0
        while self.called_off < count:
            await self._impatient(calls[tries % len(calls)])
            tries += 1

    async def patiently(self) -> None:
        """Make each call once, so that the client's caches are filled."""
        for call in (self._send, self._pop, self._pull, self._push):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WHOLE_S):
                    await call()

    async def rest(self) -> None:
        """Receive the rest without cancellations; then every stored message must be done."""
        async with self._client.pop_consumer("popping", "t", "*", self._popping) as consumer:
            while messages := await consumer.pop(100, 2_000):
                for message in messages:
                    assert message.attempt == 1, f"{message.body!r} is delivered for the {message.attempt}th time"
                    assert message.body not in self.acknowledged, f"{message.body!r} comes again"
                    await message.ack()
                    self.acknowledged[message.body] = None

    async def _impatient(self, call: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(self.chance.uniform(0.0, PATIENCE_S[self.chance.below(2)])):
                await call()
        except TimeoutError:
            self.called_off += 1

    async def _send(self) -> None:
        bodies = [f"{self._sent}-{number}".encode() for number in range(BURST)]
        self._sent += 1
        async with self._client.producer("t") as producer:
            soon = [await producer.enqueue(Message(body)) for body in bodies[: BURST // 2]]
            await asyncio.gather(*soon, *(producer.send(Message(body)) for body in bodies[BURST // 2 :]))
            self.stored.update(dict.fromkeys(bodies))

    async def _pop(self) -> None:
        async with self._client.pop_consumer("popping", "t", "*", self._popping) as consumer:
            for message in await consumer.pop():
                self.doubtful[message.body] = None
                await message.ack()
                self.acknowledged[message.body] = None

    async def _pull(self) -> None:
        async with self._client.pull_consumer("pulling", {"t": "*"}, PullSettings(from_beginning=True)) as consumer:
            async for message in consumer:
                message.ack()

    async def _push(self) -> None:
        async with self._client.consumer("pushed", {"t": "*"}, ConsumerSettings(from_beginning=True)) as consumer:
            async for message in consumer:
                message.ack()


def called_off(seed: int, count: int) -> None:
    """Cancel `count` calls in a cluster, and look for remains."""

    async def script(stage: ScriptedCluster) -> None:
        async with stage.connect("app") as client:
            await client.admin.ensure_topic("t", queue_count=2)
            cancellations = Cancellations(stage, client)
            await cancellations.patiently()
            await stage.clock.sleep(REST_S)
            tasks, calls = own_tasks(), stage.world.network.open_calls("script")
            await cancellations.some(count)
            await cancellations.rest()
            lost = cancellations.stored.keys() - cancellations.acknowledged.keys() - cancellations.doubtful.keys()
            assert not lost, f"{sorted(lost)} never came"
            await stage.clock.sleep(REST_S)
            lag = (await client.admin.describe_lag("popping", "t")).lag_messages
            assert lag == 0, f"{lag} messages are still leased"
            await stage.clock.sleep(LISTED_S)
            for group in GROUPS:
                assert await members(client, group) == [], f"{group} has a member that left"
            assert own_tasks() == tasks
            assert stage.world.network.open_calls("script") == calls

    play(script, seed=seed, shape=SHAPE)


def own_tasks() -> list[str]:
    """The names of the tasks of the current process."""
    process = current_process()
    assert process is not None
    return sorted(task.get_name() for task in process.tasks())


async def members(client: Client, group: str) -> list[str]:
    """The client ids of a group's members."""
    try:
        return [one.client_id for one in (await client.admin.groups.describe(group)).members]
    except NotFound:
        return []  # the group was never joined


def main(arguments: Sequence[str] | None = None, say: Callable[[str], None] = print) -> None:
    """Run it for several seeds; the first remains end it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args(arguments)
    for seed in range(1, options.seeds + 1):
        called_off(seed, options.count)
        say(f"seed {seed}: {options.count} calls were cancelled, and nothing is left of them")


if __name__ == "__main__":
    main()
