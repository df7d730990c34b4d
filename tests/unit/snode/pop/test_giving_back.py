"""Telling enodes that nobody waits for a pop any more."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from ortoo.common.errors import NotFound, OrtooError, Unavailable
from ortoo.common.groups.pop import GiveBack, LeasePart, Popped, PoppedBatch, PopWish
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.batch import encode
from ortoo.common.records.message import Message
from ortoo.snode.pop.giving_back import GivingBack
from ortoo.testing.time.virtual_clock import VirtualClock

WISH = PopWish(7, "g", (0, 1), 32, 30_000, 1 << 20, 20_000, "me", "a", request_id="r")


class Enode:
    """One that is away for a while, or does not know how to call off."""

    def __init__(self, *errors: OrtooError, found: Sequence[PoppedBatch] = ()) -> None:
        self.errors = list(errors)
        self.found = list(found)
        self.asked: list[PopWish] = []
        self.given_back: list[Any] = []

    async def pop(self, wish: PopWish) -> Popped:
        """An error, or what it finds."""
        self.asked.append(wish)
        if self.errors:
            raise self.errors.pop(0)
        return Popped(self.found)

    async def settle(self, topic_id: int, group: str, parts: Sequence[LeasePart], verdict: object) -> list[object]:
        """Fine."""
        self.given_back.append((topic_id, group, list(parts), verdict))
        return []

    def to(self, _: str) -> "Enode":
        """The only one."""
        return self


def giving_back(enode: Enode) -> tuple[GivingBack, VirtualClock]:
    """On a clock of its own."""

    class Runtime:
        clock = VirtualClock()
        randomness = Randomness(1)

    return GivingBack(Runtime(), enode), Runtime.clock  # type: ignore[arg-type]


async def test_an_enode_is_told_which_request_and_gives_nothing() -> None:
    """It waits for nothing, and there is nothing to give back here."""
    enode = Enode()
    await giving_back(enode)[0].call_off("enode-0", WISH)
    [said] = enode.asked
    assert (said.call_off, said.attempt_id, said.request_id, said.wait_ms) == (True, "a", "r", 0)
    assert (said.topic_id, said.group, said.queue_ids) == (7, "g", (0, 1))
    assert enode.given_back == []


async def test_what_an_older_enode_pops_instead_goes_back_as_if_never_delivered() -> None:
    """It finds what the attempt got, for it does not know the field; as little else as it can bring."""
    found = [PoppedBatch(1, 5, 1, encode([Message(b"x")], now_ms=1), (8,), (1,))]
    enode = Enode(found=found)
    await giving_back(enode)[0].call_off("enode-0", WISH)
    assert enode.asked[0].messages_max == 1
    assert enode.given_back == [(7, "g", [LeasePart(1, 5, ((8, 1),))], GiveBack(counts=False))]


def test_an_enode_that_is_away_is_told_when_it_is_back() -> None:
    """Again and again, but not for longer than the lease lasts."""
    enode = Enode(Unavailable("away"), Unavailable("away"))
    back, clock = giving_back(enode)
    clock.run(lambda: back.call_off("enode-0", WISH))
    assert len(enode.asked) == 3
    assert clock.monotonic_s() < 1


@pytest.mark.parametrize(("invisible_ms", "at_least_s", "at_most_s"), [(5_000, 5, 8), (3_600_000, 60, 63)])
def test_an_enode_that_stays_away_is_told_for_as_long_as_it_matters(
    invisible_ms: int, at_least_s: float, at_most_s: float
) -> None:
    """Until the lease would be over, and for a minute at most."""
    back, clock = giving_back(Enode(*[Unavailable("away")] * 10_000))
    clock.run(lambda: back.call_off("enode-0", replace(WISH, invisible_ms=invisible_ms)))
    assert at_least_s <= clock.monotonic_s() <= at_most_s


@pytest.mark.parametrize("error", [NotFound("no such topic"), Unavailable("away")])
async def test_whoever_asks_once_hears_the_error(error: OrtooError) -> None:
    """It is to ask again."""
    with pytest.raises(type(error)):
        await giving_back(Enode(error))[0].call_off_once("enode-0", WISH)


async def test_a_topic_that_is_gone_has_nothing_to_give_back() -> None:
    """It is told once."""
    enode = Enode(NotFound("no such topic"))
    await giving_back(enode)[0].call_off("enode-0", WISH)
    assert len(enode.asked) == 1
