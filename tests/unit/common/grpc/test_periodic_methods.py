"""Calls of periodic methods wait for each other, so that the event loop takes many at one wake-up."""

import asyncio
from typing import Any

import pytest

from ortoo.common.grpc.completion_queue import server as queue_front
from ortoo.common.grpc.completion_queue.core import CompletionQueue
from ortoo.common.process.clock import SystemClock
from ortoo.snode.rpc.services import PERIODIC_METHODS, QUEUE_FRONT_METHODS
from tests.unit.common.grpc.test_queue_front import NAME, Served, connected, until

PAUSE_S, CALLS = 0.5, 40


async def answer_of(call: Any) -> bytes:
    """The answer of a call, for a task."""
    answer: bytes = await call
    return answer


@pytest.mark.parametrize(("method", "is_periodic"), [("Cold", True), ("Echo", False)])
async def test_calls_that_arrive_one_by_one_are_taken_together(
    method: str, is_periodic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of wake-ups depends on the time and not on the number of calls; calls of other methods do not wait."""
    turns, drain = 0, CompletionQueue._drain

    def counted(self: CompletionQueue) -> None:
        nonlocal turns
        turns += 1
        drain(self)

    monkeypatch.setattr(CompletionQueue, "_drain", counted)
    monkeypatch.setattr(queue_front, "PERIODIC_PAUSE_S", PAUSE_S)
    one, clock = Served(periodic=[f"/{NAME}/Cold"]), SystemClock()
    async with one.server, connected(one.server.address) as channel, asyncio.timeout(60):
        call, began_s, tasks = channel.unary_unary(f"/{NAME}/{method}"), clock.monotonic_s(), []
        async with asyncio.TaskGroup() as group:
            for at in range(CALLS):
                tasks.append(group.create_task(answer_of(call(bytes([at])))))
                if is_periodic:
                    await clock.sleep(0.01)
                else:
                    await tasks[-1]
        assert [task.result() for task in tasks] == [bytes([at]) for at in range(CALLS)]
        await until(lambda: one.budget.used_bytes == 0)
    if is_periodic:
        assert turns <= 10 + 4 * (clock.monotonic_s() - began_s) / PAUSE_S
    else:
        assert turns >= CALLS


def test_idle_rocketmq_consumers_call_only_methods_of_the_queue_front() -> None:
    """Their periodic calls need no grpc.aio."""
    names = {method.rpartition("/")[2] for method in (*PERIODIC_METHODS, *QUEUE_FRONT_METHODS)}
    assert names >= {"ReceiveMessage", "Heartbeat", "QueryAssignment"}
