"""Roles whose log is not read: a killed, stopped or slow reader, a full device, and no standard error at all.

    python -m tests.e2e.log_readers --reader stopped --seconds 60

A cluster of real processes: name server, enode, a snode, and a snode of two workers. While the log cannot be written,
each of them logs, answers health checks and is stopped at the end; sends continue through both snodes.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import fcntl
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ortoo.client import Message, connect
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.verification.servers.ports import free_ports
from ortoo.verification.servers.processes import SMALL_STORE, RoleProcess
from ortoo.verification.servers.scrape import get, scraped
from ortoo.verification.servers.valkey import valkey

READERS = ("killed", "stopped", "slow", "full", "closed")
PIPE_BYTES = 4096
"""The smallest pipe, which is full after few lines."""
LINE_BYTES = 10_000
"""Size of the lines that the roles are made to log; the queue of each role is full after a hundred."""
TICK_S, PACE_S, SLOW_S = 0.05, 0.02, 1.0
ANSWER_S = 10.0
"""An answer after this time counts as missed. Before the log had a queue there was no answer at all."""
PATIENCE_S = 60.0
TOPIC, KEY = "flights", "honest"
CLOSE = "import os, sys\nos.closerange({}, 3)\nos.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
"""A program that closes the standard files from some number on and then executes another program."""
CLOCK = SystemClock()


@dataclasses.dataclass
class Verdict:
    """The results for the roles."""

    sent: int = 0
    longest_send_s: float = 0.0
    checks: int = 0
    broken: list[str] = dataclasses.field(default_factory=list)
    """Roles that ended, unanswered checks and sends, wrong exit codes."""
    dropped: dict[str, float] = dataclasses.field(default_factory=dict)
    """Role, or worker of the second snode, to the number of lines that it counts as dropped."""
    told: dict[str, int] = dataclasses.field(default_factory=dict)
    """Role to the number of its log lines about a gap, in the part of the log that was read."""
    found: int = 0
    """Number of messages found by the process for key indexes."""


class LogPipe:
    """The log output of a role, and its reader."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        fcntl.fcntl(self.writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        os.set_blocking(self.reading, False)
        self.text = b""
        self.read_all()

    def read_all(self) -> None:
        """Read everything that arrives."""
        asyncio.get_running_loop().add_reader(self.reading, self.read_some)

    def stop(self) -> None:
        """Read nothing."""
        asyncio.get_running_loop().remove_reader(self.reading)

    def read_some(self) -> None:
        """Read what is available now."""
        with contextlib.suppress(BlockingIOError):
            self.text += os.read(self.reading, PIPE_BYTES)

    def kill(self) -> None:
        """Close the reading end, like a log shipper that is restarted."""
        self.stop()
        os.close(self.reading)
        self.reading = -1

    def close(self) -> None:
        """Close both ends."""
        if self.reading >= 0:
            self.kill()
        os.close(self.writing)


class LoggingRole(RoleProcess):
    """A role that logs a long line at each SIGHUP, and may be started without standard error."""

    def __init__(self, role: str, folder: Path, settings: dict[str, object]) -> None:
        self.metrics = f"127.0.0.1:{free_ports(1)[0]}"
        super().__init__(role, folder, {"NAME": folder.name, "METRICS_ADDRESS": self.metrics, **settings})
        self.is_closed = False
        self.file = folder / "settings.toml"
        folder.mkdir(parents=True)
        self.file.touch()
        self.arguments = ("-c", str(self.file))

    def _command(self, listen_address: str) -> Sequence[str]:
        words = super()._command(listen_address)
        return (words[0], "-c", CLOSE.format(2), *words[1:]) if self.is_closed else words

    def begin_to_log(self) -> None:
        """Make each SIGHUP find an unknown setting, whose name is logged."""
        self.file.write_text(f"{'x' * (LINE_BYTES // 2)} = 1\n")

    def log(self) -> None:
        """Request a log line."""
        os.kill(self.pid, signal.SIGHUP)

    async def dropped(self) -> dict[str, float]:
        """The number of lines that it dropped; of a snode with workers for each process."""
        series = (await scraped(self.metrics)).get("ortoo_log_lines_dropped_total", {})
        return {dict(labels).get("worker", self.folder.name): count for labels, count in series.items()}


@contextlib.asynccontextmanager
async def logging_roles(folder: Path, reader: str) -> AsyncIterator[tuple[list[LoggingRole], dict[str, LogPipe]]]:
    """Start a cluster whose roles log into pipes with the given kind of `reader`; leave nothing running."""
    async with contextlib.AsyncExitStack() as stack:
        store = await stack.enter_async_context(valkey(folder / "valkey"))
        shared: dict[str, object] = {"REDIS_URL": store.url}
        roles = [
            LoggingRole("namesrv", folder / "namesrv", {}),
            LoggingRole("enode", folder / "enode-0", dict(SMALL_STORE)),
            LoggingRole("snode", folder / "snode-0", shared),
            LoggingRole("snode", folder / "snode-1", {**shared, "WORKERS": 2}),
        ]
        pipes: dict[str, LogPipe] = {}
        for role in roles:
            role.is_closed = reader == "closed"
            if reader == "full":
                role.stderr = os.open("/dev/full", os.O_WRONLY)
                stack.callback(os.close, role.stderr)
            elif reader != "closed":
                pipes[role.folder.name] = pipe = LogPipe()
                stack.callback(pipe.close)
                role.stderr = pipe.writing
            if role.role != "namesrv":
                role.environ["NAMESRV_ADDRESS"] = roles[0].address
            stack.push_async_callback(role.kill)
            await role.start()
        yield roles, pipes


async def _watch(role: LoggingRole, verdict: Verdict) -> None:
    """Check its health, as a probe does, until it has not been healthy for ANSWER_S."""
    async with grpc.aio.insecure_channel(role.address) as channel:
        stub, healthy_s = health_pb2_grpc.HealthStub(channel), CLOCK.monotonic_s()
        while True:
            try:
                answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=ANSWER_S)
                assert answer.status == health_pb2.HealthCheckResponse.SERVING, answer
                async with asyncio.timeout(ANSWER_S):
                    assert (await get(role.metrics, "/readyz")).status == 200
            except (grpc.RpcError, OSError, AssertionError) as error:
                # The parent of workers is not ready while a worker does not answer it in time: if the machine stalls.
                if not role.alive or CLOCK.monotonic_s() - healthy_s > ANSWER_S:
                    state = "is there" if role.alive else "has ended"
                    verdict.broken.append(f"{role.folder.name} {state}: no health check ({error!r})")
                    return
            else:
                verdict.checks, healthy_s = verdict.checks + 1, CLOCK.monotonic_s()
            await CLOCK.sleep(TICK_S)


async def _send(address: str, verdict: Verdict) -> None:
    """Send one message after another, until one does not arrive."""
    async with connect(address) as mq, mq.producer(TOPIC) as producer:
        while True:
            begun_s = CLOCK.monotonic_s()
            try:
                async with asyncio.timeout(ANSWER_S):
                    await producer.send(Message(b"goes on", keys=(KEY,)))
            except Exception as error:  # every failure is a finding
                verdict.broken.append(f"a send through {address}: {error!r}")
                return
            verdict.sent += 1
            verdict.longest_send_s = max(verdict.longest_send_s, CLOCK.monotonic_s() - begun_s)
            await CLOCK.sleep(PACE_S)


async def endure(folder: Path, reader: str, *, seconds: float) -> Verdict:
    """Run the cluster with such a reader for `seconds`, and until each process has dropped lines."""
    verdict = Verdict()
    async with logging_roles(folder, reader) as (roles, pipes):
        async with connect(roles[2].address) as mq:
            await mq.admin.create_topic(TOPIC, queue_count=4)
        async with Background("log readers") as background:
            tasks = [background.spawn(role.folder.name, _watch(role, verdict)) for role in roles]
            tasks += [background.spawn("send", _send(role.address, verdict)) for role in roles[2:]]
            for pipe in pipes.values():
                if reader == "killed":
                    pipe.kill()
                else:
                    pipe.stop()
                if reader == "slow":
                    background.spawn("slow", _read_slowly(pipe))
            for role in roles:
                role.begin_to_log()
            await _log_until_lines_are_dropped(roles, verdict, seconds)
            if reader == "stopped" and not verdict.broken:
                await _come_back(roles, pipes, verdict)
            for task in tasks:
                task.cancel()
        if not verdict.broken:
            await _find(roles[2].address, verdict)
            await _lose_the_name_server(roles, verdict, is_refused=reader in ("killed", "full", "closed"))
        if not verdict.broken:
            await _lose_a_worker(roles[3])
            verdict.dropped["parent"] = (await roles[3].dropped())["parent"]
            verdict.broken += [f"{role.folder.name} ended with {code}" for role in roles if (code := await role.stop())]
    return verdict


async def _log_until_lines_are_dropped(roles: Sequence[LoggingRole], verdict: Verdict, seconds: float) -> None:
    begun_s = CLOCK.monotonic_s()
    while not verdict.broken and CLOCK.monotonic_s() - begun_s < seconds + PATIENCE_S:
        for role in roles:
            if not role.alive:
                verdict.broken.append(f"{role.folder.name} has ended")
                return
            role.log()
        await CLOCK.sleep(TICK_S)
        if CLOCK.monotonic_s() - begun_s < seconds:
            continue
        try:
            for role in roles:
                verdict.dropped |= await role.dropped()
        except (OSError, AssertionError) as error:
            verdict.broken.append(f"no metrics: {error!r}")
        if verdict.dropped and all(count or name == "parent" for name, count in verdict.dropped.items()):
            return
    verdict.broken.append(f"unreadable lines are not counted: {verdict.dropped}")


async def _read_slowly(pipe: LogPipe) -> None:
    while True:
        await CLOCK.sleep(SLOW_S)
        pipe.read_some()


async def _come_back(roles: Sequence[LoggingRole], pipes: dict[str, LogPipe], verdict: Verdict) -> None:
    """Let the readers resume, until each has read the line about the dropped lines."""
    for pipe in pipes.values():
        pipe.read_all()
    async with asyncio.timeout(PATIENCE_S):
        for role in roles:
            pipe = pipes[role.folder.name]
            while b'"log_lines_dropped"' not in pipe.text:
                await CLOCK.sleep(TICK_S)
            told = [line for line in pipe.text.splitlines() if b'"log_lines_dropped"' in line]
            verdict.told[role.folder.name] = len(told)
            assert all(json.loads(line)["dropped"] > 0 for line in told[:1])


async def _find(address: str, verdict: Verdict) -> None:
    """Make the enode start its process for key indexes, and get an answer from it."""
    async with asyncio.timeout(PATIENCE_S), connect(address) as mq:
        while not verdict.found:  # the index follows the log a moment later
            verdict.found = len((await mq.admin.find_messages(TOPIC, key=KEY)).messages)


async def _lose_the_name_server(roles: Sequence[LoggingRole], verdict: Verdict, *, is_refused: bool) -> None:
    """Kill the name server: the others log that in their main loops, whose failure would end the process.

    With an unwritable log each has dropped some lines by then. They reconnect to the restarted name server.
    """
    name_server, *others = roles
    before = {role: sum((await role.dropped()).values()) for role in others}
    await name_server.kill()
    async with asyncio.timeout(PATIENCE_S):
        for role in others:
            while role.alive and is_refused and not await _has_dropped(role, before[role]):
                await CLOCK.sleep(TICK_S)
        verdict.broken += [f"{role.folder.name} has ended" for role in others if not role.alive]
        if verdict.broken:
            return
        name_server.file.write_text("")
        await name_server.start()
        for role in others:
            while (await get(role.metrics, "/readyz")).status != 200:
                await CLOCK.sleep(TICK_S)


async def _has_dropped(role: LoggingRole, before: float) -> bool:
    try:
        return sum((await role.dropped()).values()) > before
    except OSError:  # it has ended
        return False


async def _lose_a_worker(snode: LoggingRole) -> None:
    """Kill a worker: the parent logs that, restarts it, and the snode serves meanwhile."""
    children = Path(f"/proc/{snode.pid}/task/{snode.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)
    snode.file.write_text("")
    async with asyncio.timeout(PATIENCE_S):
        while True:
            told = await scraped(snode.metrics)
            starts, ready = told["ortoo_worker_starts_total"], told["ortoo_worker_ready"]
            if sum(starts.values()) == 3 and sum(ready.values()) == 2:
                return
            await CLOCK.sleep(TICK_S)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--reader", choices=READERS, action="append", help="all kinds if none is given")
    parser.add_argument("--seconds", type=float, default=60.0)
    asked = parser.parse_args()
    is_broken = False
    for reader in asked.reader or READERS:
        with tempfile.TemporaryDirectory() as folder:
            verdict = asyncio.run(endure(Path(folder), reader, seconds=asked.seconds))
        sys.stdout.write(f"{reader}: {json.dumps(dataclasses.asdict(verdict))}\n")
        is_broken |= bool(verdict.broken)
    sys.exit(is_broken)


if __name__ == "__main__":
    main()
