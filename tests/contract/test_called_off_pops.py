"""G8: a pop that is called off keeps no message, whether that is said before it, while it runs or after it."""

import pytest

from ortoo.common.errors import Conflict
from ortoo.common.groups.pop import PopWish
from ortoo.enode.pops.attempts import CALLED_OFF_S
from tests.contract.one_store import TOPIC
from tests.contract.pop_store import GROUP, INVISIBLE_MS, PopStore, attempts, play, texts


def wish(request_id: str, attempt_id: str = "a", *, wait_ms: int = 0, call_off: bool = False) -> PopWish:
    """One request of an attempt."""
    return PopWish(
        TOPIC, GROUP, (0, 1, 2), 32, INVISIBLE_MS, 1 << 20, wait_ms, "me", attempt_id,
        request_id=request_id, call_off=call_off,
    )  # fmt: skip


@pytest.mark.parametrize("called_off", ["r1", ""])
def test_what_a_pop_got_goes_back_at_once_as_if_never_delivered(called_off: str) -> None:
    """By its request, and by its attempt; whoever waits gets it."""

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
    """The two may overtake one another; three minutes later nothing is on its way any more."""

    async def scenario(it: PopStore) -> None:
        await it.send("a")
        await it.leasing.pop(wish(called_off, call_off=True))
        await it.one.clock.sleep(CALLED_OFF_S - 1)
        await it.leasing.forget_idle()
        with pytest.raises(Conflict):
            await it.leasing.pop(wish("r1"))
        assert texts(await it.pop()) == ["a"]
        await it.one.clock.sleep(2)
        await it.leasing.forget_idle()
        assert texts(await it.leasing.pop(wish("r1"))) == []  # the message is somebody else's, and that is all

    play(scenario)


def test_a_pop_that_waits_when_it_is_called_off_leaves_messages_to_the_next() -> None:
    """It is woken first, and passes that on."""

    async def scenario(it: PopStore) -> None:
        waiting = it.background.asked("pop", it.leasing.pop(wish("r1", wait_ms=60_000)))
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
    """The first request's answer was lost; that it is called off later takes nothing from who has its messages now."""

    async def scenario(it: PopStore) -> None:
        await it.send("a")
        assert texts(await it.leasing.pop(wish("r1"))) == ["a"]
        again = await it.leasing.pop(wish("r2"))
        assert texts(again) == ["a"]
        await it.leasing.pop(wish("r1", call_off=True))
        assert texts(await it.pop()) == []
        assert await it.ack(again) == 0

    play(scenario)


def test_two_requests_of_one_attempt_that_both_got_messages_are_called_off_by_themselves() -> None:
    """What the one got is not forgotten for the other's."""

    async def scenario(it: PopStore) -> None:
        first = it.background.asked("pop", it.leasing.pop(wish("r1", wait_ms=60_000)))
        second = it.background.asked("pop", it.leasing.pop(wish("r2", wait_ms=60_000)))
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
