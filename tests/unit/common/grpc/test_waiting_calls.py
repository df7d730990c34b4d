"""Calls whose requests do not arrive have a small memory of their own."""

import pytest

from ortoo.common.errors import Overloaded
from ortoo.common.grpc.layers.arrival import Arrival
from ortoo.common.grpc.layers.call_memory import CALL_BYTES, CallMemory
from ortoo.common.grpc.layers.waiting_calls import ENDED_OF_CONNECTION_MAX, WAITING_BYTES_MIN, WaitingCalls
from ortoo.common.process.memory_budget import MemoryBudget

CALLS_MAX = WAITING_BYTES_MIN // CALL_BYTES


def begun(calls: CallMemory, ended: list[Arrival], kind: str = "One", *, is_observer: bool = False) -> Arrival:
    """A call whose headers have arrived. Errors: Overloaded."""
    arrival = Arrival(kind, (), is_observer=is_observer, gives_many=False)
    arrival.end = lambda _: ended.append(arrival)
    calls.arrive(arrival)
    return arrival


@pytest.mark.parametrize("is_observer", [False, True])
def test_calls_without_a_request_take_no_memory_from_others(is_observer: bool) -> None:
    """Any number of them leaves the budget unused; the oldest are ended, and none is refused."""
    budget, ended = MemoryBudget(6 << 20), list[Arrival]()
    calls = CallMemory(budget)
    first = [begun(calls, ended, is_observer=is_observer) for _ in range(CALLS_MAX)]
    first[0].on_request_received()
    first[1].on_released()
    assert ended == []
    later = [begun(calls, ended, is_observer=is_observer) for _ in range(4)]
    assert ended == first[2:4]
    assert budget.used_bytes == 0
    budget.share("produce streams").draw(budget.bytes_max // 2)
    for arrival in (*first, *later):
        arrival.on_released()
    assert calls.waiting.used_bytes == 0


def test_ended_calls_that_are_not_released_are_limited() -> None:
    """A call is kept until its status is sent. A peer that does not read could hold any number of calls."""
    ended = list[Arrival]()
    calls = CallMemory(MemoryBudget(6 << 20))
    for _ in range(2 * CALLS_MAX + 1):
        begun(calls, ended)
    with pytest.raises(Overloaded, match="bytes are held by calls"):
        begun(calls, ended)
    for arrival in ended:
        arrival.on_released()
    begun(calls, ended)


def test_calls_of_the_connection_with_most_of_them_are_ended_first() -> None:
    """A connection with few waiting calls keeps them, and the connection that opens many is closed."""
    closed, ended = list[str](), list[Arrival]()
    calls = WaitingCalls(6 << 20, closed.append)

    def begin(peer: str) -> Arrival:
        arrival = Arrival("One", (), is_observer=False, gives_many=False)
        arrival.end = lambda _: ended.append(arrival)
        calls.add(arrival, CALL_BYTES)
        arrival.peer = peer  # known after the headers
        return arrival

    slow = begin("ipv4:10.0.0.1:1")
    flood = [begin("ipv4:10.0.0.2:2") for _ in range(CALLS_MAX - 1 + ENDED_OF_CONNECTION_MAX)]
    assert ended == flood[:ENDED_OF_CONNECTION_MAX]
    assert closed == ["ipv4:10.0.0.2:2"]
    for arrival in (slow, *flood):
        calls.remove(arrival)
    assert [*filter(None, vars(calls).values())] == [calls.bytes_max, calls._end_connection]
