"""A cluster attacked by hostile clients of every kind at once, beside honest ones; then its state is checked.

python -m tests.hostile.siege --seconds 600 --seed 7

Three real processes. Hypothesis draws invalid requests from the methods in the servers' reflection. Parsers of texts
and batches are fuzzed separately, guided by coverage (`tests.hostile.fuzz`).
"""

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from ortoo.client import Message, connect
from ortoo.common.process.clock import SystemClock
from ortoo.common.records.batch import encode
from ortoo.verification.servers.processes import ProcessCluster, RoleProcess, process_cluster
from tests.hostile import attacks
from tests.hostile.honest import REPORT_S
from tests.hostile.nonsense import Words, request_of
from tests.hostile.surface import Method, methods_of

TOPIC, GROUP = "flights", "victims"
CALM_TOPIC = "honest-5d1c"
"""The topic of honest clients. Attackers do not know its name, because without access control they may delete it."""
CALL_TIMEOUT_S = 0.5
ANSWERS_MAX = 3
TOGETHER_MAX = 16
"""The number of calls of one group that are under way at once."""
CALM_S = 10.0
"""The time for which honest clients are measured before the attack; later latencies are compared with it."""
LOG_BYTES_MAX = 1 << 20
SLOWER_MAX = 3.0
WAKES = 4
"""A message waits this often for the processor: at the snode, the enode, the snode, the client."""
WINDOW_REPORTS = 4
"""The consecutive reports of the honest client that make one window; the median of the windows counts."""
WINDOW_MS = WINDOW_REPORTS * REPORT_S * 1000
"""The length of a window."""
STALL_MS = 100.0
"""A window with a longer sleep delay of the honest client measures the machine and not the servers."""
OUR_FAULT = frozenset({grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DATA_LOSS})
"""Statuses that no request may be answered with."""
CLIENTS_OWN = "Internal error from Core"
"""The error of gRPC's own client for a call that ended while a request was being written."""
SPARED = frozenset(
    {"/ortoo.v1.NameService/Unregister", "/ortoo.v1.NameService/RegisterEnode", "/ortoo.v1.NameService/RegisterSnode"}
)
"""Methods by which processes of the cluster join and leave; a caller with that permission acts in their name."""


@dataclass
class Verdict:
    """The results of an attack."""

    calls: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    our_fault: list[str] = field(default_factory=list)
    """Answers that show a server defect: method, status, details."""
    dead: list[str] = field(default_factory=list)
    """Roles that ended."""
    memory_mib: dict[str, float] = field(default_factory=dict)
    log_bytes: dict[str, int] = field(default_factory=dict)
    calm_p99_ms: float = 0.0
    siege_p99_ms: float = 0.0
    late_ms: float = 0.0
    """The delay of the honest client's sleeps under attack, which every process on the machine has."""
    honest_errors: list[str] = field(default_factory=list)
    missing: int = 0
    stalled: str = ""
    """The number of windows ignored because the machine itself stalled."""

    def broken(self, *, memory_mib_max: float, slower_max: float = SLOWER_MAX) -> list[str]:
        """The broken promises."""
        said = [f"{role} ended" for role in self.dead]
        said += [f"answers of a server defect: {answer}" for answer in self.our_fault[:20]]
        said += [f"{role} grew to {mib:.0f} MiB" for role, mib in self.memory_mib.items() if mib > memory_mib_max]
        said += [f"{role} logged {size} bytes" for role, size in self.log_bytes.items() if size > LOG_BYTES_MAX]
        said += [f"an honest client failed: {error}" for error in self.honest_errors[:5]]
        if self.missing:
            said.append(f"{self.missing} honest messages never arrived")
        if self.siege_p99_ms > slower_max * max(self.calm_p99_ms, 20.0) + WAKES * self.late_ms:
            said.append(
                f"honest p99 {self.siege_p99_ms:.0f} ms under attack, {self.calm_p99_ms:.0f} ms before; sleeps ended "
                f"{self.late_ms:.0f} ms late"
            )
        return said


class Honest:
    """The honest client's process, and its output."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._reports: list[tuple[list[float], float]] = []
        """Latencies and sleep delays of each report, in milliseconds."""
        self.errors: list[str] = []
        self.missing = 0

    @classmethod
    async def start(cls, address: str) -> "Honest":
        """Start it; it sends and receives until `finish`."""
        command = (sys.executable, "-m", "tests.hostile.honest", address, CALM_TOPIC)
        pipes: dict[str, Any] = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
        return cls(await asyncio.create_subprocess_exec(*command, **pipes, limit=1 << 24))

    async def listen(self) -> None:
        """Read its output until it ends."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            said = json.loads(line)
            self._reports.append((said["took_ms"], said["late_ms"]))
            self.errors += said["errors"]
            self.missing = said["missing"]

    async def finish(self) -> None:
        """Let it stop sending, and wait until it has received everything or given up."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    def p99_ms(self) -> tuple[float, float, str]:
        """The median over windows of the 99th percentile latency since the last call.

        Also the delay of sleeps meanwhile, ms. Windows in which the machine stalled are ignored, unless most did; their
        number is returned as well. A window in which no message arrived counts with its length.
        """
        reports, self._reports = self._reports, []
        windows = [reports[start : start + WINDOW_REPORTS] for start in range(0, len(reports), WINDOW_REPORTS)]
        quiet = [window for window in windows if max(late_ms for _, late_ms in window) < STALL_MS]
        chosen = quiet if 2 * len(quiet) >= len(windows) else windows
        took = [[one for took_ms, _ in window for one in took_ms] for window in chosen]
        p99s = [statistics.quantiles(one, n=100)[98] if len(one) > 1 else WINDOW_MS for one in took]
        said = f"{len(windows) - len(quiet)} of {len(windows)}"
        late = statistics.median(max(late_ms for _, late_ms in window) for window in chosen) if chosen else 0.0
        return statistics.median(p99s) if p99s else float("inf"), late, said


class Nonsense:
    """Calls of every method of one role with requests that hypothesis draws."""

    def __init__(self, role: str, channel: grpc.aio.Channel, methods: Sequence[Method], words: Words) -> None:
        self._role = role
        self._channel = channel
        self._words = words
        self._methods = [method for method in methods if method.path not in SPARED]

    async def call(self, method: Method, requests: Sequence[bytes], verdict: Verdict) -> None:
        """One call; its status is counted, and kept if it shows a server defect."""

        async def all_requests() -> AsyncIterator[bytes]:
            for request in requests:
                yield request

        call = method.callable(self._channel)(
            all_requests() if method.client_streams else requests[0], timeout=CALL_TIMEOUT_S
        )
        code, details = grpc.StatusCode.OK, ""
        try:
            if method.server_streams:
                for _ in range(ANSWERS_MAX):
                    if await call.read() is grpc.aio.EOF:
                        break
                else:
                    call.cancel()
            else:
                await call
        except grpc.aio.AioRpcError as error:
            code, details = error.code(), error.details() or ""
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
        verdict.calls += 1
        verdict.codes[code.name] += 1
        if code in OUR_FAULT and details != CLIENTS_OWN:
            verdict.our_fault.append(f"{self._role} {method.path}: {code.name} {details[:200]}")

    async def together(self, handful: Sequence[tuple[Method, Sequence[bytes]]], verdict: Verdict) -> None:
        """Some calls at once."""
        await asyncio.gather(*(self.call(method, requests, verdict) for method, requests in handful))

    def round(self, loop: asyncio.AbstractEventLoop, number: int, examples: int, verdict: Verdict) -> None:
        """`examples` groups of calls, drawn by the seed `number`."""

        @seed(number)
        @settings(
            max_examples=examples, deadline=None, database=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(data=st.data())
        def drawn(data: st.DataObject) -> None:
            handful = []
            for method in data.draw(st.lists(st.sampled_from(self._methods), min_size=1, max_size=TOGETHER_MAX)):
                count = data.draw(st.integers(1, 4)) if method.client_streams else 1
                requests = [data.draw(request_of(method, self._words)) for _ in range(count)]
                handful.append((method, requests))
            loop.run_until_complete(self.together(handful, verdict))

        drawn()


def resident_mib(role: RoleProcess) -> float:
    """The resident memory of a running role, in MiB."""
    for line in Path(f"/proc/{role.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise AssertionError("the kernel says no VmRSS")


async def _words(cluster: ProcessCluster) -> Words:
    async with connect(cluster.address) as mq:
        for topic in (TOPIC, CALM_TOPIC):
            await mq.admin.create_topic(topic, queue_count=2)
        async with mq.producer(TOPIC) as producer, mq.pop_consumer(GROUP, TOPIC) as consumer:
            receipt = await producer.send(Message(b"bait"))
            popped = await anext(aiter(consumer))
            handles = [popped.lease.receipt_handle, receipt.message_id]
            await popped.ack()
    texts = [TOPIC, GROUP, "enode-0", "snode-0", "", "%RETRY%" + GROUP, "%DLQ%" + GROUP, "*", *handles]
    return Words(texts, [b"", encode([b"x" * 10, b"y"], now_ms=SystemClock().now_ms()).records])


def besieged(
    folder: Path, *, seconds: float, number: int, half_open: int, deaf: int, calm_s: float = CALM_S, calls_min: int = 0
) -> Verdict:
    """Run one attack; `number` is the seed of all invalid requests. Its findings are in the verdict.

    It lasts `seconds`, and on a slow machine until `calls_min` invalid requests were answered.
    """
    verdict, clock = Verdict(), SystemClock()
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        with _Entered(runner, process_cluster(folder)) as cluster:
            words = runner.run(_words(cluster))
            honest = runner.run(Honest.start(cluster.address))
            stack = contextlib.AsyncExitStack()
            listening = loop.create_task(honest.listen())
            runner.run(clock.sleep(calm_s))
            verdict.calm_p99_ms, _, calm_stalled = honest.p99_ms()
            over = asyncio.Event()
            addresses = [role.address for role in cluster.roles]
            runner.run(stack.enter_async_context(attacks.half_open(addresses, half_open)))
            runner.run(stack.enter_async_context(attacks.deaf_sessions(cluster.address, "deaf", TOPIC, deaf)))
            runner.run(stack.enter_async_context(attacks.slow_readers(cluster.address, "slow", TOPIC, deaf // 4)))
            others = [
                loop.create_task(attacks.flood(cluster.address, over)),
                loop.create_task(attacks.slow_writers(addresses, over)),
            ]
            attackers = []
            for role in cluster.roles:
                channel = grpc.aio.insecure_channel(role.address)
                stack.push_async_callback(channel.close)
                attackers.append(Nonsense(role.folder.name, channel, runner.run(methods_of(channel)), words))
            end_s = clock.monotonic_s() + seconds
            while (clock.monotonic_s() < end_s or verdict.calls < calls_min) and all(
                role.alive for role in cluster.roles
            ):
                for attacker in attackers:
                    number += 1
                    attacker.round(loop, number, 10, verdict)
            over.set()
            for task in others:
                runner.run(_ended(task))
            verdict.siege_p99_ms, verdict.late_ms, siege_stalled = honest.p99_ms()
            verdict.stalled = f"{calm_stalled} before, {siege_stalled} under siege"
            verdict.dead = [role.folder.name for role in cluster.roles if not role.alive]
            verdict.memory_mib = {role.folder.name: resident_mib(role) for role in cluster.roles if role.alive}
            runner.run(stack.aclose())
            runner.run(honest.finish())
            runner.run(_ended(listening))
            verdict.honest_errors, verdict.missing = honest.errors, honest.missing
            verdict.log_bytes = {role.folder.name: len(role.log_text()) for role in cluster.roles}
    return verdict


async def _ended(task: "asyncio.Task[Any]") -> None:
    with contextlib.suppress(grpc.aio.AioRpcError):
        await task


class _Entered(contextlib.AbstractContextManager[Any]):
    """An asynchronous context manager driven by a runner, because hypothesis calls from outside any loop."""

    def __init__(self, runner: asyncio.Runner, manager: contextlib.AbstractAsyncContextManager[Any]) -> None:
        self._runner = runner
        self._manager = manager

    def __enter__(self) -> Any:
        return self._runner.run(self._manager.__aenter__())

    def __exit__(self, *error: Any) -> bool | None:
        return self._runner.run(self._manager.__aexit__(*error))


def main() -> int:
    """Run from the command line; 1 when a promise is broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.siege", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--half-open", type=int, default=5_000, help="connections")
    parser.add_argument("--deaf", type=int, default=200, help="push sessions that read nothing")
    parser.add_argument("--memory-mib", type=float, default=640.0, help="the memory limit of each role")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ortoo-siege-") as folder:
        verdict = besieged(
            Path(folder), seconds=chosen.seconds, number=chosen.seed, half_open=chosen.half_open, deaf=chosen.deaf
        )
    broken = verdict.broken(memory_mib_max=chosen.memory_mib)
    sys.stdout.write(json.dumps(vars(verdict) | {"our_fault": len(verdict.our_fault)}) + "\n")
    for line in broken:
        sys.stdout.write(line + "\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
