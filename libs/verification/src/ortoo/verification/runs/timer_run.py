"""Many delayed messages through kills of the enode and steps of its wall clock; none early, lost or late.

    python -m ortoo.verification.runs.timer_run --timers 1000000 --seconds 300 --kills 3

Timers are spread over the time evenly. The enode is killed at even distances and started again. At 30 % of the time its
clock is set back by an hour for a while. At 85 % it is set forward by an hour, which makes all remaining timers due.

Lateness counts only while the enode is up, has delivered the backlog of its downtime, and its clock is not being set. A
message is early if its time is later than any time that the enode's clock has shown. Beside the lateness stands the
time of a sync of 64 bytes, because each delivery is synced first.
"""

import argparse
import asyncio
import json
import os
import struct
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ortoo.common.errors import OrtooError
from ortoo.common.grpc.channels import Channels
from ortoo.common.logs.logger import configure
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.records.batch import encode, open_batch
from ortoo.common.records.message import Message
from ortoo.enode.disk.disk import RealDisk
from ortoo.snode.enodes.grpc_link import GrpcEnodeLink
from ortoo.snode.enodes.grpc_links import GrpcLinks
from ortoo.snode.enodes.link import FetchBatchesRequest
from ortoo.verification.servers.lone_enode import NO_NAME_SERVER, open_single_enode, topic
from ortoo.verification.servers.processes import RoleProcess
from ortoo.verification.time.stepped_clock import SharedClock

TOPIC, WARM_UP_TOPIC, QUEUES, BATCH = 7, 8, 4, 4_096
HOUR_MS = 3_600_000
IN_TIME_MS = 100
IN_TIME_ROW = 100
"""After a start or a clock step, the backlog counts as delivered when this many in a row arrive in time."""
_BODY = struct.Struct("<qq")


class SteppedEnode(RoleProcess):
    """An enode in a separate process, whose clock is `clock`."""

    def __init__(self, folder: Path) -> None:
        """Keep everything in `folder`; the store has two topics."""
        super().__init__(
            "enode",
            folder,
            {"NAMESRV_ADDRESS": NO_NAME_SERVER, "STORE_HEADROOM_BYTES": 0, "STORE_RECENT_BYTES": 8 << 20},
        )
        self.clock_file = folder / "clock"
        self._cpu_before_s = 0.0

    def _command(self, listen_address: str) -> Sequence[str]:
        return (sys.executable, "-m", "ortoo.verification.servers.stepped_enode", str(self.clock_file))

    def rss_mib(self) -> float:
        """Resident memory of the process."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        raise AssertionError("no such process")

    def cpu_s(self) -> float:
        """Processor seconds of all its processes together, over restarts."""
        now_s = 0.0
        if self.alive:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
            now_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return self._cpu_before_s + now_s

    async def kill(self) -> None:
        """Kill it like any other process."""
        self._cpu_before_s = self.cpu_s()
        await super().kill()


@dataclass
class TimerObservations:
    """Messages that arrived, with the time on the enode's clock."""

    total: int
    due_ms: np.ndarray = field(init=False)
    arrived_ms: np.ndarray = field(init=False)
    copies: np.ndarray = field(init=False)
    early: int = 0
    count: int = 0
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        """Start with nothing received."""
        self.due_ms, self.arrived_ms = np.zeros(self.total, "<i8"), np.zeros(self.total, "<i8")
        self.copies = np.zeros(self.total, "<i4")

    def take(self, bodies: Sequence[bytes], now_ms: int, latest_ms: int) -> None:
        """Record messages received at a time; `latest_ms` is the latest time that the enode's clock ever showed."""
        numbers, due = np.frombuffer(b"".join(bodies), "<i8").reshape(-1, 2).T
        self.early += int((due > latest_ms).sum())
        self.due_ms[numbers], self.arrived_ms[numbers] = due, now_ms
        np.add.at(self.copies, numbers, 1)
        self.count += len(bodies)
        if self.count >= self.total:
            self.done.set()


class TimerRun:
    """One run."""

    def __init__(self, folder: Path, *, timers: int, seconds: float, kills: int, seed: int = 0) -> None:
        """Use `folder` for all data."""
        self.enode = SteppedEnode(folder / "enode")
        self._timers, self._seconds, self._kills = timers, seconds, kills
        self._random = np.random.default_rng(seed)
        self._seen = TimerObservations(timers)
        self._clock = SystemClock()
        self._latest_ms = 0
        self._folder = folder
        self._syncs_ms: list[float] = []
        self._exempt: list[tuple[int, int]] = []
        """Periods of true time without a promise."""

    async def run(self) -> dict[str, Any]:
        """Run it and return the figures."""
        async with open_single_enode(self.enode.data, topic(TOPIC, queues=QUEUES), topic(WARM_UP_TOPIC, "w", queues=1)):
            pass
        self._shared = SharedClock(self.enode.clock_file)
        await self.enode.start()
        try:
            async with (
                Channels() as channels,
                Background("timers") as background,
                GrpcLinks(
                    channels=channels,
                    background=background,
                    clock=self._clock,
                    timeout_s=30.0,
                    in_flight_bytes_max=64 << 20,
                ) as links,
            ):
                link = links.to("enode-0", self.enode.address)
                warm_mib = await self._warm_up(link)
                begin_ms = await self._send(link)
                loaded_mib, loaded_cpu_s = self.enode.rss_mib(), self.enode.cpu_s()
                for queue_id in range(QUEUES):
                    background.spawn("read", self._read(link, queue_id))
                background.spawn("probe", self._probe())
                peak_mib = await self._disturb(begin_ms)
                async with asyncio.timeout(120 + self._seconds):
                    await self._seen.done.wait()
                await self._clock.sleep(1.0)  # wait for duplicates
        finally:
            await self.enode.kill()
        return {
            **self._report(warm_mib, loaded_mib, peak_mib),
            "enode_cpu_us_per_timer": round((self.enode.cpu_s() - loaded_cpu_s) / self._timers * 1e6, 1),
        }

    async def _warm_up(self, link: GrpcEnodeLink) -> float:
        """Send as many ordinary messages first, so that the later growth of memory is the timers' own."""
        for start in range(0, self._timers, BATCH):
            count = min(BATCH, self._timers - start)
            await link.append(WARM_UP_TOPIC, 0, encode([b"0123456789abcdef"] * count, now_ms=1))
        return self.enode.rss_mib()

    async def _send(self, link: GrpcEnodeLink) -> int:
        """Store all timers; returns the time at which the first is due."""
        ahead_ms = 5_000 + self._timers // 25
        begin_ms = self._clock.now_ms() + ahead_ms
        due = begin_ms + self._random.integers(0, int(self._seconds * 1000), self._timers)
        columns = np.stack([np.arange(self._timers, dtype="<i8"), due.astype("<i8")], axis=1)
        singles = min(200, self._timers // 10)
        messages = [Message(columns[number].tobytes(), deliver_at_ms=int(due[number])) for number in range(singles)]
        appends = [link.append(TOPIC, at % QUEUES, encode([message], now_ms=1)) for at, message in enumerate(messages)]
        await asyncio.gather(*appends)  # together, because a sync for each takes seconds on a busy disk
        for start in range(singles, self._timers, BATCH):
            rows = columns[start : start + BATCH]
            batch = encode([Message(row.tobytes(), deliver_at_ms=int(row[1])) for row in rows], now_ms=1)
            await link.append(TOPIC, start // BATCH % QUEUES, batch)
        assert self._clock.now_ms() < begin_ms, "sending took too long"
        return begin_ms

    async def _read(self, link: GrpcEnodeLink, queue_id: int) -> None:
        offset = 0
        while True:
            try:
                fetched = await link.fetch(FetchBatchesRequest(TOPIC, queue_id, offset, wait_ms=5_000))
            except OrtooError:
                await self._clock.sleep(0.02)
                continue
            self._latest_ms = max(self._latest_ms, self._shared.now_ms())
            for stored in fetched.batches:
                self._seen.take(open_batch(stored.batch).bodies(), self._shared.now_ms(), self._latest_ms)
            offset = fetched.next_offset

    async def _probe(self) -> None:
        """Sync a few bytes, repeatedly."""
        file = RealDisk().open(self._folder / "probe", create=True)

        def sync() -> float:
            begun_s = self._clock.monotonic_s()
            file.write(0, [bytes(64)])
            file.sync_data()
            return self._clock.monotonic_s() - begun_s

        try:
            while True:
                self._syncs_ms.append(await asyncio.to_thread(sync) * 1000)
                await self._clock.sleep(0.1)
        finally:
            file.close()

    async def _disturb(self, begin_ms: int) -> float:
        """Kill and set the clock, at their times; returns the peak memory."""
        span_ms = self._seconds * 1000
        plan = [(begin_ms + span_ms * (0.1 + 0.6 * kill / max(1, self._kills)), "kill") for kill in range(self._kills)]
        plan += [(begin_ms + span_ms * 0.3, "back"), (begin_ms + span_ms * 0.85, "forward")]
        peak_mib = 0.0
        for at_ms, what in sorted(plan):
            while (wait_ms := at_ms - self._clock.now_ms()) > 0:
                await self._clock.sleep(min(1.0, wait_ms / 1000))
                peak_mib = max(peak_mib, self.enode.rss_mib())
            began_ms = self._clock.now_ms()
            if what == "kill":
                await self.enode.kill()
                await self.enode.start()
            elif what == "back":
                self._shared.set_off(-HOUR_MS)
                # Until now the enode may have read its clock later than this process did.
                self._latest_ms = max(self._latest_ms, self._clock.now_ms())
                await self._clock.sleep(min(10.0, self._seconds / 20))
                self._shared.set_off(0)
            else:
                self._shared.set_off(HOUR_MS)
            end_ms = self._clock.now_ms() if what != "forward" else 1 << 62
            self._exempt.append((began_ms - 200, end_ms))
        return peak_mib

    def _caught_up_ms(self, up_ms: int) -> int:
        """The time from which messages arrive in time again, after the enode was down until `up_ms`."""
        after = np.flatnonzero((self._seen.copies > 0) & (self._seen.due_ms >= up_ms))
        after = after[np.argsort(self._seen.due_ms[after], kind="stable")]
        late = self._seen.arrived_ms[after] - self._seen.due_ms[after] > IN_TIME_MS
        sums = np.concatenate([[0], np.cumsum(late)])
        good = np.flatnonzero(sums[IN_TIME_ROW:] == sums[:-IN_TIME_ROW]) if len(late) >= IN_TIME_ROW else late[:0]
        return int(self._seen.due_ms[after[good[0]]]) if len(good) else 1 << 62

    def _report(self, warm_mib: float, loaded_mib: float, peak_mib: float) -> dict[str, Any]:
        seen = self._seen
        counted = seen.copies > 0
        catch_up_ms = 0
        for from_ms, up_ms in self._exempt:
            to_ms = self._caught_up_ms(up_ms)
            catch_up_ms = max(catch_up_ms, to_ms - up_ms if up_ms < 1 << 62 else 0)
            counted &= ~((seen.due_ms >= from_ms) & (seen.due_ms < to_ms))
        late = (seen.arrived_ms - seen.due_ms)[counted]
        return {
            "timers": self._timers,
            "seconds": self._seconds,
            "kills": self.enode.starts - 1,
            "early": seen.early,
            "lost": int((seen.copies == 0).sum()),
            "duplicates": int((seen.copies > 1).sum()),
            "counted_for_lateness": len(late),
            "catch_up_ms": catch_up_ms,
            "late_ms": _percentiles(late),
            "disk_sync_ms": _percentiles(np.array(self._syncs_ms)),
            "memory_mib": {"before": round(warm_mib, 1), "loaded": round(loaded_mib, 1), "peak": round(peak_mib, 1)},
        }


def _percentiles(values: np.ndarray) -> dict[str, float]:
    found = {f"p{p}": round(float(np.percentile(values, p)), 1) for p in (50, 99, 99.9)}
    return found | {"max": round(float(values.max()), 1)}


def main() -> None:
    """Run it from the command line and print the figures as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m ortoo.verification.runs.timer_run", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--timers", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--kills", type=int, default=3)
    options = parser.parse_args()
    configure(level="error")
    with tempfile.TemporaryDirectory() as folder:
        run = TimerRun(Path(folder), timers=options.timers, seconds=options.seconds, kills=options.kills)
        sys.stdout.write(json.dumps(asyncio.run(run.run())) + "\n")


if __name__ == "__main__":
    main()
