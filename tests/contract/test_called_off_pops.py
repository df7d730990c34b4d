"""G8: a cancelled pop keeps no message, whether it is cancelled before, during or after its run."""

from collections.abc import Sequence

import pytest

from ortoo.common.errors import Conflict, Overloaded
from ortoo.common.groups.pop import PopRequest, Redeliver
from ortoo.enode.changes.kinds import StateChange
from ortoo.enode.changes.pops import PopLeased
from ortoo.enode.pops.attempts import CANCELLED_RETENTION_S
from tests.contract.one_store import TOPIC
from tests.contract.pop_store import GROUP, INVISIBLE_MS, PopStore, attempts, parts, play, texts


def wish(request_id: str, attempt_id: str = "a", *, wait_ms: int = 0, call_off: bool = False) -> PopRequest:
    """One request of an attempt."""
    return PopRequest(
        TOPIC, GROUP, (0, 1, 2), 32, INVISIBLE_MS, 1 << 20, wait_ms, "me", attempt_id,
        request_id=request_id, cancel=call_off,
    )  # fmt: skip


@pytest.mark.parametrize("called_off", ["r1", ""])
def test_what_a_pop_got_goes_back_at_once_as_if_never_delivered(called_off: str) -> None:
    """A pop can be cancelled by its request or by its attempt; a waiting consumer gets the message."""

    async def scenario(it: PopStore) -> None:
        await it.send("a", "b")
        assert texts(await it.leasing.pop(wish("r1"))) == ["a", "b"]
        waiting = it.popping()
        await it.one.clock.sleep(1)
        assert texts(await it.leasing.pop(wish(called_off, call_off=True))) == []
        again = await waiting
        assert texts(again) == ["a", "b"]
        assert list(attempts(again)) == [1, 1]

    play(scenario)


@pytest.mark.parametrize("called_off", ["r1", ""])
def test_a_pop_that_comes_after_it_was_called_off_gets_nothing(called_off: str) -> None:
    """A cancellation may overtake its pop; after three minutes no request is in transit any more."""

    async def scenario(it: PopStore) -> None:
        await it.send("a")
        await it.leasing.pop(wish(called_off, call_off=True))
        await it.one.clock.sleep(CANCELLED_RETENTION_S - 1)
        await it.leasing.lines.forget_idle()
        with pytest.raises(Conflict):
            await it.leasing.pop(wish("r1"))
        assert texts(await it.pop()) == ["a"]
        await it.one.clock.sleep(2)
        await it.leasing.lines.forget_idle()
        assert texts(await it.leasing.pop(wish("r1"))) == []  # another consumer has the message

    play(scenario)


def test_a_pop_that_waits_when_it_is_called_off_leaves_messages_to_the_next() -> None:
    """It is woken first, and wakes the next one."""

    async def scenario(it: PopStore) -> None:
        waiting = it.background.start_future("pop", it.leasing.pop(wish("r1", wait_ms=60_000)))
        await it.one.clock.sleep(1)
        other = it.popping()
        await it.leasing.pop(wish("r1", call_off=True))
        await it.one.clock.sleep(1)
        await it.send("a")
        with pytest.raises(Conflict):
            await waiting
        assert texts(await other) == ["a"]

    play(scenario)


def test_another_request_of_the_attempt_keeps_what_it_was_told_again() -> None:
    """The first request's answer was lost; cancelling it later does not take its messages from their new holder."""

    async def scenario(it: PopStore) -> None:
        await it.send("a")
        assert texts(await it.leasing.pop(wish("r1"))) == ["a"]
        again = await it.leasing.pop(wish("r2"))
        assert texts(again) == ["a"]
        await it.leasing.pop(wish("r1", call_off=True))
        assert texts(await it.pop()) == []
        assert await it.ack(again) == 0

    play(scenario)


def test_what_was_told_again_is_not_given_back_by_the_first_answer() -> None:
    """The snode with the first answer finds late that its client has disconnected, and knows no other request."""

    async def scenario(it: PopStore) -> None:
        await it.send("a", "b")
        first = await it.leasing.pop(wish("r1"))
        await it.one.clock.sleep(INVISIBLE_MS / 2000)
        again = await it.leasing.pop(wish("r2"))
        assert (texts(again), list(attempts(again))) == (["a", "b"], [1, 1])
        await it.leasing.settle(TOPIC, GROUP, parts(first), Redeliver(counts=False))
        await it.one.clock.sleep(INVISIBLE_MS / 2000 + 1)  # its lease began with its answer
        assert texts(await it.pop()) == []
        await it.restart()
        assert texts(await it.pop()) == []
        assert await it.ack(again) == 0

    play(scenario)


def test_what_was_told_again_goes_back_when_that_request_is_called_off() -> None:
    """The delivery does not count as an attempt."""

    async def scenario(it: PopStore) -> None:
        await it.send("a")
        await it.leasing.pop(wish("r1"))
        await it.leasing.pop(wish("r2"))
        await it.leasing.pop(wish("r2", call_off=True))
        popped = await it.pop()
        assert (texts(popped), list(attempts(popped))) == (["a"], [1])

    play(scenario)


def test_a_pop_that_waits_hears_at_once_that_it_was_called_off() -> None:
    """Otherwise cancelled pops would take the places of waiting ones."""

    async def scenario(it: PopStore) -> None:
        sibling = it.background.start_future("pop", it.leasing.pop(wish("r2", wait_ms=60_000)))
        other = it.popping()
        waiting = it.background.start_future("pop", it.leasing.pop(wish("r1", wait_ms=60_000)))
        await it.one.clock.sleep(1)
        begun_s = it.one.clock.monotonic_s()
        await it.leasing.pop(wish("r1", call_off=True))
        with pytest.raises(Conflict):
            await waiting
        assert it.one.clock.monotonic_s() - begun_s < 1
        for one in (other, sibling):
            await it.send("a")
            assert texts(await one) == ["a"]

    play(scenario)


def test_a_pop_is_called_off_again_after_it_could_not_be_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its messages are remembered until they are released."""

    async def scenario(it: PopStore) -> None:
        await it.send("a")
        await it.leasing.pop(wish("r1"))

        async def full(*_: object) -> None:
            raise Overloaded("the log has no room")

        with monkeypatch.context() as patch, pytest.raises(Overloaded):
            patch.setattr(it.store.engine, "store", full)
            await it.leasing.pop(wish("r1", call_off=True))
        await it.leasing.pop(wish("r1", call_off=True))
        popped = await it.pop()
        assert (texts(popped), list(attempts(popped))) == (["a"], [1])

    play(scenario)


def test_what_a_pop_got_of_one_queue_is_given_though_the_next_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that gets an error has no messages, and would not know these."""

    async def scenario(it: PopStore) -> None:
        for queue_id in range(3):
            await it.send("a", queue_id=queue_id)
        await it.pop(1)
        note, calls = it.store.engine.store_without_waiting, list[PopLeased]()

        async def full(changes: Sequence[StateChange]) -> None:
            calls.extend(one for one in changes if isinstance(one, PopLeased))
            if len(calls) == 2:
                raise Overloaded("the log has no room")
            await note(changes)

        with monkeypatch.context() as patch:
            patch.setattr(it.store.engine, "store_without_waiting", full)
            assert len(texts(await it.leasing.pop(wish("r1")))) == 1
        assert len(calls) == 2
        assert len(texts(await it.leasing.pop(wish("r3", "b")))) == 1

    play(scenario)


def test_two_requests_of_one_attempt_that_both_got_messages_are_called_off_by_themselves() -> None:
    """The messages of one pop are not forgotten for those of the other."""

    async def scenario(it: PopStore) -> None:
        first = it.background.start_future("pop", it.leasing.pop(wish("r1", wait_ms=60_000)))
        second = it.background.start_future("pop", it.leasing.pop(wish("r2", wait_ms=60_000)))
        await it.one.clock.sleep(1)
        await it.send("a")
        assert texts(await first) == ["a"]
        await it.send("b")
        kept = await second
        assert texts(kept) == ["b"]
        await it.leasing.pop(wish("r1", call_off=True))
        assert texts(await it.pop()) == ["a"]
        assert await it.ack(kept) == 0

    play(scenario)
