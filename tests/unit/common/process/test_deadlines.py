"""Deadlines: in the order of time, by one sleeping task, and with bounded memory."""

import asyncio

from ortoo.common.process.deadlines import DeadlineHeap, DeadlineWheel
from ortoo.verification.time.virtual_clock import VirtualClock


def test_calls_come_in_the_order_of_their_times() -> None:
    """None comes before its time, and none that was cancelled, not even by the one right before it."""
    heap, called = DeadlineHeap(), list[str]()
    last = heap.add(3.0, lambda: called.append("c"))

    def second() -> None:
        called.append("b")
        heap.cancel(last)

    heap.add(2.0, second)
    heap.add(1.0, lambda: called.append("a"))
    assert heap.pop_due(0.9) is None
    while (call := heap.pop_due(3.0)) is not None:
        call()
    assert called == ["a", "b"]
    assert heap.next_s() is None


def test_cancelled_deadlines_do_not_stay() -> None:
    """Of 100,000 deadlines that were set and cancelled while 100 are pending, at most twice the pending are kept."""
    heap = DeadlineHeap()
    kept = [heap.add(1_000.0 + number, lambda: None) for number in range(100)]
    for number in range(100_000):
        heap.cancel(heap.add(float(number), lambda: None))
    assert len(kept) <= len(heap) <= 2 * len(kept) + 1
    heap.cancel(kept[0])
    heap.cancel(kept[0])
    assert heap.next_s() == 1_001.0


def test_an_earlier_deadline_cuts_the_sleep_short() -> None:
    """There is only one sleeping task; after closing no function is called."""
    clock = VirtualClock()

    async def scenario() -> None:
        wheel, called = DeadlineWheel(clock, "test"), list[float]()
        start_s = clock.monotonic_s()
        for after_s in (5.0, 1.0, 3.0):
            wheel.add(start_s + after_s, lambda: called.append(clock.monotonic_s() - start_s))
        sleepers = [task for task in asyncio.all_tasks() if task.get_name() == "test" and not task.cancelling()]
        assert len(sleepers) == 1
        await clock.sleep(4.0)
        assert called == [1.0, 3.0]
        await wheel.close()
        await clock.sleep(10.0)
        assert len(called) == 2

    clock.run(scenario)
