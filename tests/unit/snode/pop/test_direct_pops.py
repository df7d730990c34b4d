"""Pops over several sources: a source without an answer delays no other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from ortoo.common.errors import Conflict, OrtooError, Unavailable
from ortoo.common.process.background import Background
from ortoo.snode.pop.call import PopCall, PopResult
from ortoo.snode.pop.direct_pops import PATIENCE_S, DirectPops

CALL = PopCall("g", "t", 2, 1_000, 0)
FROZEN = "frozen"


class Sources:
    """Each source has a number of messages, an error, or does not answer."""

    def __init__(self, **answers: int | str | OrtooError) -> None:
        self.answers = answers
        self.ended: list[str] = []
        self.released: list[PopResult] = []
        self.thawed = asyncio.Event()

    async def pop(self, source: Any, call: PopCall) -> PopResult:
        """The messages of a source."""
        answer = self.answers[source]
        if answer == FROZEN:
            try:
                await self.thawed.wait()
            except asyncio.CancelledError:
                self.ended.append(source)
                raise
            answer = 1
        if isinstance(answer, OrtooError):
            raise answer
        count = min(int(answer), call.messages_max)
        batch: Any = SimpleNamespace(popped=SimpleNamespace(offsets=range(count)), source=source)
        return PopResult([batch] if count else [], is_empty=not count)

    def release_later(self, results: list[PopResult]) -> None:
        """Note what was not needed."""
        self.released += [one for one in results if one.batches]


@asynccontextmanager
async def opened(**answers: int | str | OrtooError) -> AsyncIterator[tuple[DirectPops, Sources, list[Any]]]:
    """Pops over sources with these answers."""
    sources = Sources(**answers)
    async with asyncio.timeout(60), Background("test") as background:
        runtime: Any = SimpleNamespace(background=background)
        yield DirectPops(runtime, sources), sources, list(answers)  # type: ignore[arg-type]


def found(result: PopResult) -> list[str]:
    """The sources of the messages."""
    return sorted(one.source for one in result.batches)  # type: ignore[attr-defined]


async def test_a_frozen_source_does_not_delay_the_messages_of_others() -> None:
    """Whatever its place in the turn; its own pop is cancelled, which releases its messages."""
    async with opened(a=FROZEN, b=1, c=1) as (pops, sources, names):
        for _ in names:
            assert found(await pops.pop(names, CALL)) == ["b", "c"]
    assert (set(sources.ended), sources.released) == ({"a"}, [])


async def test_a_slow_source_is_waited_for_if_no_other_has_messages() -> None:
    """Its messages are found, though it answers late."""
    async with opened(a=FROZEN, b=0) as (pops, sources, names):
        asyncio.get_running_loop().call_later(3 * PATIENCE_S, sources.thawed.set)
        assert found(await pops.pop(names, CALL)) == ["a"]


async def test_errors_count_if_no_source_answers() -> None:
    """One failure is passed over; a conflict concerns all."""
    away = Unavailable("away")
    async with opened(a=away, b=1) as (pops, _, names):
        assert found(await pops.pop(names, CALL)) == ["b"]
    async with opened(a=away, b=away) as (pops, _, names):
        with pytest.raises(Unavailable):
            await pops.pop(names, CALL)
    async with opened(a=Conflict("another mode"), b=1) as (pops, _, names):
        with pytest.raises(Conflict):
            await pops.pop(names, CALL)
            await pops.pop(names, CALL)
