"""Looks at connections, many of which share a timer."""

import asyncio
from typing import Any

import pytest

from ortoo.common.grpc.h2.shared.looks import DEADLINES_PER_S, LOOKS_PER_S, Looks
from tests.unit.common.grpc.served import until


class Connection:
    """Notes when it is looked at."""

    def __init__(self, seen: list["Connection"]) -> None:
        self.seen = seen
        self.due_s = 0.0
        self.late_s = 0.0

    def look(self) -> None:
        self.late_s = asyncio.get_running_loop().time() - self.due_s
        self.seen.append(self)


class Broken(Connection):
    """Raises an error."""

    def look(self) -> None:
        super().look()
        raise ValueError("broken")


async def until_seen(seen: list[Connection], count: int) -> None:
    async with asyncio.timeout(60):
        await until(lambda: len(seen) >= count)


@pytest.mark.parametrize("per_s", [LOOKS_PER_S, DEADLINES_PER_S])
async def test_many_connections_share_a_timer(monkeypatch: pytest.MonkeyPatch, per_s: int) -> None:
    """None is looked at before its time."""
    loop, looks, seen, timers = asyncio.get_running_loop(), Looks(per_s), list[Connection](), 0
    begin_s, call_later = loop.time(), loop.call_later

    def count(*arguments: Any, **options: Any) -> Any:
        nonlocal timers
        timers += 1
        return call_later(*arguments, **options)

    connections = [Connection(seen) for _ in range(500)]
    with monkeypatch.context() as patched:
        patched.setattr(loop, "call_later", count)
        for number, one in enumerate(connections):
            one.due_s = begin_s + number / 1_000
            looks.add(one, one.due_s)
    assert timers <= 0.5 * per_s + 1
    await until_seen(seen, len(connections))
    assert set(seen) == set(connections)
    assert min(one.late_s for one in connections) >= -0.001


async def test_a_lost_connection_is_not_looked_at_and_not_kept() -> None:
    """Also if its time has passed already."""
    looks, seen = Looks(), list[Connection]()
    now_s = asyncio.get_running_loop().time()
    lost, other = Connection(seen), Connection(seen)
    number = looks.add(lost, now_s + 0.1)
    assert looks.add(other, now_s + 0.1) == number
    looks.remove(lost, number)
    assert lost not in looks._due[number]
    await until_seen(seen, 1)
    assert seen == [other]
    looks.remove(other, number)
    assert not looks._due


async def test_a_look_that_ends_others_is_the_last_look_at_them() -> None:
    """A connection that is broken by its look ends its calls, which have looks of their own."""
    looks, seen = Looks(), list[Connection]()

    class Breaking(Connection):
        """Ends another one."""

        def look(self) -> None:
            super().look()
            looks.remove(call, number)

    due_s = asyncio.get_running_loop().time() + 0.1
    breaking, call, last = Breaking(seen), Connection(seen), Connection(seen)
    [number] = {looks.add(one, due_s) for one in (breaking, call, last)}
    await until_seen(seen, 2)
    assert seen == [breaking, last]
    assert not looks._due


async def test_an_error_at_one_connection_concerns_no_other() -> None:
    """They have the same timer."""
    looks, seen = Looks(), list[Connection]()
    now_s = asyncio.get_running_loop().time()
    for one in (Connection(seen), Broken(seen), Connection(seen)):
        looks.add(one, now_s + 0.1)
    await until_seen(seen, 3)
