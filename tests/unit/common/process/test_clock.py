"""The machine's own time."""

import time
from types import SimpleNamespace

import pytest

from ortoo.common.process.clock import SystemClock, suspend_aware_clock_id


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="NO CLOCK_BOOTTIME; run it on Linux")
def test_the_clock_of_leases_is_the_one_that_goes_on_while_the_machine_sleeps() -> None:
    """Its time lies between two readings of that clock."""
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    now_s = SystemClock().monotonic_s()
    assert before <= now_s <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_a_system_without_such_a_clock_has_another_one() -> None:
    """A system without the clock, or one that refuses it, counts only the seconds that it is awake."""

    def refused(number: int) -> float:
        raise OSError(22, "Invalid argument")

    assert suspend_aware_clock_id(SimpleNamespace(monotonic=lambda: 3.0))() == 3.0
    assert (
        suspend_aware_clock_id(SimpleNamespace(monotonic=lambda: 4.0, CLOCK_BOOTTIME=7, clock_gettime=refused))() == 4.0
    )
    assert (
        suspend_aware_clock_id(
            SimpleNamespace(monotonic=lambda: 5.0, CLOCK_BOOTTIME=7, clock_gettime=lambda number: 6.0)
        )()
        == 6.0
    )
