"""The findings of any process about its event loop and the memory for its clients."""

import asyncio
import contextlib

import pytest

from ortoo.common.process.memory_budget import FINDING_PERCENT, MemoryBudget
from ortoo.common.telemetry.process_metrics import LATE_S, PROBES_KEPT, ProcessMetrics
from ortoo.verification.time.virtual_clock import VirtualClock


class LateClock(VirtualClock):
    """Each sleep is late by the next of these times, in seconds; after the last one the sleeper is cancelled."""

    def __init__(self, *late_s: float) -> None:
        """Begin with the first time."""
        super().__init__()
        self._late_s = list(late_s)

    async def sleep(self, seconds: float) -> None:
        """Advance to the late end of the sleep."""
        if not self._late_s:
            raise asyncio.CancelledError
        self.advance(seconds + self._late_s.pop(0))


@pytest.mark.parametrize(
    ("late_s", "is_late"),
    [
        ([LATE_S + 1] * PROBES_KEPT, True),
        ([LATE_S + 1] * (PROBES_KEPT - 1), False),
        ([0.0] * (PROBES_KEPT - 1) + [LATE_S + 9], False),
    ],
)
async def test_an_event_loop_that_is_usually_late_is_a_finding(late_s: list[float], *, is_late: bool) -> None:
    """One late timer, or a few of them after the start, are none."""
    metrics = ProcessMetrics("snode", "s", LateClock(*late_s))
    with contextlib.suppress(asyncio.CancelledError):
        await metrics.probe_loop()
    assert ("event loop lag" in [one.name for one in metrics.findings()]) is is_late


def test_memory_that_is_nearly_used_up_is_a_finding() -> None:
    """The finding names the kind of owner that holds most."""
    budget = MemoryBudget(100_000, VirtualClock())
    budget.share("streams").draw_unchecked(budget.bytes_max * FINDING_PERCENT // 100)
    assert list(budget.findings()) == []
    budget.share("sends").draw_unchecked(budget.bytes_max // 100)
    [found] = budget.findings()
    assert found.name == "memory budget exhausted"
    assert "most for streams" in found.observed
