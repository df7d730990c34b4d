"""The effect of a busy event loop on fdatasync: the flush thread needs the interpreter after each one."""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench.percentiles import latency_figures
from bench.report import Figures, main, ratio
from bench.stores import TOPIC_ID, open_store, repeated_batches
from ortoo.enode.disk.disk import RealDisk, RealFile
from ortoo.enode.leadership.services import SWITCH_INTERVAL_S

METHOD = (
    "one batch after another is appended to a store in this process. Every fdatasync is timed in the flush thread, "
    "until it has the interpreter again. Measured beside an idle event loop and beside one that always has work, in "
    "short turns"
)
PYTHON_SWITCH_INTERVAL_S = 0.005
BUSY_STEP_S = 0.0005


class TimedFile(RealFile):
    """A file that records the duration of each sync."""

    def __init__(self, file: RealFile, durations: list[float]) -> None:
        """Take over an open file."""
        vars(self).update(vars(file))
        self._durations = durations

    def sync_data(self) -> None:
        """Sync, and record the time until the thread holds the interpreter again."""
        started = time.perf_counter()
        super().sync_data()
        self._durations.append(time.perf_counter() - started)


class TimedDisk(RealDisk):
    """A disk whose files are timed."""

    def __init__(self) -> None:
        """Start without any recorded duration."""
        super().__init__()
        self.durations: list[float] = []

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> RealFile:
        """Open a timed file."""
        return TimedFile(super().open(path, create=create, writable=writable), self.durations)


async def measure(options: argparse.Namespace) -> Figures:
    """Idle and saturated, in short turns; then saturated with Python's default switch interval."""
    disk = TimedDisk()
    idle: list[float] = []
    saturated: list[float] = []
    with tempfile.TemporaryDirectory(prefix="ortoo-bench-") as folder:
        async with open_store(Path(folder), disk=disk, key_index=False) as store:
            batch = repeated_batches(1000, 20)(0)

            async def appended() -> list[float]:
                disk.durations.clear()
                for _ in range(options.appends):
                    await store.append(TOPIC_ID, 0, batch)
                return list(disk.durations)

            await appended()
            for _ in range(options.rounds):
                idle += await appended()
                saturated += await _beside_work(appended)
            sys.setswitchinterval(PYTHON_SWITCH_INTERVAL_S)
            slow = await _beside_work(appended) + await _beside_work(appended)
            sys.setswitchinterval(SWITCH_INTERVAL_S)
    beside_idle, beside_work = latency_figures(idle), latency_figures(saturated)
    return {
        **beside_work,
        "baselines": {
            "beside an idle loop": beside_idle,
            "beside a busy loop, with the interpreter's own switch interval of 5 ms": latency_figures(slow),
        },
        "ratios": {
            "p99 beside an idle loop to p99 beside a busy one": ratio(beside_idle["p99_ms"], beside_work["p99_ms"])
        },
    }


async def _beside_work(append: Callable[[], Awaitable[list[float]]]) -> list[float]:
    """Append while two tasks keep the loop busy all the time."""
    done = False

    async def work() -> None:
        while not done:
            until = time.perf_counter() + BUSY_STEP_S
            while time.perf_counter() < until:
                pass
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(work()) for _ in range(2)]
    durations = await append()
    done = True
    await asyncio.gather(*tasks)
    return durations


if __name__ == "__main__":
    main("flush", METHOD, measure, appends=50, rounds=60)
