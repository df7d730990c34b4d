"""The loop of a simulated run: time, order, kills, and no access to the real world."""

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

from ortoo.testing.simulation.kernel.event_loop import OutsideSimulation, SimulationStuck, VirtualLoop
from ortoo.testing.simulation.kernel.garbage import explicit_garbage_collection
from ortoo.testing.simulation.kernel.process import SimulatedProcess, dispose_all
from ortoo.testing.simulation.kernel.random_streams import RandomStreams
from tests.simulation.on_loop import run


@pytest.fixture
def loop() -> VirtualLoop:
    return VirtualLoop(RandomStreams(7))


def test_time_passes_only_when_everybody_waits(loop: VirtualLoop) -> None:
    """An hour of sleeping takes no time, and a timeout within it fires at its moment."""

    async def scenario() -> list[float]:
        seen = [loop.time()]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await loop.create_future()
        seen.append(loop.time())
        await asyncio.wait([loop.create_task(asyncio.Event().wait())], timeout=3_600)
        return [*seen, loop.time()]

    assert run(loop, scenario()) == [0.0, 10.0, 3_610.0]


def test_timers_of_one_moment_come_in_the_order_in_which_they_were_set(loop: VirtualLoop) -> None:
    """A heap alone would reorder some of them."""
    seen: list[int] = []

    async def scenario() -> None:
        over = loop.create_future()
        for number in range(50):
            loop.call_at(1.0, seen.append, number)
        loop.call_at(1.0, over.set_result, None)
        await over

    run(loop, scenario())
    assert seen == list(range(50))


def test_the_seed_draws_which_process_goes_first_and_nothing_else_does() -> None:
    """Within a process callbacks keep their order; between processes the seed decides, reproducibly."""

    def order(seed: int) -> list[str]:
        loop = VirtualLoop(RandomStreams(seed))
        seen: list[str] = []
        processes = [SimulatedProcess(loop, name) for name in "abc"]

        async def steps(name: str) -> None:
            for number in range(4):
                seen.append(f"{name}{number}")
                await asyncio.wait([loop.create_task(asyncio.Event().wait())], timeout=0)

        tasks = [process.spawn(process.name, steps(process.name)) for process in processes]
        for task in tasks:
            loop.run_until_complete(task)
        dispose_all(loop, processes)
        loop.close()
        return seen

    with explicit_garbage_collection():
        orders = [order(seed) for seed in range(6)]
        assert orders == [order(seed) for seed in range(6)]
    assert len({tuple(one) for one in orders}) > 1
    for one in orders:
        for name in "abc":
            assert [step for step in one if step.startswith(name)] == [f"{name}{number}" for number in range(4)]


def test_nothing_of_a_killed_process_runs_again(loop: VirtualLoop) -> None:
    """Neither ready callbacks, nor timers, nor finally blocks, nor open generators run."""
    seen: list[str] = []
    process = SimulatedProcess(loop, "victim")

    async def numbers() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            seen.append("generator")

    async def work() -> None:
        try:
            async for _ in numbers():
                seen.append("step")
                await asyncio.wait([loop.create_task(asyncio.Event().wait())], timeout=1)
        finally:
            seen.append("finally")

    async def scenario() -> None:
        process.spawn("work", work())
        process.context.run(loop.call_later, 2.0, seen.append, "timer")
        await asyncio.wait([loop.create_task(asyncio.Event().wait())], timeout=1.5)
        process.kill()
        await asyncio.wait([loop.create_task(asyncio.Event().wait())], timeout=100)

    loop.run_until_complete(loop.create_task(scenario(), context=loop.outside.context))
    assert seen == ["step", "step"]
    dispose_all(loop, [process])
    loop.close()
    assert "finally" in seen  # it is closed after the run, without effect


def test_work_that_a_kill_kept_from_beginning_is_closed(loop: VirtualLoop) -> None:
    """With the work that it would have awaited. Otherwise Python warns of it at some later time."""
    process = SimulatedProcess(loop, "killed")

    async def work() -> None:
        raise AssertionError

    async def contain(inner: Coroutine[Any, Any, None]) -> None:
        await inner

    async def scenario() -> None:
        process.spawn("contained", contain(inner))
        process.kill()

    inner = work()
    loop.run_until_complete(loop.create_task(scenario(), context=loop.outside.context))
    dispose_all(loop, [process])
    loop.close()
    assert inspect.getcoroutinestate(inner) == inspect.CORO_CLOSED


def test_a_paused_process_finds_its_timers_overdue(loop: VirtualLoop) -> None:
    """Time passes without it; when it is resumed all its due timers fire."""
    seen: list[float] = []
    process = SimulatedProcess(loop, "paused")

    async def work() -> None:
        while True:
            await asyncio.wait([loop.create_task(asyncio.Event().wait())], timeout=1)
            seen.append(loop.time())

    async def scenario() -> None:
        process.spawn("work", work())
        await asyncio.wait([loop.create_task(asyncio.Event().wait())], timeout=2.5)
        process.pause()
        await asyncio.wait([loop.create_task(asyncio.Event().wait())], timeout=10)
        process.resume()
        await asyncio.wait([loop.create_task(asyncio.Event().wait())], timeout=1.2)

    run(loop, scenario(), [process])
    assert seen == [1.0, 2.0, 12.5, 13.5]


def test_work_of_an_executor_is_done_on_this_thread_in_order(loop: VirtualLoop) -> None:
    """Each piece takes time, after the one before; one that is cancelled before it begins is not done."""
    seen: list[tuple[int, int]] = []

    async def scenario() -> None:
        def work(number: int) -> None:
            seen.append((number, threading.get_ident()))

        futures = [loop.run_in_executor(None, work, number) for number in range(5)]
        futures[3].cancel()
        await asyncio.gather(*futures, return_exceptions=True)
        assert await asyncio.to_thread(lambda: "answer") == "answer"
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 / 0)

    run(loop, scenario())
    assert [number for number, _ in seen] == [0, 1, 2, 4]
    assert {thread for _, thread in seen} == {threading.get_ident()}
    assert loop.time() > 0


def test_a_dead_lock_is_told(loop: VirtualLoop) -> None:
    """Where all tasks wait forever, a real process would hang."""

    async def scenario() -> None:
        await asyncio.Event().wait()

    with pytest.raises(SimulationStuck, match="all tasks wait"):
        run(loop, scenario())


def test_a_loop_that_spins_is_told(loop: VirtualLoop) -> None:
    """Without time passing no other event would ever happen."""

    async def scenario() -> None:
        while True:
            future: asyncio.Future[None] = loop.create_future()
            loop.call_soon(future.set_result, None)
            await future

    with pytest.raises(SimulationStuck, match="without any time passing"):
        run(loop, scenario())


def test_sets_of_tasks_are_walked_in_the_order_of_their_birth(loop: VirtualLoop) -> None:
    """Independent of their addresses: a set of small numbers is in order, and tasks are numbered."""

    async def scenario() -> list[int]:
        tasks = [loop.create_task(asyncio.Event().wait()) for _ in range(8)]
        base = tasks[0].number
        walked = [task.number - base for task in {*reversed(tasks)}]
        for task in tasks:
            task.cancel()
        return walked

    first = run(loop, scenario())
    assert sorted(first) == list(range(8))


def test_there_is_no_real_world(loop: VirtualLoop) -> None:
    """Sockets, resolvers, subprocesses and threads are refused by name."""

    async def scenario() -> None:
        for asking in (
            loop.create_connection(lambda: None, "localhost", 1),
            loop.create_server(lambda: None, "localhost", 1),
            loop.getaddrinfo("localhost", 1),
            asyncio.create_subprocess_exec("true"),
        ):
            with pytest.raises(OutsideSimulation):
                await asking
        refused: list[BaseException] = []

        def elsewhere() -> None:
            try:
                loop.call_soon_threadsafe(print)
            except OutsideSimulation as error:
                refused.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert len(refused) == 1

    run(loop, scenario())


def test_a_slow_process_takes_time_for_each_turn_and_others_go_on_meanwhile(loop: VirtualLoop) -> None:
    """Its steps keep their order; killed in the middle of a turn it takes no further one."""
    slow, quick = SimulatedProcess(loop, "slow"), SimulatedProcess(loop, "quick")
    slow.turn_s = 0.1
    seen: dict[str, list[float]] = {"slow": [], "quick": [], "late": []}

    async def steps(name: str) -> None:
        for _ in range(4):
            seen[name].append(loop.time())
            turn = loop.create_future()
            loop.call_soon(turn.set_result, None)
            await turn

    async def both() -> None:
        await asyncio.wait([slow.spawn("steps", steps("slow")), quick.spawn("steps", steps("quick"))])
        assert slow.is_busy
        slow.spawn("steps", steps("late"))
        slow.kill()
        await asyncio.wait([loop.create_task(asyncio.Event().wait())], timeout=1.0)

    run(loop, both(), [slow, quick])
    assert seen["quick"] == [0.0] * 4
    assert seen["slow"] == sorted(set(seen["slow"]))
    assert 0.0 < seen["slow"][-1] < 8 * 2 * slow.turn_s
    assert seen["late"] == []
