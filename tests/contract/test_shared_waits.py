"""G8: a wait that a snode shares among its consumers reports each message that a pop may return, and leases none."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ortoo.common.errors import Conflict, NotFound, Unavailable
from ortoo.enode.changes.groups import GroupDropped, GroupMode
from ortoo.enode.pops.lines import HANDOVER_S
from tests.contract.one_store import TOPIC
from tests.contract.pop_store import GROUP, INVISIBLE_MS, PopStore, play, texts

SOON_S = 0.005


async def ended_within(it: PopStore, waiting: "asyncio.Future[bool]", seconds: float) -> bool:
    """Whether a wait ends within this time."""
    await it.one.clock.sleep(seconds)
    return waiting.done()


def test_a_wait_leases_nothing_and_ends_at_once_if_there_are_messages() -> None:
    """Without messages it ends at its time."""

    async def scenario(it: PopStore) -> None:
        assert not await it.awaiting(wait_ms=0)
        assert not await it.awaiting(wait_ms=2_000)
        assert it.one.clock.monotonic_s() >= 2
        await it.send("a")
        assert await it.awaiting()
        assert await it.awaiting()
        assert texts(await it.pop()) == ["a"]
        assert not await it.awaiting(wait_ms=0)

    play(scenario)


async def stored(it: PopStore) -> None:
    """A message is stored in any queue."""
    await it.send("b", queue_id=2)


async def lease_ended(it: PopStore) -> None:
    """The lease of a message ends."""
    await it.one.clock.sleep(INVISIBLE_MS / 1000)


async def nothing(it: PopStore) -> None:
    """The message was leased before."""


@pytest.mark.parametrize("happen", [stored, lease_ended])
def test_a_waiting_snode_is_notified_at_once(happen: Callable[[PopStore], Awaitable[None]]) -> None:
    """A pop finds a message then."""

    async def scenario(it: PopStore) -> None:
        await it.send("a")
        await it.pop()
        waiting = it.awaiting()
        assert not await ended_within(it, waiting, 1)
        await happen(it)
        assert await ended_within(it, waiting, SOON_S)
        assert waiting.result()
        assert texts(await it.pop())

    play(scenario)


@pytest.mark.parametrize("delay_ms", [0, 3_000])
def test_a_returned_message_is_reported_after_its_delay(delay_ms: int) -> None:
    """A release without delay at once."""

    async def scenario(it: PopStore) -> None:
        await it.send("a")
        popped = await it.pop()
        waiting = it.awaiting()
        await it.one.clock.sleep(1)
        await it.nack(popped, delay_ms)
        if delay_ms:
            assert not await ended_within(it, waiting, delay_ms / 1000 - 0.1)
        assert await ended_within(it, waiting, 0.1 + SOON_S)

    play(scenario)


def test_the_next_message_of_a_message_group_is_reported_when_it_is_free() -> None:
    """Its predecessor must be acknowledged."""

    async def scenario(it: PopStore) -> None:
        await it.send("a", "b", group="one")
        first = await it.pop(in_order=True)
        assert texts(first) == ["a"]
        waiting = it.awaiting(in_order=True)
        assert not await ended_within(it, waiting, 1)
        await it.ack(first)
        assert await ended_within(it, waiting, SOON_S)
        assert texts(await it.pop(in_order=True)) == ["b"]

    play(scenario)


@pytest.mark.parametrize("is_settled", [True, False])
def test_the_limit_of_leased_messages_ends_with_an_acknowledgement_or_a_lease(is_settled: bool) -> None:
    """While the limit is reached, no message is reported. A pop between does not change this."""

    async def scenario(it: PopStore) -> None:
        await it.send(*"abc")
        first = await it.pop(in_flight_max=2)
        waiting = it.awaiting(in_flight_max=2)
        assert not await ended_within(it, waiting, 1)
        assert texts(await it.pop(in_flight_max=2)) == []
        if is_settled:
            await it.ack(first)
            assert await ended_within(it, waiting, SOON_S)
        else:
            assert await ended_within(it, waiting, INVISIBLE_MS / 1000)
        assert texts(await it.pop(in_flight_max=2))

    play(scenario)


def test_the_limit_of_unfinished_messages_ends_with_an_acknowledgement(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pop that finds only this limit names it, and leaves the other waits as they are."""
    monkeypatch.setattr("ortoo.enode.pops.line.UNFINISHED_MAX", 2)

    async def scenario(it: PopStore) -> None:
        await it.send(*"abc")
        first = await it.pop()
        assert texts(first) == ["a", "b"]
        waiting = it.awaiting()
        blocked = await it.pop()
        assert "not finished" in blocked.blocked_reason
        assert not await ended_within(it, waiting, 1)
        await it.ack(first)
        assert await ended_within(it, waiting, SOON_S)
        assert texts(await it.pop()) == ["c"]

    play(scenario)


def test_one_of_two_snodes_is_notified_and_the_other_if_messages_remain() -> None:
    """The first one may have no consumer any more."""

    async def scenario(it: PopStore) -> None:
        first, second = it.awaiting(), it.awaiting()
        await it.one.clock.sleep(1)
        await it.send("a")
        assert await ended_within(it, first, SOON_S)
        assert not second.done()
        assert await ended_within(it, second, HANDOVER_S)
        await it.pop()
        third, fourth = it.awaiting(), it.awaiting()
        await it.one.clock.sleep(1)
        await it.send("b")
        assert await ended_within(it, third, SOON_S)
        assert texts(await it.pop()) == ["b"]
        assert not await ended_within(it, fourth, 10 * HANDOVER_S)
        fourth.cancel()

    play(scenario)


def test_a_pop_that_leaves_messages_notifies_the_next_snode() -> None:
    """At once, before the time of the first one has passed."""

    async def scenario(it: PopStore) -> None:
        first, second = it.awaiting(), it.awaiting()
        await it.one.clock.sleep(1)
        await it.send("a", "b")
        assert await ended_within(it, first, SOON_S)
        assert texts(await it.pop(1)) == ["a"]
        assert await ended_within(it, second, SOON_S)

    play(scenario)


def test_pops_and_waits_are_served_in_the_order_of_their_arrival() -> None:
    """A cancelled one passes its turn on."""

    async def scenario(it: PopStore) -> None:
        cancelled, pop, waiting = it.awaiting(), it.popping(), it.awaiting()
        await it.one.clock.sleep(1)
        cancelled.cancel()
        await it.send("a")
        assert texts(await pop) == ["a"]
        assert not await ended_within(it, waiting, 1)
        await it.send("b")
        assert await ended_within(it, waiting, SOON_S)

    play(scenario)


def test_a_wait_survives_the_deletion_of_its_group() -> None:
    """The group begins again, and its messages are reported."""

    async def scenario(it: PopStore) -> None:
        waiting = it.awaiting()
        await it.one.clock.sleep(1)
        await it.store.engine.store([GroupDropped(TOPIC, GROUP)])
        assert not await ended_within(it, waiting, 1)
        await it.send("a")
        assert await ended_within(it, waiting, SOON_S)

    play(scenario)


def test_a_wait_ends_when_its_group_consumes_otherwise() -> None:
    """Its consumers get the error of a pop."""

    async def scenario(it: PopStore) -> None:
        waiting = it.awaiting()
        await it.one.clock.sleep(1)
        await it.leasing.change_mode(TOPIC, GROUP, GroupMode.POP_IN_ORDER, force=True)
        with pytest.raises(Conflict):
            await waiting

    play(scenario)


def test_a_wait_ends_with_its_topic_and_with_the_enode() -> None:
    """The caller learns both at once."""

    async def scenario(it: PopStore) -> None:
        waiting = it.awaiting()
        await it.one.clock.sleep(1)
        await it.store.delete_topics([TOPIC])
        with pytest.raises(NotFound):
            await waiting
        await it.open()

    play(scenario)

    async def stopped(it: PopStore) -> None:
        waiting = it.awaiting()
        await it.one.clock.sleep(1)
        await it.leasing.lines.close()
        with pytest.raises(Unavailable):
            await waiting

    play(stopped)
