"""Cancellation of pops at enodes."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from ortoo.common.errors import NotFound, OrtooError, Overloaded, Unavailable
from ortoo.common.groups.pop import LeasePart, Popped, PoppedBatch, PopRequest, Redeliver
from ortoo.common.process.background import Background
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.batch import encode
from ortoo.common.records.message import Message
from ortoo.snode.pop.lease_release import RETRIES_MAX, LeaseReleaser
from ortoo.verification.time.virtual_clock import VirtualClock

WISH = PopRequest(7, "g", (0, 1), 32, 30_000, 1 << 20, 20_000, "me", "a", request_id="r")
FOUND = [PoppedBatch(1, 5, 1, encode([Message(b"x")], now_ms=1), (8,), (1,))]
GONE_BACK = (7, "g", [LeasePart(1, 5, ((8, 1),))], Redeliver(counts=False))
LONGEST_PAUSE_S = 3.0
"""Longer than the pause between two tries at an unreachable enode."""


class Enode:
    """An enode that is unreachable for a while, or does not support cancellation."""

    def __init__(
        self,
        *errors: OrtooError,
        settle_errors: Sequence[OrtooError] = (),
        found: Sequence[PoppedBatch] = (),
    ) -> None:
        self.errors = list(errors)
        self.settle_errors = list(settle_errors)
        self.found = list(found)
        self.asked: list[PopRequest] = []
        self.given_back: list[Any] = []

    async def pop(self, wish: PopRequest) -> Popped:
        """Fail, or return messages."""
        self.asked.append(wish)
        if self.errors:
            raise self.errors.pop(0)
        return Popped(self.found)

    async def settle(self, topic_id: int, group: str, parts: Sequence[LeasePart], verdict: object) -> list[object]:
        """Fail, or succeed."""
        if self.settle_errors:
            raise self.settle_errors.pop(0)
        self.given_back.append((topic_id, group, list(parts), verdict))
        return []

    def to(self, _: str) -> "Enode":
        """The only link."""
        return self


def giving_back(enode: Enode, telling: Callable[[LeaseReleaser], Awaitable[object]]) -> float:
    """Release something, wait until no request is pending; returns the seconds that it took."""
    clock, over_s = VirtualClock(), []

    async def tell() -> None:
        async with Background("test") as background:

            class Runtime:
                pass

            runtime: Any = Runtime()
            runtime.background, runtime.clock, runtime.randomness = background, clock, Randomness(1)
            await telling(LeaseReleaser(runtime, enode))  # type: ignore[arg-type]
            asked = -1
            while asked != len(enode.asked) + len(enode.given_back):
                asked = len(enode.asked) + len(enode.given_back)
                over_s.append(clock.monotonic_s())
                await clock.sleep(LONGEST_PAUSE_S)

    clock.run(tell)
    return over_s[-1]


def test_an_enode_is_told_which_request_and_gives_nothing() -> None:
    """The cancellation does not wait, and nothing is released."""
    enode = Enode()
    giving_back(enode, lambda back: back.cancel("enode-0", WISH))
    [said] = enode.asked
    assert (said.cancel, said.attempt_id, said.request_id, said.wait_ms) == (True, "a", "r", 0)
    assert (said.topic_id, said.group, said.queue_ids) == (7, "g", (0, 1))
    assert enode.given_back == []


def test_what_an_older_enode_pops_instead_goes_back_as_if_never_delivered() -> None:
    """It ignores the field and returns messages of the attempt, and as few others as possible."""
    enode = Enode(found=FOUND)
    giving_back(enode, lambda back: back.cancel("enode-0", WISH))
    assert enode.asked[0].messages_max == 1
    assert enode.given_back == [GONE_BACK]


@pytest.mark.parametrize("error", [Unavailable("away"), Overloaded("no room")])
def test_an_enode_that_is_away_or_has_no_room_is_told_again_and_again(error: OrtooError) -> None:
    """Until it succeeds."""
    enode = Enode(*[error] * 5)
    giving_back(enode, lambda back: back.cancel("enode-0", WISH))
    assert len(enode.asked) == 6


@pytest.mark.parametrize("invisible_ms", [5_000, 3_600_000])
def test_an_enode_that_stays_away_is_told_for_as_long_as_it_matters(invisible_ms: int) -> None:
    """Until the lease would expire, and for a minute at most."""
    enode = Enode(*[Unavailable("away")] * 10_000)
    wish = replace(WISH, invisible_ms=invisible_ms)
    for_s = min(invisible_ms / 1000, 60)
    assert for_s - 3 <= giving_back(enode, lambda back: back.cancel("enode-0", wish)) <= for_s + 3


def test_an_enode_that_stays_away_is_told_the_newest_of_much() -> None:
    """The pending requests are limited and stay in order."""
    enode = Enode(*[Unavailable("away")] * (RETRIES_MAX + 5))

    async def tell(back: LeaseReleaser) -> None:
        for number in range(RETRIES_MAX + 5):
            await back.cancel("enode-0", replace(WISH, request_id=str(number)))

    giving_back(enode, tell)
    heard = [one.request_id for one in enode.asked[RETRIES_MAX + 5 :]]
    assert heard == [str(number) for number in range(5, RETRIES_MAX + 5)]


async def answer(*found: PoppedBatch) -> Popped:
    """The late answer of a pop in progress."""
    return Popped(list(found))


def test_what_a_pop_brings_after_it_was_called_off_goes_back() -> None:
    """The enode may have answered before it was notified."""
    enode = Enode()
    giving_back(enode, lambda back: back.cancel("enode-0", WISH, answer(*FOUND)))
    assert enode.given_back == [GONE_BACK]


@pytest.mark.parametrize("error", [Unavailable("away"), Overloaded("no room")])
def test_what_an_enode_answers_as_it_stops_goes_back_when_it_is_there_again(error: OrtooError) -> None:
    """A stopping enode takes no new request and keeps only the lease. By that the message is released, uncounted."""
    enode = Enode(Unavailable("stopping"), settle_errors=[error] * 4)
    giving_back(enode, lambda back: back.cancel("enode-0", WISH, answer(*FOUND)))
    assert len(enode.asked) == 1
    assert enode.given_back == [GONE_BACK]


def test_a_pop_of_which_nothing_is_heard_any_more_is_called_off_until_the_enode_hears_it() -> None:
    """Whether it has leased messages is unknown here."""

    async def broken() -> Popped:
        raise Unavailable("the connection broke")

    enode = Enode(*[Unavailable("away")] * 3)
    giving_back(enode, lambda back: back.cancel("enode-0", WISH, broken()))
    assert len(enode.asked) == 4


@pytest.mark.parametrize("error", [NotFound("no such topic"), Unavailable("away")])
def test_whoever_asks_once_hears_the_error(error: OrtooError) -> None:
    """The caller retries."""
    with pytest.raises(type(error)):
        giving_back(Enode(error), lambda back: back.cancel_once("enode-0", WISH))


def test_a_topic_that_is_gone_has_nothing_to_give_back() -> None:
    """It is requested once."""
    enode = Enode(NotFound("no such topic"))
    giving_back(enode, lambda back: back.cancel("enode-0", WISH))
    assert len(enode.asked) == 1
