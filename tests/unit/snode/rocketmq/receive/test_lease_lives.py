"""The leases of a push consumer, against a model that handles each lease separately."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.errors import NotFound, Unavailable
from ortoo.common.groups.pop import Redeliver, Renew
from ortoo.snode.pop.receipt_handle import ReceiptHandle
from ortoo.snode.rocketmq.receive.auto_renewal import (
    HOLD_MAX_S,
    LEASE_MS,
    LEASES_PER_REQUEST_MAX,
    REDELIVERY_DELAY_MS,
    RENEW_BEFORE_S,
    AutoRenewedLease,
    AutoRenewedLeases,
)
from ortoo.verification.time.virtual_clock import VirtualClock

SLICE_S = LEASE_MS / 1000
Place = tuple[str, int, str]
PLACES: list[Place] = [("a", 1, "g"), ("a", 1, "h"), ("a", 2, "g"), ("b", 1, "g")]


@dataclass
class Enodes:
    """Settled messages, by place; some places are unreachable, some topics deleted, some leases expired."""

    away: set[Place] = field(default_factory=set)
    gone: set[Place] = field(default_factory=set)
    stale: set[int] = field(default_factory=set)
    calls: list[tuple[Place, list[int], Any]] = field(default_factory=list)

    async def settle(self, receipts: Sequence[tuple[ReceiptHandle, Sequence[int]]], verdict: Any) -> list[set[int]]:
        """One place at a time, each message by its own offset."""
        places = {(handle.enode, handle.topic_id, handle.group) for handle, _ in receipts}
        assert len(places) == 1
        assert len(receipts) <= LEASES_PER_REQUEST_MAX
        assert all(tuple(offsets) == (handle.first_offset,) for handle, offsets in receipts)
        [place] = places
        if place in self.away:
            raise Unavailable("away")
        if place in self.gone:
            raise NotFound("no such topic")
        offsets = [handle.first_offset for handle, _ in receipts]
        self.calls.append((place, offsets, verdict))
        return [{one} if one in self.stale else set() for one in offsets]

    def told(self) -> list[tuple[int, Any]]:
        """The verdicts since the last call, by message."""
        told = sorted(((one, verdict) for _, offsets, verdict in self.calls for one in offsets), key=lambda row: row[0])
        self.calls.clear()
        return told


@dataclass
class Held:
    """A lease, as the model has it."""

    lease: AutoRenewedLease
    place: Place
    until_s: float


class World:
    """The leases, and the model beside them."""

    def __init__(self, *, counts: bool) -> None:
        self.clock, self.enodes, self.counts = VirtualClock(), Enodes(), counts
        self.leases = AutoRenewedLeases(self.enodes, self.clock)  # type: ignore[arg-type]
        self.held: dict[int, Held] = {}
        self.count = 0

    async def step(self, what: str, which: Any) -> None:
        """Do one thing, and compare."""
        if what in ("away", "gone", "stale"):
            getattr(self.enodes, what).symmetric_difference_update({which})
        elif what == "wait":
            self.clock.advance(which)
        else:
            await getattr(self, what)(which)
        assert all(one.lease.until_s == one.until_s for one in self.held.values())

    async def keep(self, place: Place) -> None:
        """Another message is leased to a client."""
        enode, topic_id, group = place
        now_s = self.clock.monotonic_s()
        lease = AutoRenewedLease(
            f"c{self.count % 2}", ReceiptHandle(enode, group, topic_id, 0, 7, self.count, 1), now_s
        )
        self.leases.add(lease)
        self.held[self.count] = Held(lease, place, now_s + SLICE_S)
        self.count += 1

    async def drop(self, number: int) -> None:
        """A message is settled, if it is there."""
        held = self.held.pop(number, None)
        handle = ReceiptHandle("z", "z", 0, 0, 0, 0, 1) if held is None else held.lease.handle
        assert self.leases.remove(handle) == (held is not None)

    async def leave(self, client_id: str) -> None:
        """A client leaves."""
        verdict = Redeliver((REDELIVERY_DELAY_MS,), counts=self.counts, error="the consumer left")
        mine = [number for number, held in self.held.items() if held.lease.client_id == client_id]
        expected = [(number, verdict) for number in mine if not self._is_lost(self.held.pop(number).place)]
        await self.leases.release_client(client_id, counts=self.counts)
        assert self.enodes.told() == expected

    async def look(self, _: None) -> None:
        """Leases that end soon are renewed, or nacked after three hours."""
        now_s, expected = self.clock.monotonic_s(), list[tuple[int, Any]]()
        ending = [(number, held) for number, held in self.held.items() if held.until_s - now_s <= RENEW_BEFORE_S]
        for number, held in ending:
            is_lost, verdict = self._is_lost(held.place), _verdict(held, now_s)
            is_over = number in self.enodes.stale if not is_lost else held.place in self.enodes.gone
            is_over = is_over and held.place not in self.enodes.away
            if isinstance(verdict, Redeliver) or is_over:
                del self.held[number]
            elif not is_lost:
                held.until_s = now_s + SLICE_S
            if not is_lost:
                expected.append((number, verdict))
        await self.leases.renew()
        assert self.enodes.told() == expected

    def _is_lost(self, place: Place) -> bool:
        return place in self.enodes.away or place in self.enodes.gone


def _verdict(held: Held, now_s: float) -> Any:
    if now_s - held.lease.taken_at_s > HOLD_MAX_S:
        return Redeliver((REDELIVERY_DELAY_MS,), error="the consumer held the message for 3 hours")
    return Renew(LEASE_MS)


BY_NAME: dict[str, st.SearchStrategy[Any]] = {
    "keep": st.sampled_from(PLACES),
    "wait": st.sampled_from([1.0, SLICE_S - RENEW_BEFORE_S, 30.0, HOLD_MAX_S]),
    "look": st.none(),
    "leave": st.sampled_from(["c0", "c1"]),
    "drop": st.integers(0, 9),
    "away": st.sampled_from(PLACES),
    "gone": st.sampled_from(PLACES),
    "stale": st.integers(0, 9),
}
OFTEN = ("keep", "keep", "keep", "wait", "look")
STEPS = st.sampled_from([*BY_NAME, *OFTEN]).flatmap(lambda name: st.tuples(st.just(name), BY_NAME[name]))


@given(st.lists(STEPS, min_size=20, max_size=40), st.booleans())
def test_each_lease_lives_its_own_life(steps: list[tuple[str, Any]], counts: bool) -> None:
    """Renewed in time, nacked after three hours or when its client leaves, and never used after its end."""

    async def walk() -> None:
        world = World(counts=counts)
        for what, which in steps:
            await world.step(what, which)

    asyncio.run(walk())


def test_leases_of_one_client_and_of_places_that_fail_each_go_their_way() -> None:
    """One enode is unreachable, one topic deleted, one message done; the client's other messages are nacked."""

    async def walk() -> None:
        for last in (("leave", "c0"), ("leave", "c1"), ("look", None)):
            world = World(counts=False)
            for place in [*PLACES, *PLACES]:
                await world.step("keep", place)
            steps = [("away", PLACES[0]), ("gone", PLACES[1]), ("stale", 2), ("wait", SLICE_S - RENEW_BEFORE_S)]
            for what, which in [*steps, ("look", None), ("away", PLACES[0]), ("look", None), last, ("look", None)]:
                await world.step(what, which)

    asyncio.run(walk())


async def test_many_are_settled_some_at_once() -> None:
    """Each once, and in their order."""
    clock, enodes = VirtualClock(), Enodes()
    leases = AutoRenewedLeases(enodes, clock)  # type: ignore[arg-type]
    for number in range(2 * LEASES_PER_REQUEST_MAX + 1):
        leases.add(AutoRenewedLease("c", ReceiptHandle("a", "g", 1, 0, 7, number, 1), clock.monotonic_s()))
    clock.advance(SLICE_S - RENEW_BEFORE_S)
    await leases.renew()
    assert [len(offsets) for _, offsets, _ in enodes.calls] == [LEASES_PER_REQUEST_MAX, LEASES_PER_REQUEST_MAX, 1]
    assert [one for one, _ in enodes.told()] == list(range(2 * LEASES_PER_REQUEST_MAX + 1))
    await leases.renew()
    assert enodes.told() == []
