"""Lives of messages with real processes: message groups, a killed consumer, a replay of dead letters that is killed."""

import asyncio
import sys
from pathlib import Path

from ortoo.client import connect
from ortoo.common.process.clock import SystemClock
from ortoo.testing.runs.fifo_run import FifoRun
from ortoo.testing.runs.replay_run import ReplayRun, faults
from ortoo.testing.servers.processes import process_cluster

CLOCK = SystemClock()
INVISIBLE_MS = 1_500
CONSUMER = f"""
import asyncio, sys
from ortoo.client import PopSettings, connect

async def main():
    settings = PopSettings(invisible_ms={INVISIBLE_MS})
    async with connect(sys.argv[1]) as mq, mq.pop_consumer("g", "jobs", settings=settings) as consumer:
        [message] = await consumer.pop()
        print(message.attempt, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_killed_consumer_loses_its_message_within_the_lease_and_a_second(tmp_path: Path) -> None:
    """A process that renewed its lease until it was killed; another one, waiting, gets the message (G8)."""
    async with process_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        await mq.admin.create_topic("jobs")
        async with mq.producer("jobs") as producer:
            await producer.send(b"work")
        killed = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CONSUMER, cluster.address, stdout=asyncio.subprocess.PIPE
        )
        try:
            assert killed.stdout is not None
            assert await killed.stdout.readline() == b"1\n"
            async with mq.pop_consumer("g", "jobs") as other:
                assert await other.pop(wait_ms=2 * INVISIBLE_MS) == []  # the lease is renewed
                killed.kill()
                killed_at_s = CLOCK.monotonic_s()
                [message] = await other.pop()
                assert CLOCK.monotonic_s() - killed_at_s < INVISIBLE_MS / 1000 + 1
                assert message.attempt == 2
                await message.ack()
        finally:
            if killed.returncode is None:
                killed.kill()
            await killed.wait()


async def test_message_groups_keep_their_order_while_consumers_come_and_go_and_one_group_is_poisoned(
    tmp_path: Path,
) -> None:
    """No message before the one before it is acknowledged; the others do not wait for the poisoned group (G5)."""
    seen = await FifoRun(tmp_path, keys=300, per_key=4, consumers=12, rounds=1, pop_messages=4).run()
    assert seen["inversions"] == 0
    assert seen["poison_deliveries"] > 1
    assert seen["consumers_joined"] > 24


async def test_a_replay_that_is_killed_goes_on_and_sends_each_dead_letter_once(tmp_path: Path) -> None:
    """The command killed, then the enode; a dry run before changes no byte of the store (E-173)."""
    seen = await ReplayRun(tmp_path, letters=4_000).run()
    assert faults(seen) == {}
    for case in ("command killed", "enode killed"):
        assert seen[case]["dry_run_finds"] == 4_000
        assert 2_000 <= seen[case]["found_sent_already"] < 4_000
        assert seen[case]["found_sent_already"] + seen[case]["sent_afterwards"] == 4_000
