"""An enode with three replicas as processes: one is killed or cut off, another serves, nothing is lost."""

import asyncio
import contextlib
import os
import statistics
from pathlib import Path

from ortoo.client import Client, OrtooError, ProducerSettings, connect
from ortoo.common.process.clock import SystemClock
from tests.e2e.failovers import CUT_OFF, MOST_S, failovers
from tests.e2e.replica_cluster import leading, replica_cluster
from tests.e2e.replica_network import ON_LINUX
from tests.e2e.test_roles import everything

ROUNDS = int(os.environ.get("ORTOO_TAKE_OVERS", "3"))
SENDS = 10
"""A take-over has at most the round trips of this number of sends, each of which is slow on a busy machine."""


async def first_stored_s(client: Client, body: bytes) -> float:
    """Seconds until a message is acknowledged."""
    begun_s = SystemClock().monotonic_s()
    async with client.producer("t", ProducerSettings(linger_ms=1)) as producer:
        while True:
            with contextlib.suppress(OrtooError):
                await producer.send(body)
                return SystemClock().monotonic_s() - begun_s


async def test_a_member_takes_over(tmp_path: Path) -> None:
    """After each kill -9 of the leader another replica acknowledges within 3 s, and all messages are still there."""
    stored: list[bytes] = []
    took_s: list[float] = []
    async with asyncio.timeout(280), replica_cluster(tmp_path) as members, connect(members.address) as mq:
        first = await leading(members, mq)
        while True:
            with contextlib.suppress(OrtooError):
                await mq.admin.ensure_topic("t", queue_count=1)
                break
            await SystemClock().sleep(0.1)
        for number in range(ROUNDS):
            body = b"before %d" % number
            usual_s = await first_stored_s(mq, body)
            stored.append(body)
            first = await leading(members, mq)
            await first.kill()
            body = b"after %d" % number
            took_s.append(await first_stored_s(mq, body) - SENDS * usual_s)
            stored.append(body)
            await first.start()
        found = await everything(members.address, len(stored))
    assert sorted(set(stored) - found) == []
    assert statistics.median(took_s) < 3.0, took_s


@ON_LINUX
async def test_a_leader_that_only_its_followers_have_lost_is_followed(tmp_path: Path) -> None:
    """Clients, snodes and name servers reach it. Another replica acknowledges within 3 s, and it acknowledges nothing.

    When the cut ends, the answers to all clients are those of a single log.
    """
    async with asyncio.timeout(280):
        done = await failovers(tmp_path, rounds=1, rate=50, say=lambda text: None, harms=(CUT_OFF,))
    assert done.load.history.problems() == []
    assert max((one.took_s for one in done.rounds), default=0.0) < MOST_S, done.summary()
