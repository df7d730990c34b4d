"""The failure of work for one peer ends only that work, is counted, and does not fill the log (G14)."""

import asyncio
from itertools import count

import pytest
from structlog.testing import capture_logs

from ortoo.common.errors import Internal, Invalid
from ortoo.common.process import containment
from ortoo.common.process.background import Background
from ortoo.common.process.containment import CONTAINED_FAILURES, as_ortoo_error, record_contained

_numbers = count()


@pytest.fixture
def where() -> str:
    """A place that no other test has used."""
    return f"test {next(_numbers)}"


async def fail() -> None:
    """Raise a defect."""
    raise ValueError("a defect")


async def test_a_failure_ends_its_scope_and_nothing_else(where: str) -> None:
    """The scope's other tasks end, waiting callers get an error, and the process's own tasks continue."""
    heard: list[Exception] = []
    async with asyncio.timeout(60), Background("process") as background:
        loop = background.spawn("own loop", asyncio.Event().wait())
        scope = background.scope(where, failed=heard.append)
        sibling = scope.start("sibling", asyncio.Event().wait())
        await asyncio.wait([scope.start("failing", fail()), sibling])
        late = scope.start("late", asyncio.Event().wait())
        await asyncio.wait([late])
        assert sibling.cancelled()
        assert late.cancelled()
        assert not loop.done()
    assert [str(error) for error in heard] == ["a defect"]
    assert CONTAINED_FAILURES[where] == 1


async def test_one_who_cannot_even_be_told_ends_nothing(where: str) -> None:
    """Sending a peer the reason for its end may fail as well."""

    def failed(error: Exception) -> None:
        raise RuntimeError("it does not listen")

    async with asyncio.timeout(60), Background("process") as background:
        await background.scope(where, failed=failed).start("failing", fail())
    assert (CONTAINED_FAILURES[where], CONTAINED_FAILURES[f"{where}: end"]) == (1, 1)


async def test_a_cancelled_scope_ends_its_tasks_without_a_word(where: str) -> None:
    """A peer that disconnected is not a failure."""
    async with asyncio.timeout(60), Background("process") as background:
        scope = background.scope(where)
        tasks = [scope.start("x", asyncio.Event().wait()) for _ in range(3)]
        scope.cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)
    assert where not in CONTAINED_FAILURES


async def test_what_was_asked_for_fails_for_whoever_waits() -> None:
    """The caller gets the error, a second waiter gets it too, and having no waiter is fine."""
    async with asyncio.timeout(60), Background("process") as background:
        for failing in (background.start_future("x", fail()), background.start_future("x", fail())):
            with pytest.raises(ValueError, match="a defect"):
                await failing
        await asyncio.wait([background.start_future("unheard", fail())])
        with pytest.raises(ValueError, match="a defect"):
            await background.run_shielded("kept", fail())


async def test_cancelling_what_was_asked_for_ends_it_and_a_cancelled_wait_for_what_is_kept_does_not() -> None:
    """A disconnected caller is no longer served; accepted work is completed."""
    begun, ended, go_on, done = (asyncio.Event() for _ in range(4))

    async def work() -> None:
        begun.set()
        try:
            await go_on.wait()
            done.set()
        except asyncio.CancelledError:
            ended.set()
            raise

    async with asyncio.timeout(60), Background("process") as background:
        asked = background.start_future("asked", work())
        await begun.wait()
        asked.cancel()
        await ended.wait()
        begun.clear()
        waiter = background.spawn("waiter", background.run_shielded("kept", work()))
        await begun.wait()
        waiter.cancel()
        await asyncio.wait([waiter])
        go_on.set()
        await done.wait()


async def test_of_one_kind_the_log_has_one_line_a_second(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand malformed requests are one line per second with a count of the others, without a traceback."""
    now_s = [100.0]
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now_s[0])
    with capture_logs() as lines:
        for _ in range(1_000):
            record_contained(where, Invalid("no request"))
        record_contained(where, ValueError("of another kind"))
        now_s[0] += containment.LINE_INTERVAL_S
        record_contained(where, Invalid("no request"))
    assert [line.get("left_out", 0) for line in lines] == [0, 0, 999]
    assert ["exc_info" in line for line in lines] == [False, True, False]
    assert CONTAINED_FAILURES[where] == 1_002


async def test_a_defect_is_told_as_internal_and_what_is_known_as_it_is(where: str) -> None:
    """A peer sees no details of a defect."""
    known = Invalid("fix it")
    assert as_ortoo_error(known, where) is known
    assert isinstance(as_ortoo_error(KeyError("secret"), where), Internal)
    assert CONTAINED_FAILURES[where] == 1
