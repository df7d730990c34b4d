"""An unacknowledged message is redelivered within its invisible duration plus one second, others never (G8)."""

import dataclasses

from ortoo.common.groups.pop import Finish, LeasePart, Renew
from tests.contract.one_store import TOPIC
from tests.contract.pop_store import GROUP, INVISIBLE_MS, PopStore, attempts, parts, play, texts


def test_what_nobody_acknowledges_comes_back_to_one_who_waits() -> None:
    """The waiting pop is answered when the lease ends, not at a later poll."""

    async def scenario(it: PopStore) -> None:
        await it.send("a", "b")
        assert texts(await it.pop()) == ["a", "b"]
        began_s = it.one.clock.monotonic_s()
        again = await it.pop(wait_ms=60_000)
        assert texts(again) == ["a", "b"]
        assert list(attempts(again)) == [2, 2]
        assert INVISIBLE_MS / 1000 <= it.one.clock.monotonic_s() - began_s < INVISIBLE_MS / 1000 + 1

    play(scenario)


def test_what_is_acknowledged_never_comes_back_even_after_power_cuts() -> None:
    """The acknowledgement waits for the disk."""

    async def scenario(it: PopStore) -> None:
        await it.send("a", "b", "c")
        popped = await it.pop(2)
        assert await it.ack(popped) == 0
        assert await it.ack(popped) == 0
        for seed in range(3):
            await it.crash(seed)
            await it.one.clock.sleep(INVISIBLE_MS / 1000 + 1)
            again = await it.pop(invisible_ms=10)
            assert texts(again) == ["c"]
        assert it.store.offsets.of(TOPIC, GROUP) == {0: 2, 1: 0, 2: 0}

    play(scenario)


def test_a_new_message_wakes_one_who_waits_at_once() -> None:
    """A message in any queue wakes it."""

    async def scenario(it: PopStore) -> None:
        waiting = it.popping()
        await it.one.clock.sleep(1)
        await it.send("late", queue_id=2)
        assert texts(await waiting) == ["late"]
        assert it.one.clock.monotonic_s() < 2

    play(scenario)


def test_a_message_given_back_without_delay_goes_to_one_who_waits_at_once() -> None:
    """A nack with delay 0 redelivers at once."""

    async def scenario(it: PopStore) -> None:
        await it.send("a")
        popped = await it.pop()
        waiting = it.popping()
        await it.one.clock.sleep(1)
        await it.nack(popped)
        assert texts(await waiting) == ["a"]
        assert it.one.clock.monotonic_s() < 1.1

    play(scenario)


def test_a_message_given_back_with_a_delay_comes_after_it_also_over_a_restart() -> None:
    """The message is redelivered neither earlier nor much later."""

    async def scenario(it: PopStore) -> None:
        await it.send("a")
        await it.nack(await it.pop(), 30_000)
        await it.restart()
        assert texts(await it.pop(wait_ms=29_000)) == []
        assert list(attempts(await it.pop(wait_ms=2_000))) == [2]

    play(scenario)


def test_an_acknowledgement_over_a_power_cut_that_took_the_lease_counts() -> None:
    """No other consumer has the message, so the consumer's work is not repeated."""

    async def scenario(it: PopStore) -> None:
        await it.send("a")
        popped = await it.pop()
        await it.crash()
        assert await it.ack(popped) == 0
        assert texts(await it.pop()) == []

    play(scenario)


def test_a_late_acknowledgement_of_what_another_has_now_is_refused() -> None:
    """The acknowledgement of the other consumer counts."""

    async def scenario(it: PopStore) -> None:
        await it.send("a")
        old = await it.pop(invisible_ms=100)
        await it.one.clock.sleep(0.2)
        new = await it.pop()
        assert await it.ack(old) == 1
        assert await it.ack(new) == 0

    play(scenario)


def test_a_renewed_lease_stays_with_its_consumer() -> None:
    """It is processed for ten times the invisible duration, without another delivery."""

    async def scenario(it: PopStore) -> None:
        await it.send("a")
        popped = await it.pop(invisible_ms=1_000)
        other = it.popping(wait_ms=20_000)
        for _ in range(30):
            await it.one.clock.sleep(0.35)
            assert await it.leasing.settle(TOPIC, GROUP, parts(popped), Renew(1_000)) == []
        assert await it.ack(popped) == 0
        assert texts(await other) == []

    play(scenario)


def test_many_who_wait_share_what_arrives() -> None:
    """Each waiting pop is woken while messages are left."""

    async def scenario(it: PopStore) -> None:
        waiting = [it.popping(2, invisible_ms=600_000) for _ in range(5)]
        await it.one.clock.sleep(1)
        await it.send(*"abcdefgh")
        await it.one.clock.sleep(1)
        done, idle = [one for one in waiting if one.done()], [one for one in waiting if not one.done()]
        assert sorted("".join("".join(texts(one.result())) for one in done)) == list("abcdefgh")
        assert len(idle) == 1
        for one in idle:
            one.cancel()

    play(scenario)


def test_one_who_goes_away_while_waiting_takes_nothing_with_him() -> None:
    """The next waiting pop gets the message."""

    async def scenario(it: PopStore) -> None:
        first = it.popping()
        second = it.popping()
        await it.one.clock.sleep(1)
        first.cancel()
        await it.send("a")
        assert texts(await second) == ["a"]

    play(scenario)


def test_no_more_is_in_flight_than_the_group_allows() -> None:
    """The answer gives the reason; each acknowledgement makes space at once."""

    async def scenario(it: PopStore) -> None:
        await it.send(*"abcdef")
        first = await it.pop(in_flight_max=4)
        assert texts(first) == list("abcd")
        blocked = await it.pop(in_flight_max=4)
        assert "in_flight_max" in blocked.blocked_reason
        waiting = it.popping(in_flight_max=4)
        await it.one.clock.sleep(1)
        await it.ack(first)
        assert texts(await waiting) == ["e", "f"]

    play(scenario)


def test_leases_that_ended_are_not_in_flight() -> None:
    """Their messages are delivered again, to a waiting pop as well."""

    async def scenario(it: PopStore) -> None:
        await it.send("a", "b")
        assert texts(await it.pop(in_flight_max=2)) == ["a", "b"]
        waiting = it.popping(in_flight_max=2, invisible_ms=1_000)
        await it.one.clock.sleep(INVISIBLE_MS / 1000 + 1)
        assert texts(await waiting) == ["a", "b"]
        await it.one.clock.sleep(2)
        assert texts(await it.pop(in_flight_max=2)) == ["a", "b"]

    play(scenario)


def test_an_offset_set_by_an_operator_begins_the_group_again() -> None:
    """It starts again at the first message, also if messages were finished."""

    async def scenario(it: PopStore) -> None:
        await it.send("a", "b")
        await it.ack(await it.pop())
        await it.store.offsets.commit(TOPIC, GROUP, {0: 0})
        assert texts(await it.pop()) == ["a", "b"]

    play(scenario)


def test_messages_that_retention_took_are_passed_over() -> None:
    """The group continues with the remaining messages."""

    async def scenario(it: PopStore) -> None:
        await it.send("a")
        await it.pop(1, invisible_ms=10)
        for number in range(300):
            await it.send(f"{number}-" + "x" * 300)
        await it.store.engine.housekeeping.checkpoint()
        await it.store.engine.housekeeping.checkpoint()
        keeping = it.store.engine.housekeeping
        keeping.use_retention_settings(dataclasses.replace(keeping.settings, retention_bytes=1))
        await keeping.apply_retention()
        begin = it.store.queue_range(TOPIC, 0).begin_offset
        assert begin > 1
        assert (await it.pop(1)).batches[0].offsets == (begin,)

    play(scenario)


def test_a_pop_asked_again_by_its_id_gets_the_same_messages_as_the_same_attempt() -> None:
    """The answer was lost; messages finished meanwhile are not in the repeated one."""

    async def scenario(it: PopStore) -> None:
        await it.send("a", "b", "c")
        await it.pop(2, attempt_id="x")
        again = await it.pop(2, attempt_id="x")
        assert (texts(again), list(attempts(again))) == (["a", "b"], [1, 1])
        await it.leasing.settle(TOPIC, GROUP, [LeasePart(0, again.batches[0].number, ((0, 1),))], Finish())
        assert texts(await it.pop(2, attempt_id="x")) == ["b"]
        assert texts(await it.pop(2, attempt_id="y")) == ["c"]

    play(scenario)
