"""A machine's clock: it jumps, it drifts, and its sleepers wake a little late."""

from ortoo.testing.simulation.kernel.clock import EPOCH_MS, LATE_SELDOM_S, MachineClock
from ortoo.testing.simulation.kernel.event_loop import VirtualLoop
from ortoo.testing.simulation.kernel.random_streams import RandomStreams
from tests.simulation.on_loop import run


def test_a_jump_moves_the_wall_clock_and_a_drift_both() -> None:
    """The monotonic clock never jumps; a clock that is 1 % fast counts 101 seconds in 100."""
    loop = VirtualLoop(RandomStreams(1))
    clock = MachineClock(loop, RandomStreams(1).stream("clock"))
    loop.leap(100)
    clock.jump(-5_000)
    assert clock.monotonic_s() == 100.0
    assert clock.now_ms() == EPOCH_MS + 95_000
    clock.drift(0.01)
    assert clock.monotonic_s() == 100.0
    loop.leap(100)
    assert round(clock.monotonic_s(), 6) == 201.0
    assert round(clock.wall_error_ms) == -4_000
    loop.close()


def test_sleepers_wake_late_and_never_early() -> None:
    """By a millisecond usually, by more rarely."""
    loop = VirtualLoop(RandomStreams(2))
    clock = MachineClock(loop, RandomStreams(2).stream("clock"))
    late: list[float] = []

    async def scenario() -> None:
        for _ in range(300):
            before_s = loop.time()
            await clock.sleep(1.0)
            late.append(loop.time() - before_s - 1.0)

    run(loop, scenario())
    assert min(late) >= 0.0
    assert max(late) <= LATE_SELDOM_S
    assert sum(one > 0.002 for one in late) < 20
