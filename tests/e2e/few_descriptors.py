"""Run many segments and idle connections with few descriptors in each process, and report the cost.

    python -m tests.e2e.few_descriptors --limit 1024 --segments 10000 --connections 20000

It starts a name server, an enode and a snode as real processes with that hard limit. It sends messages until the log
has that number of segments, and reads them back. Then it opens idle connections to the port of each process. Sends and
reads must continue, and `ortoo doctor` must name the limit. When the connections are closed, everything must work
without a restart. At last the enode is killed and started again. The exit code is 1 when an
expectation failed.
"""

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ortoo.client import Client, Producer, Queue, connect
from ortoo.client.produce.producer_settings import ProducerSettings
from ortoo.common.errors import Unavailable
from ortoo.common.logs.logger import configure
from ortoo.common.machine.descriptors import FEW
from ortoo.common.process.clock import SystemClock
from ortoo.verification.servers import command
from ortoo.verification.servers.ports import free_address
from ortoo.verification.servers.processes import ProcessCluster, RoleProcess
from ortoo.verification.servers.scrape import scraped
from tests.e2e.drill import run_drill, say
from tests.e2e.idle_connections import Idle, idle_connections

TOPIC = "many"
SOFT_LIMIT = 128
SEGMENT_BYTES = 4096
BODY_BYTES = 3_000
AT_ONCE = 8
NEW_CLIENT_S = 60.0
SENDS = 100
"""The number of messages that are sent in each part of a long run."""
WAIT_MAX_S = 10.0
START_MAX_S = 120.0
"""Time for another start of the enode. After a kill it may have to index many segments first."""
LOOK_S = 0.05
CLOCK = SystemClock()


class LimitedProcess(RoleProcess):
    """A role with few descriptors. Its hard limit is lowered before it starts, and its soft limit even more."""

    limit = 1024

    def _command(self, listen_address: str) -> Sequence[str]:
        own = super()._command(listen_address)
        return ("/bin/sh", "-c", f'ulimit -Sn {SOFT_LIMIT} && ulimit -Hn {self.limit} && exec "$@"', "sh", *own)


@dataclass
class Verdict:
    """The results of a run."""

    broken: list[str] = field(default_factory=list)
    segments: int = 0
    open_segments_max: int = 0
    open_max: int = 0
    sent: int = 0
    read: int = 0
    slowest_s: float = 0.0
    doctor: str = ""
    """The last output of `ortoo doctor`."""
    kept: dict[str, int] = field(default_factory=dict)
    """The number of idle connections that each role kept."""

    def summary(self) -> str:
        """The results in one line."""
        kept = ", ".join(f"the {role} kept {count}" for role, count in self.kept.items())
        return (
            f"{self.segments} segments, {self.sent} sent, {self.read} read, slowest send {self.slowest_s * 1000:.0f} "
            f"ms, at most {self.open_max} descriptors open, {self.open_segments_max} of them segments; {kept}"
        )


class Run:
    """One run in a folder."""

    def __init__(self, folder: Path, limit: int, sends: int, say: Callable[[str], object]) -> None:
        self.limit = limit
        self.sends = sends
        self.verdict = Verdict()
        self._say = say
        self._metrics = free_address()
        store = {"STORE_SEGMENT_BYTES": SEGMENT_BYTES, "STORE_HEADROOM_BYTES": 0, "STORE_RECENT_BYTES": 0}
        environ = {"NAME": "enode-0", "METRICS_ADDRESS": self._metrics, **store}
        self.cluster = ProcessCluster(
            folder,
            LimitedProcess("namesrv", folder / "namesrv"),
            [LimitedProcess("enode", folder / "enode-0", environ)],
            [LimitedProcess("snode", folder / "snode-0", {"NAME": "snode-0"})],
        )
        for role in self.cluster.roles:
            role.limit = limit  # type: ignore[attr-defined]  # each is a LimitedProcess
            role.ready_timeout_s = START_MAX_S

    async def run(self, segments: int, connections: int) -> Verdict:
        """Run all parts."""
        cluster = self.cluster
        try:
            await cluster.namesrv.start()
            for role in (cluster.enode, cluster.snode):
                role.environ["NAMESRV_ADDRESS"] = cluster.namesrv.address
                await role.start()
            await cluster.wait_until_alive()
            async with connect(cluster.address) as mq:
                await mq.admin.create_topic(TOPIC, queue_count=1)
                await self._grow(mq, segments)
                await self._read(mq, "after the sends")
                for role in cluster.roles:
                    await self._beside_idle(mq, role, connections)
            await self._afterwards()
            await cluster.enode.kill()
            await cluster.enode.start()
            await cluster.wait_until_alive()
            async with connect(cluster.address) as mq:
                await self._send(mq, "after a crash")
                await self._read(mq, "after a crash")
                await self._look()
            failed = [role.role for role in cluster.roles if "the disk failed" in role.log_text()]
            self.verdict.broken += [f"the log of the {role} says that the disk failed" for role in failed]
        finally:
            for role in reversed(cluster.roles):
                await role.kill()
        return self.verdict

    async def _grow(self, mq: Client, segments: int) -> None:
        while self.verdict.segments < segments:
            await self._send(mq, "while the log grows")
            await self._look()
            if self.verdict.sent % 1000 < self.sends:
                self._say(self.verdict.summary())

    async def _send(self, mq: Client, when: str) -> None:
        """Send some messages, each in its own batch, a few concurrently."""
        settings = ProducerSettings(linger_ms=0, batch_bytes_max=BODY_BYTES + 500)
        async with contextlib.AsyncExitStack() as stack:
            producer = await self._opened_producer(stack, mq.producer(TOPIC, settings))

            async def send(numbers: Sequence[int]) -> None:
                for number in numbers:
                    begun_s = CLOCK.monotonic_s()
                    await producer.send(_body(number))
                    self.verdict.slowest_s = max(self.verdict.slowest_s, CLOCK.monotonic_s() - begun_s)

            first, before_s = self.verdict.sent, self.verdict.slowest_s
            async with asyncio.TaskGroup() as group:
                for lane in range(AT_ONCE):
                    group.create_task(send(range(first + lane, first + self.sends, AT_ONCE)))
            self.verdict.sent += self.sends
            if before_s <= WAIT_MAX_S < self.verdict.slowest_s:
                self.verdict.broken.append(f"{when} a send took {self.verdict.slowest_s:.1f} s")

    async def _opened_producer(self, stack: contextlib.AsyncExitStack, producer: Producer) -> Producer:
        """Open a producer. A client that has to connect again waits until the full port closes silent connections."""
        deadline_s = CLOCK.monotonic_s() + NEW_CLIENT_S
        while True:
            try:
                return await stack.enter_async_context(producer)
            except Unavailable:
                if CLOCK.monotonic_s() > deadline_s:
                    raise

    async def _read(self, mq: Client, when: str) -> None:
        """Read everything from the beginning. Nearly every batch is in another segment."""
        found = set[int]()
        async for batch in mq.fetch(Queue(TOPIC, "enode-0", 0)):
            for message in batch:
                number = int(message.body[:10])
                if message.body == _body(number):
                    found.add(number)
        self.verdict.read += len(found)
        if missing := set(range(self.verdict.sent)) - found:
            self.verdict.broken.append(f"{when} {len(missing)} messages cannot be read, such as {min(missing)}")

    async def _look(self) -> None:
        """Check the enode's metrics."""
        found, verdict = await scraped(self._metrics), self.verdict
        verdict.segments = int(found["ortoo_segments"][()])
        verdict.open_max = max(verdict.open_max, int(found["process_open_fds"][()]))
        verdict.open_segments_max = max(verdict.open_segments_max, int(found["ortoo_segments_open"][()]))
        if found["process_max_fds"][()] != self.limit:
            verdict.broken.append(f"the limit is {found['process_max_fds'][()]}")
        if verdict.open_max >= self.limit:
            verdict.broken.append(f"all {verdict.open_max} descriptors were in use")

    async def _beside_idle(self, mq: Client, role: RoleProcess, connections: int) -> None:
        """Open idle connections to a role, and check that clients still work."""
        pid, when = role.pid, f"beside idle connections to the {role.role}"
        async with idle_connections(role.address, connections) as idle:
            await self._count_kept(idle, role)
            await self._send(mq, when)
            async with asyncio.timeout(NEW_CLIENT_S), connect(self.cluster.address) as new:
                await self._send(new, f"from a new client {when}")
            # Not earlier: a full port also closes the connection of `ortoo doctor`, until silent ones are closed.
            found = await self._advice("connection limit reached")
            if not any(str(self.limit) in one["observed"] and role.role in one["process"] for one in found):
                self.verdict.broken.append(f"{when} doctor does not name the limit: {self.verdict.doctor}")
            await self._read(mq, when)  # last, because reading a long log takes longer than the finding lasts
            await self._look()
        if not role.alive or role.pid != pid:
            self.verdict.broken.append(f"{when} the process ended")
        await self._send(mq, f"after idle connections to the {role.role}")
        self._say(self.verdict.summary())

    async def _count_kept(self, idle: Idle, role: RoleProcess) -> None:
        """Wait until the role has closed the connections above its limit. It closes the others 10 s later."""
        kept = await idle.kept()
        async with asyncio.timeout(WAIT_MAX_S):
            while kept >= self.limit:  # the role accepts and closes them one by one
                await CLOCK.sleep(LOOK_S)
                kept = await idle.kept()
        self.verdict.kept[role.role] = kept
        if not kept:
            self.verdict.broken.append(f"the {role.role} kept no idle connection")

    async def _afterwards(self) -> None:
        """A new client works when the idle connections are closed, and the low limit is the only finding."""
        async with asyncio.timeout(30), connect(self.cluster.address) as mq:
            await self._send(mq, "when the idle connections are gone")
        found = await self._advice(
            "low file descriptor limit", "file descriptors exhausted", "disk failed", "disk full"
        )
        low = {one["process"].split()[0] for one in found if one["name"] == "low file descriptor limit"}
        if self.limit < FEW and len(low) != len(self.cluster.roles):
            self.verdict.broken.append(f"doctor names the low limit only of {low}: {self.verdict.doctor}")
        if wrong := [one for one in found if one["name"] != "low file descriptor limit"]:
            self.verdict.broken.append(f"doctor still says {wrong}")

    async def _advice(self, *names: str) -> list[dict[str, Any]]:
        """The findings of `ortoo doctor` with these names."""
        words = ("ortoo", "doctor", "--json", "--patience", "10")
        outcome = await command.run(words, self.cluster.address)
        found = [json.loads(line) for line in outcome.stdout.splitlines()]
        self.verdict.doctor = f"exit {outcome.exit_code}: {outcome.stdout}{outcome.stderr}"
        return [one for one in found if one.get("name") in names]


def _body(number: int) -> bytes:
    return f"{number:010d}".encode().ljust(BODY_BYTES, b".")


async def run(
    folder: Path, *, limit: int, segments: int, connections: int, say: Callable[[str], object], sends: int = SENDS
) -> Verdict:
    """Run all parts in `folder`."""
    return await Run(folder, limit, sends, say).run(segments, connections)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, default=1024, help="the hard limit of each process")
    parser.add_argument("--segments", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=20_000, help="idle ones, to each role")
    arguments = parser.parse_args()
    configure(level="error")
    with tempfile.TemporaryDirectory(prefix="ortoo-descriptors-") as folder:
        verdict = run_drill(
            run(
                Path(folder),
                limit=arguments.limit,
                segments=arguments.segments,
                connections=arguments.connections,
                say=say,
            )
        )
    sys.stdout.write("\n".join([*verdict.broken, verdict.summary(), ""]))
    return 1 if verdict.broken else 0


if __name__ == "__main__":
    sys.exit(main())
