"""The cores on which the threads of a real enode run under a light and a heavy load."""

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.verification.servers.lone_enode import NO_NAME_SERVER
from ortoo.verification.servers.ports import free_address
from ortoo.verification.servers.processes import RoleProcess
from ortoo.verification.servers.scrape import get, scraped

CORES = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set[int]()
pytestmark = pytest.mark.skipif(len(CORES) < 2, reason="ONE CORE, or none to choose; run it on Linux with two")
PATIENCE_S = 90.0
"""It takes seconds; a busy machine starves processes."""
WINDOW_S, LIGHT = 0.1, 0.3
CLOCK = SystemClock()


class Enode(RoleProcess):
    """An enode that appears to be the only process on the machine while a file exists."""

    def _command(self, listen_address: str) -> Sequence[str]:
        return (sys.executable, "-m", "tests.e2e.quiet_machine", str(self.folder / "quiet"))

    def used_s(self) -> float:
        """Processor time that it has used."""
        words = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def masks(self) -> set[frozenset[int]]:
        """The core masks of its threads."""
        return {frozenset(os.sched_getaffinity(int(one))) for one in os.listdir(f"/proc/{self.pid}/task")}


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for it."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            await CLOCK.sleep(0.05)


async def test_a_light_load_is_on_one_core_and_a_heavy_one_on_all(tmp_path: Path) -> None:
    """All threads of the process, both ways; its metric says the same."""
    metrics = free_address()
    enode = Enode("enode", tmp_path, {"NAMESRV_ADDRESS": NO_NAME_SERVER, "METRICS_ADDRESS": metrics})
    quiet, is_heavy, is_over = tmp_path / "quiet", asyncio.Event(), asyncio.Event()
    quiet.touch()

    async def load() -> None:
        while not is_over.is_set():
            window_s, used_s = CLOCK.monotonic_s(), enode.used_s()
            while not is_over.is_set() and (is_heavy.is_set() or enode.used_s() - used_s < LIGHT * WINDOW_S):
                await get(metrics, "/metrics")
            await CLOCK.sleep(max(0.0, WINDOW_S - (CLOCK.monotonic_s() - window_s)))

    await enode.start()
    try:
        async with Background("load") as background:
            loads = [background.spawn("load", load())]
            await until(lambda: len(enode.masks()) == 1 and len(next(iter(enode.masks()))) == 1)
            assert [*(await scraped(metrics))["ortoo_cores"].values()] == [1]
            quiet.unlink()
            is_heavy.set()
            loads += [background.spawn("load", load()) for _ in range(7)]
            await until(lambda: enode.masks() == {frozenset(CORES)})
            is_over.set()
            await asyncio.gather(*loads)
    finally:
        await enode.kill()
