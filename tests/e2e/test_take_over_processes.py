"""An enode of three members as processes: its leader is killed, and another one goes on with all that was stored."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from statistics import median

import pytest

from ortoo.client import Client, OrtooError, Queue, connect
from ortoo.common.process.clock import SystemClock
from ortoo.testing.servers.member_processes import MemberCluster, member_cluster

ROUNDS = 3


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[MemberCluster]:
    """Three members, a name server and a snode."""
    async with member_cluster(tmp_path) as started:
        yield started


async def topic(client: Client) -> None:
    """A topic of one queue, as soon as there is an enode to make it on."""
    while True:
        with contextlib.suppress(OrtooError):
            await client.admin.ensure_topic("t", queue_count=1)
            return
        await SystemClock().sleep(0.1)


class Sender:
    """Sends one message after another, each until it is acknowledged."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.acknowledged: list[bytes] = []
        self.queue: Queue | None = None

    async def send(self) -> None:
        """Have one more acknowledged, however often that takes."""
        body = b"%d" % len(self.acknowledged)
        async with self._client.producer("t") as producer:
            while True:
                with contextlib.suppress(OrtooError):
                    self.queue = (await producer.send(body)).queue
                    self.acknowledged.append(body)
                    return

    async def stored(self) -> list[bytes]:
        """All that can be read."""
        assert self.queue is not None
        return [body async for batch in self._client.fetch(self.queue) for body in batch.bodies()]


@pytest.mark.timeout(300)
async def test_a_killed_leader_is_replaced_in_seconds(cluster: MemberCluster) -> None:
    """Kill -9 of the leader, again and again: what was acknowledged stays, in order, and sending goes on soon."""
    clock = SystemClock()
    async with connect(cluster.address) as client:
        await topic(client)
        sender, pauses_s = Sender(client), []
        for _ in range(ROUNDS):
            for _ in range(20):
                await sender.send()
            leader = await cluster.leader(client)
            await leader.kill()
            killed_s = clock.monotonic_s()
            await sender.send()
            pauses_s.append(clock.monotonic_s() - killed_s)
            await leader.start()
            await until_all_follow(client, cluster)
        stored = await sender.stored()
        assert list(dict.fromkeys(stored)) == sender.acknowledged
    assert median(pauses_s) < 6.0, f"{pauses_s}; on a machine of its own it is below two seconds"


async def until_all_follow(client: Client, cluster: MemberCluster) -> None:
    """Wait until every member is there again."""
    while True:
        with contextlib.suppress(OrtooError):
            [found] = await client.admin.members.list("enode-0")
            if sorted(one.state for one in found.members) == ["following", "following", "leading"]:
                return
        await SystemClock().sleep(0.05)
