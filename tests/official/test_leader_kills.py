"""Official clients while leaders are killed every 20 s: sends, transactions, ordered messages, long polls, acks.

ORTOO_LEADER_KILLS is the number of kills. `make official-kills` runs three minutes with each client.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ortoo.client import Client, OrtooError, Producer, connect
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.verification.servers.processes import RoleProcess
from tests.e2e.replica_cluster import leading, replica_cluster
from tests.official.client import ClientError, Fields, Official, official

KILLS = int(os.environ.get("ORTOO_LEADER_KILLS", "1"))
KILL_INTERVAL_S = 20.0
CALL_TIMEOUT_S = 3
TAKE_OVER_S = 2.0
"""Calls see no error while take-overs last at most this time. The rest of their timeout is for their own work."""
STALL_S = 1.0
"""Without a kill, a slower acknowledgement shows that the machine stalls. Calls may then pass their timeout, too."""
POLL_S, INVISIBLE_S = 20, 30
GROUPS = ("a", "b")
TOPICS = {"normal": "normal", "ordered": "fifo", "transactional": "transaction"}
CLOCK = SystemClock()


@dataclass
class Work:
    """The sent and received messages of a client, and its errors with their times."""

    client: Official
    sent: set[bytes] = field(default_factory=set)
    acked: list[bytes] = field(default_factory=list)
    unknown: set[bytes] = field(default_factory=set)
    """The messages with an acknowledgement that failed. It may have been stored, and then they do not come again."""
    failures: list[tuple[float, str]] = field(default_factory=list)

    async def tried(self, call: Awaitable[Fields]) -> Fields | None:
        """The answer of a call; an error is recorded."""
        try:
            return await call
        except (ClientError, TimeoutError) as error:
            self.failures.append((CLOCK.monotonic_s(), f"{error!r}"))
            return None

    async def send(self, number: int) -> None:
        """One normal message, an ordered one for each group, and a transaction, each in turn."""
        say, end = self.client, str(number).encode()
        if await self.tried(say("send", name="p", topic="normal", body=b"normal-" + end)):
            self.sent.add(b"normal-" + end)
        for group in GROUPS:
            body = f"{group}-".encode() + end
            if await self.tried(say("send", name="p", topic="ordered", body=body, message_group=group)):
                self.sent.add(body)
        body, name = b"transaction-" + end, f"x{number}"
        if await self.tried(say("begin", name="t", transaction=name)) is None:
            return
        sent = await self.tried(say("send", name="t", topic="transactional", body=body, transaction=name))
        if sent and await self.tried(say("commit", name="t", transaction=name)) is not None:
            self.sent.add(body)

    async def consume(self, name: str) -> None:
        """Receive and acknowledge, without end."""
        while True:
            found = await self.tried(self.client("receive", name=name, count=16, invisible_s=INVISIBLE_S))
            for message in (found or {}).get("messages", ()):
                is_acked = await self.tried(self.client("ack", name=name, message_id=message["message_id"])) is not None
                (self.acked.append if is_acked else self.unknown.add)(message["body"])

    @property
    def missing(self) -> set[bytes]:
        """The sent messages that have not come."""
        return self.sent.difference(self.acked, self.unknown)

    def numbers(self, group: str) -> list[int]:
        """The acknowledged messages of a message group, in the order of their first acknowledgement."""
        return [int(body.split(b"-")[1]) for body in dict.fromkeys(self.acked) if body.startswith(f"{group}-".encode())]


async def started(client: Official, do: str, **given: Any) -> None:
    """Start a producer or consumer. The start of a client may take longer than the timeout of its calls."""
    async with asyncio.timeout(120):
        while True:
            try:
                await client(do, **given)
                return
            except (ClientError, TimeoutError):
                await CLOCK.sleep(1.0)


@dataclass
class Probe:
    """Sends one message after another, and records when the enode was away for too long."""

    mq: Client
    slow: list[tuple[float, float]] = field(default_factory=list)
    """Times in which calls may fail."""
    _killed_s: float = 0.0
    """The time of a kill that no message has been acknowledged after; 0 = none."""
    _taken_over: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Probe until cancelled."""
        async with self.mq.producer("probe") as producer:
            while True:
                await self._send(producer)
                await CLOCK.sleep(0.1)

    async def _send(self, producer: Producer) -> None:
        begun_s, is_stored = CLOCK.monotonic_s(), False
        while not is_stored:
            with contextlib.suppress(OrtooError):
                await producer.send(b"probe")
                is_stored = True
        end_s = CLOCK.monotonic_s()
        if end_s - (self._killed_s or begun_s) > (TAKE_OVER_S if self._killed_s else STALL_S):
            self.slow.append((begun_s, end_s + CALL_TIMEOUT_S))
        if begun_s >= self._killed_s:
            self._killed_s = 0.0
            self._taken_over.set()

    async def kill(self, leader: RoleProcess) -> None:
        """Kill the leader, and wait until another one has acknowledged a message."""
        self._taken_over.clear()
        await leader.kill()
        self._killed_s = CLOCK.monotonic_s()
        await self._taken_over.wait()


@pytest.mark.parametrize("language", ["java", "python", "node"])
async def test_no_call_fails_while_leaders_are_killed(language: str, tmp_path: Path) -> None:
    """Nothing is lost, order is kept, and no call sees an error of a take-over that was not longer than 2 s."""
    async with replica_cluster(tmp_path) as cluster, connect(cluster.address, start_timeout_s=60) as mq:
        await leading(cluster, mq)
        await mq.admin.ensure_topic("probe", queue_count=1)
        for topic, kind in TOPICS.items():
            await mq.admin.create_topic(topic, queue_count=2, message_type=kind)
        async with official(language, cluster.address) as client, Background("work") as background:
            given: Fields = {"timeout_s": CALL_TIMEOUT_S, "tls": False}
            await started(client, "producer", name="p", topics=["normal", "ordered"], **given)
            await started(client, "producer", name="t", topics=["transactional"], verdict="commit", **given)
            work, probe = Work(client), Probe(mq)
            for topic in TOPICS:
                about = {"group": f"g-{topic}", "subscriptions": {topic: {"expression": "*"}}}
                await started(client, "simple", name=topic, **about, await_s=POLL_S, **given)
                background.spawn(f"consume {topic}", work.consume(topic))
            stopped = asyncio.Event()

            async def keep_sending() -> None:
                number = 0
                while not stopped.is_set():
                    await work.send(number := number + 1)
                    await CLOCK.sleep(0.1)

            probing, sending = background.spawn("probe", probe.run()), background.spawn("send", keep_sending())
            for _ in range(KILLS):
                await CLOCK.sleep(KILL_INTERVAL_S / 2)
                await probe.kill(killed := await leading(cluster, mq))
                await killed.start()
                await CLOCK.sleep(KILL_INTERVAL_S / 2)
            stopped.set()
            await sending
            probing.cancel()
            lags: dict[str, int] = {}
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2 * INVISIBLE_S + POLL_S):
                    while work.missing or any(lags.values()) or not lags:
                        await CLOCK.sleep(0.1)
                        lags = {one: (await mq.admin.describe_lag(f"g-{one}", one)).lag_messages for one in TOPICS}
    slow = probe.slow
    counts = f"{len(work.sent)} sent, {KILLS} kills, {len(slow)} slow take-overs or stalls, {len(work.failures)} errors"
    sys.stdout.write(f"{language}: {counts}\n")
    assert [text for at_s, text in work.failures if not any(begin <= at_s <= end for begin, end in slow)] == []
    assert not work.missing, work.failures
    assert lags == dict.fromkeys(TOPICS, 0)
    for group in GROUPS:
        assert work.numbers(group) == sorted(work.numbers(group))
