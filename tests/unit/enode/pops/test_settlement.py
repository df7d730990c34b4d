"""Verdicts on leased messages, and the lifetime of lines in memory."""

from dataclasses import replace

import pytest

from ortoo.common.errors import Conflict
from ortoo.common.groups.pop import PopRequest, PopRules, Redeliver, Renew
from ortoo.enode.changes.kinds import OffsetsCommitted
from ortoo.enode.pops.lines import PopLines
from tests.contract.one_store import TOPIC
from tests.contract.pop_store import GROUP, INVISIBLE_MS, PopStore, attempts, parts, play, texts


async def letters(it: PopStore) -> list[tuple[bytes, str, str, str, str]]:
    """Body, reason, attempts, consumer and error of each dead letter."""
    names = ("DLQ_REASON", "DLQ_ATTEMPTS", "DLQ_CONSUMER", "DLQ_ERROR")
    return [
        (one.body, *(one.properties.get(name, "") for name in names))  # type: ignore[misc]
        for one in await it.dead_letters()
    ]


def test_a_consumer_parks_a_message_whatever_attempts_it_has_left() -> None:
    """At once, with the consumer's error; it is never delivered again."""

    async def scenario(it: PopStore) -> None:
        await it.send("a", "b")
        popped = await it.pop()
        one = replace(parts(popped)[0], ranges=((1, 1),))
        assert await it.leasing.settle(TOPIC, GROUP, [one], Redeliver(park=True, error="no", rules=it.rules)) == []
        assert [(body, error) for body, _, _, _, error in await letters(it)] == [(b"b", "no")]
        await it.one.clock.sleep(INVISIBLE_MS / 1000 + 1)
        assert texts(await it.pop()) == ["a"]

    play(scenario)


@pytest.mark.parametrize(("consumer", "error"), [("me", ""), ("", "boom"), ("me", "boom"), ("", "")])
def test_what_a_consumer_said_of_its_last_try_is_in_the_dead_letter(consumer: str, error: str) -> None:
    """Of each message, also if a later lease expires; without a report the reason is the missing answer."""

    async def scenario(it: PopStore) -> None:
        await it.send("before", "a", "b")
        await it.ack(await it.pop(1))
        popped = await it.pop()
        how = Redeliver(consumer=consumer, error=error, rules=it.rules)
        await it.leasing.settle(TOPIC, GROUP, parts(popped), how)
        for _ in range(2):
            assert texts(await it.pop()) == ["a", "b"]
            await it.one.clock.sleep(INVISIBLE_MS / 1000)
        assert texts(await it.pop()) == []
        await it.one.clock.sleep(1.0)
        said = (consumer, error) if consumer or error else ("", "no answer within the invisible duration")
        assert await letters(it) == [(body, "attempts", "3", *said) for body in (b"a", b"b")]

    play(scenario)


def test_a_renewal_outlasts_a_restart() -> None:
    """It runs from the time of the request."""

    async def scenario(it: PopStore) -> None:
        await it.send("a")
        popped = await it.pop()
        await it.one.clock.sleep(INVISIBLE_MS / 1000 - 1)
        assert await it.leasing.settle(TOPIC, GROUP, parts(popped), Renew(INVISIBLE_MS)) == []
        await it.restart()
        await it.one.clock.sleep(INVISIBLE_MS / 1000 - 1)
        assert texts(await it.pop()) == []
        await it.one.clock.sleep(1.1)
        assert list(attempts(await it.pop())) == [2]

    play(scenario)


def test_a_pop_that_was_called_off_hears_why_it_has_nothing() -> None:
    """The error names the attempt id."""

    async def scenario(it: PopStore) -> None:
        wish = PopRequest(TOPIC, GROUP, (0,), 1, INVISIBLE_MS, 1 << 20, 0, "me", "a", request_id="r")
        await it.leasing.pop(replace(wish, cancel=True))
        with pytest.raises(Conflict) as refused:
            await it.leasing.pop(wish)
        told = (refused.value.message, refused.value.field)
        assert told == ("this pop was cancelled by its client", "attempt_id")

    play(scenario)


def test_only_groups_that_hold_nothing_are_put_out_of_memory() -> None:
    """Groups with leases, waiting pops or recent cancellations stay; others are made again at their next use."""

    async def scenario(it: PopStore) -> None:
        lines = PopLines(it.store, it.one.clock)
        group = lines.group(TOPIC, GROUP)
        line = await group.open_line(0, PopRules())
        line.take(group.now_ms(), 1, 1, number=lines.next_number(), duration_ms=100)
        await lines.forget_idle()
        assert lines.group(TOPIC, GROUP) is group
        line.drop([(0, 1)])
        waiting = it.background.spawn("wait", group.wait(it.one.clock.monotonic_s() + 1.0, ""))
        await it.one.clock.sleep(0.05)
        await lines.forget_idle()
        assert lines.group(TOPIC, GROUP) is group
        await waiting
        group.attempts.cancel(("a", "r"), it.one.clock.monotonic_s())
        await lines.forget_idle()
        assert lines.group(TOPIC, GROUP) is group
        await it.one.clock.sleep(200.0)
        lines.on_change_applied(OffsetsCommitted(TOPIC, GROUP, 0, ((2, 0), (0, 1))))
        assert group.get_line(0) is not line
        await lines.forget_idle()
        assert lines.group(TOPIC, GROUP) is not group
        await lines.close()

    play(scenario)


def test_a_group_that_is_not_in_memory_is_seen_as_the_log_has_it() -> None:
    """A group that never consumed has no state."""

    async def scenario(it: PopStore) -> None:
        await it.send("a", "b")
        await it.pop(1)
        await it.restart()
        lines = PopLines(it.store, it.one.clock)
        known = lines.group(TOPIC, GROUP).intervals(0)
        assert known is not None
        assert (known.floor, known.delivered_count) == (0, 1)
        assert lines.group(TOPIC, "another").intervals(0) is None
        await lines.close()

    play(scenario)
