"""A transactional message is visible if and only if it was committed; an open one is checked, then parked (G7)."""

import asyncio
from collections.abc import Callable
from typing import NoReturn

import pytest

from ortoo.common.errors import Conflict, NotFound, Overloaded
from ortoo.common.process.background import Background
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.batch import Message, encode
from ortoo.enode.changes.halves import HalfVerdict, VerdictOrigin
from ortoo.enode.log.results import TopicCopy
from ortoo.enode.transactions.checks import DueCheck
from tests.contract.deferred_store import DeferredStore, power_cuts
from tests.contract.one_store import QUEUES, TOPIC


def _discard(check: DueCheck) -> None:
    """A snode whose producer does not answer."""


@pytest.mark.parametrize("seed", range(6))
async def test_the_first_verdict_is_final_whatever_the_power_does(seed: int) -> None:
    """G7: with power cuts between begin, end and checks, each transaction ends by the first request."""
    chance, one = Randomness(seed), DeferredStore()
    await one.open()
    numbers: dict[bytes, int] = {}
    verdicts: dict[bytes, HalfVerdict] = {}
    for step in range(60):
        action, body = chance.below(8), b"%d" % step
        if action < 4:
            half = await one.transactions.begin(
                TOPIC, step % QUEUES, encode([Message(body)], now_ms=1), producer_group="p"
            )
            numbers[body] = half.number
        elif action < 6 and numbers:
            body = sorted(numbers)[chance.below(len(numbers))]
            verdict = HalfVerdict(1 + chance.below(2))
            if verdicts.setdefault(body, verdict) == verdict:
                await one.transactions.end(TOPIC, numbers[body], verdict, VerdictOrigin.PRODUCER)
            else:
                with pytest.raises(Conflict):
                    await one.transactions.end(TOPIC, numbers[body], verdict, VerdictOrigin.OPERATOR)
        elif action == 6:
            await one.crash(seed * 1000 + step)
        else:
            one.transactions.listeners.add({"p"}, _discard)
            await one.clock.pass_time(chance.below(1_500) / 1000)
    await one.crash(seed)
    one.transactions.listeners.add({"p"}, _discard)
    await one.clock.pass_time(20)
    committed = {body for body, verdict in verdicts.items() if verdict is HalfVerdict.COMMITTED}
    assert sorted(body for body, _ in await one.visible()) == sorted(committed)
    assert {half.number for half in one.store.halves.select(parked_only=True)} == {
        numbers[body] for body in numbers.keys() - verdicts.keys()
    }
    assert len(one.store.halves.select()) == len(numbers) - len(verdicts)
    await one.halt()
    await one.store.close()


async def test_an_open_transaction_is_asked_about_then_parked_and_asked_about_again() -> None:
    """G7: there are three checks with growing intervals, and none until it is resumed, also after a power cut."""
    one = DeferredStore()
    await one.open()
    half = await one.transactions.begin(TOPIC, 0, encode([Message(b"x")], now_ms=1), producer_group="p")
    asked: list[DueCheck] = []
    for seconds, count in ((0.9, 0), (0.2, 1), (1.0, 2), (2.0, 3), (4.0, 3)):
        one.transactions.listeners.add({"p"}, asked.append)
        await one.clock.pass_time(seconds)
        assert len(asked) == count
        await one.crash(count)
    assert [it.half.checks for it in asked] == [1, 2, 3]
    assert [it.number for it in one.store.halves.select(parked_only=True)] == [half.number]
    one.transactions.listeners.add({"p"}, asked.append)
    await one.clock.pass_time(60)
    assert len(asked) == 3
    await one.transactions.resume(TOPIC, half.number)
    await one.clock.pass_time(0.1)
    assert len(asked) == 4
    await one.transactions.end(TOPIC, half.number, HalfVerdict.ROLLED_BACK, VerdictOrigin.CHECK)
    await one.clock.pass_time(60)
    assert len(asked) == 4
    with pytest.raises(NotFound):
        await one.transactions.end(TOPIC, half.number + 1, HalfVerdict.ROLLED_BACK, VerdictOrigin.CHECK)
    await one.halt()
    await one.store.close()


async def test_only_checks_that_a_producer_can_hear_count() -> None:
    """G7: without a producer of its group a transaction waits, and is checked as soon as one connects."""
    one = DeferredStore()
    await one.open()
    half, other = [
        await one.transactions.begin(TOPIC, 0, encode([Message(b"x")], now_ms=1), producer_group=group)
        for group in ("p", "q")
    ]
    await one.clock.pass_time(6 * 3_600)
    assert not one.store.halves.select(parked_only=True)
    await one.crash(1)
    await one.clock.pass_time(1)
    asked: list[DueCheck] = []
    one.transactions.listeners.add({"p"}, asked.append)
    await one.clock.pass_time(0.1)
    assert [(it.half.number, it.half.checks) for it in asked] == [(half.number, 1)]
    one.transactions.listeners.remove({"p"}, asked.append)
    await one.clock.pass_time(3_600)
    assert len(asked) == 1
    await one.transactions.end(TOPIC, other.number, HalfVerdict.ROLLED_BACK, VerdictOrigin.OPERATOR)
    one.transactions.listeners.add({"p", "q"}, asked.append)
    await one.clock.pass_time(60)
    assert {it.half.number for it in asked} == {half.number}
    assert [it.number for it in one.store.halves.select(parked_only=True)] == [half.number]
    await one.halt()
    await one.store.close()


async def test_due_checks_of_deleted_topics_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer group that never connects again costs no memory for transactions that ended with their topic."""
    monkeypatch.setattr("ortoo.enode.transactions.coordinator.STALE_CHECKS_MAX", 3)
    one = DeferredStore()
    await one.open()
    for number in range(5):
        await one.store.put_topics([TopicCopy(TOPIC + 1 + number, f"t{number}", 1, 1)])
        for _ in range(4):
            batch = encode([Message(b"x")], now_ms=1)
            await one.transactions.begin(TOPIC + 1 + number, 0, batch, producer_group="p")
        await one.clock.pass_time(5)
        await one.store.delete_topics([TOPIC + 1 + number])
    assert sum(map(len, one.transactions._unheard.values())) <= 4 + 3
    await one.halt()
    await one.store.close()


async def test_a_key_that_somebody_else_chose_too_begins_nothing_and_says_so() -> None:
    """G11: a transaction of another request is not returned, because its messages would be committed."""
    one = DeferredStore()
    await one.open()
    batch = encode([Message(b"mine")], now_ms=1)
    half = await one.transactions.begin(TOPIC, 0, batch, producer_group="p", key=1)
    assert await one.transactions.begin(TOPIC, 0, batch, producer_group="p", key=1) == half
    pair = encode([Message(b"x")] * 2, now_ms=1)
    for queue_id, group, messages in ((1, "p", batch), (0, "q", batch), (0, "p", pair)):
        with pytest.raises(Conflict) as refused:
            await one.transactions.begin(TOPIC, queue_id, messages, producer_group=group, key=1)
        assert refused.value.field == "key"
    assert one.store.halves.select() == [half]
    await one.halt()
    await one.store.close()


async def begin_and_end(one: DeferredStore, said: Callable[[str, bytes], None]) -> None:
    """Transactions that are committed, rolled back and left open in turn."""
    for number in range(12):
        body = b"%d" % number
        half = await one.transactions.begin(
            TOPIC, number % QUEUES, encode([Message(body)] * 2, now_ms=1), producer_group="p"
        )
        said("begun", body)
        if number % 3:
            said("ending", body)
            verdict = HalfVerdict(number % 3)
            await one.transactions.end(TOPIC, half.number, verdict, VerdictOrigin.PRODUCER)
            said(verdict.name, body)


async def test_a_commit_and_its_messages_cannot_be_torn_apart() -> None:
    """G7: after a power cut at any disk operation, a commit has all messages or none, and is not open as well."""
    async for said, seen, one in power_cuts(begin_and_end, points=80):
        assert set(seen.values()) <= {2}
        still_open = {b"%d" % (half.number // 2) for half in one.store.halves.select()}
        assert not still_open & seen.keys()
        for what, body in said:
            if what == HalfVerdict.COMMITTED.name:
                assert body in seen
            elif what == HalfVerdict.ROLLED_BACK.name or (what == "begun" and ("ending", body) not in said):
                assert body not in seen
        ended = {body for what, body in said if what in HalfVerdict.__members__}
        unsure = {body for what, body in said if what == "ending"} - ended
        begun = {body for what, body in said if what == "begun"}
        assert begun - ended - unsure <= still_open


async def test_who_gave_up_waiting_for_a_key_begins_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """G7: a request cancelled while another one begins under its key is not accepted, and leaves nothing behind.

    A former version still began a transaction after the other was refused, which no producer knew.
    """
    one = DeferredStore()
    store = await one.open()
    storing, decided, messages = asyncio.Event(), asyncio.Event(), encode([Message(b"x")], now_ms=1)

    async def refused(*_: object, **__: object) -> NoReturn:
        storing.set()
        await decided.wait()
        raise Overloaded("the disk is full")

    async with Background("test") as background:
        with monkeypatch.context() as patch:
            patch.setattr(store, "append", refused)
            first = background.start_future(
                "first", one.transactions.begin(TOPIC, 0, messages, producer_group="p", key=1)
            )
            await storing.wait()
            second = background.spawn("second", one.transactions.begin(TOPIC, 0, messages, producer_group="p", key=1))
            await one.clock.pass_time(0.1)
            second.cancel()
            await asyncio.wait([second])
        decided.set()
        with pytest.raises(Overloaded):
            await first
        await one.clock.pass_time(1)
    assert not store.halves.open
    assert (await one.transactions.begin(TOPIC, 0, messages, producer_group="p", key=1)).key == 1
    await one.halt()
    await one.store.close()
