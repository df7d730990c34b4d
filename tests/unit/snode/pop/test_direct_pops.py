"""Pops over several sources: a source without an answer delays no other."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
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
        self.late: dict[str, int | OrtooError] = {}
        """The answers of frozen sources after they thawed; 1 if there is none."""
        self._thawed: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def thaw(self, *sources: str) -> None:
        """Let frozen sources answer."""
        for one in sources:
            self._thawed[one].set()

    async def pop(self, source: Any, call: PopCall) -> PopResult:
        """The messages of a source."""
        answer = self.answers[source]
        if answer == FROZEN:
            try:
                await self._thawed[source].wait()
            except asyncio.CancelledError:
                self.ended.append(source)
                raise
            answer = self.late.get(source, 1)
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
        asyncio.get_running_loop().call_later(3 * PATIENCE_S, sources.thaw, "a")
        assert found(await pops.pop(names, CALL)) == ["a"]


async def test_an_empty_answer_that_is_late_hides_no_messages() -> None:
    """If all sources are slow, each of them is waited for."""
    async with opened(a=FROZEN, b=FROZEN) as (pops, sources, names):
        sources.late = {"a": 0, "b": 1}
        asyncio.get_running_loop().call_later(3 * PATIENCE_S, sources.thaw, "a")
        asyncio.get_running_loop().call_later(4 * PATIENCE_S, sources.thaw, "b")
        assert found(await pops.pop(names, CALL)) == ["b"]


async def test_a_late_failure_is_passed_over() -> None:
    """Another source has answered that it is empty."""
    async with opened(a=FROZEN, b=0) as (pops, sources, names):
        sources.late = {"a": Unavailable("away")}
        asyncio.get_running_loop().call_later(3 * PATIENCE_S, sources.thaw, "a")
        assert found(await pops.pop(names, CALL)) == []


@pytest.mark.parametrize("wait_ms", [0, 60_000])
@pytest.mark.parametrize("other", [2, Conflict("another mode")])
async def test_late_answers_in_one_moment(wait_ms: int, other: int | Conflict) -> None:
    """A pop returns at most the requested number of messages. After a conflict, no messages stay leased."""
    async with opened(a=FROZEN, b=FROZEN) as (pops, sources, names):
        sources.late = {"a": other, "b": 2}  # b is asked first
        asyncio.get_running_loop().call_later(3 * PATIENCE_S, sources.thaw, "a", "b")
        with pytest.raises(Conflict) if isinstance(other, Conflict) else nullcontext():
            assert len(found(await pops.pop(names, replace(CALL, wait_ms=wait_ms)))) == 1
        assert len(sources.released) == 1


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
