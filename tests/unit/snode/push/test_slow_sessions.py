"""Slow sessions, and the metrics of push sessions."""

import dataclasses
from typing import Any

from ortoo.common.directory.group import Group
from ortoo.common.errors import Unavailable
from ortoo.snode.membership.group_members import CloseReason
from ortoo.snode.push.outbox import DurableOffsets, SessionClosed
from ortoo.snode.push.session import PushSession
from ortoo.verification.time.virtual_time import in_virtual_time
from tests.unit.snode.fake_enode import TOPIC
from tests.unit.snode.push.push_bench import EXPIRY_S, QUEUES, Bench, bench, event

GRACE_S = 5.0
GROUP = Group("g", 1, slow_consumer_threshold_messages=3, slow_consumer_grace_ms=int(GRACE_S * 1000))


async def began(it: Bench, *queue_ids: int, client_id: str = "c", messages: int = 1000) -> PushSession:
    """A session that was sent two messages of each queue, and has acknowledged the first."""
    it.directory.update_group(GROUP)
    await it.rest(100.0)
    for queue_id in queue_ids:
        await it.store(queue_id, b"a")
        await it.store(queue_id, b"b")
    session = await it.open(client_id, messages=messages)
    await it.rest()
    for queue_id in queue_ids:
        session.commit(QUEUES[queue_id], 1, 0)
    await event(session, DurableOffsets)
    return session


async def swept(it: Bench, after_s: float) -> list[str]:
    """The remaining sessions."""
    await it.rest(after_s)
    await it.sessions.sweep()
    await it.rest()
    return [session.client_id for session in it.sessions.all()]


def asked_about(it: Bench) -> list[int]:
    """The topics whose ends are requested from the enode from now on."""
    asked: list[int] = []
    describe = it.enode.describe_queues

    async def noted(topic_id: int) -> Any:
        asked.append(topic_id)
        return await describe(topic_id)

    it.enode.describe_queues = noted  # type: ignore[method-assign]
    return asked


@in_virtual_time
async def test_who_is_further_behind_than_allowed_for_the_whole_grace_is_evicted() -> None:
    """Not at the threshold and not before the grace period has ended; the reason has the lag and the time (E-082)."""
    async with bench() as it:
        session = await began(it, 0, 1)
        await it.store(1, b"c", b"d", b"e", b"f")
        asked = asked_about(it)
        assert await swept(it, GRACE_S - 0.1) == ["c"]
        assert asked == []
        session.commit(QUEUES[1], 2, 0)
        assert await swept(it, 0.2) == ["c"]
        assert await swept(it, GRACE_S) == ["c"]
        await it.store(1, b"g")
        await it.store(0, b"c")
        await it.rest(0.1)
        session.commit(QUEUES[0], 2, 0)
        it.sessions.evicted_count = 3
        assert await swept(it, 0.6) == []
        closed = await event(session, SessionClosed)
        assert (closed.reason, closed.message) == (
            CloseReason.SLOW_CONSUMER,
            "queue t/e/1 is 5 messages ahead of the acknowledged offset 2 (threshold 3), unchanged "
            "for 5.9 s; open a new session to continue from there",
        )
        assert it.sessions.evicted_count == 4


@in_virtual_time
async def test_how_far_a_queue_is_its_enode_is_asked_once_for_all_sessions() -> None:
    """A session without credit does not have the new end; one without due acknowledgements is not requested."""
    async with bench() as it:
        behind = await began(it, 0, 1, client_id="behind", messages=4)
        asked = asked_about(it)
        assert await swept(it, GRACE_S) == ["behind"]
        assert asked == [77]
        for queue_id in (0, 1):
            await it.store(queue_id, b"c", b"d", b"e", b"f")
        assert await swept(it, 1.0) == []
        assert asked == [77, 77]
        assert (
            "queue t/e/0 is 5 messages ahead of the acknowledged offset 1"
            in (await event(behind, SessionClosed)).message
        )
    async with bench() as it:
        behind = await began(it, 2, messages=2)
        await it.store(2, b"c", b"d", b"e", b"f")
        assert await swept(it, GRACE_S) == []
        assert "queue t/e/2 is 5 messages ahead" in (await event(behind, SessionClosed)).message


@in_virtual_time
async def test_while_an_enode_is_away_what_was_heard_of_it_counts() -> None:
    """Its silence neither protects slow sessions, nor ends others."""
    async with bench() as it:
        session = await began(it, 0, 1)
        await it.store(1, b"c", b"d", b"e", b"f")
        await it.rest()
        session.commit(QUEUES[1], 6, 0)

        async def away(topic_id: int) -> Any:
            raise Unavailable("away")

        it.enode.describe_queues = away  # type: ignore[method-assign]
        assert await swept(it, GRACE_S) == ["c"]
        await it.store(0, b"c", b"d", b"e", b"f")
        assert await swept(it, 1.0) == []
        assert "queue t/e/0 is 5 messages ahead" in (await event(session, SessionClosed)).message


@in_virtual_time
async def test_an_enode_that_does_not_answer_is_asked_once_for_all_its_topics() -> None:
    """Each request costs a timeout, in which no session is checked."""
    async with bench() as it:
        it.directory.update_topic(dataclasses.replace(TOPIC, name="u", topic_id=78))
        for number in range(4):
            it.enode.offsets["h", number] = 0
        await it.open("d", group="h", filters={"u": None})
        it.directory.update_group(dataclasses.replace(GROUP, name="h", version=2))
        await began(it, 0)
        asked: list[int] = []

        async def away(topic_id: int) -> Any:
            asked.append(topic_id)
            raise Unavailable("away")

        it.enode.describe_queues = away  # type: ignore[method-assign]
        for session in it.sessions.all():
            session.touch()
        assert await swept(it, GRACE_S) == ["d", "c"]
        assert asked == [78]
        assert await swept(it, GRACE_S) == ["d", "c"]
        assert asked == [78, 78]


@in_virtual_time
async def test_nobodys_end_waits_for_anothers() -> None:
    """A silent session's commits may delay its end, and many are silent when a network breaks."""
    async with bench() as it:
        silent = [await it.open(f"silent {number}", group="other") for number in range(3)]
        await it.store(3, b"a")
        await it.rest()
        it.directory.update_group(GROUP)
        slow = await it.open("slow")
        await it.rest()
        await it.store(0, *[b"a"] * 9)
        await it.rest()
        slow.commit(QUEUES[0], 1, 0)
        await it.rest(EXPIRY_S)
        slow.touch()
        it.enode.gate.clear()
        for session in silent:
            for queue in [feeder.cursor.queue for feeder in session.feeders.values()]:
                session.commit(queue, it.enode.end(queue.queue_id), 0)
        before_s = it.clock.monotonic_s()
        await it.sessions.sweep()
        await it.rest()
        assert it.clock.monotonic_s() - before_s < 0.01
        assert (it.sessions.all(), it.sessions.evicted_count) == ([], 1)


@in_virtual_time
async def test_who_has_acknowledged_nothing_yet_or_has_suspended_a_queue_is_not_slow() -> None:
    """E-085: and a resumed queue is awaited from then on."""
    async with bench() as it:
        it.directory.update_group(GROUP)
        await it.store(0, *[b"a"] * 9)
        session = await it.open()
        assert await swept(it, 10 * GRACE_S) == ["c"]
        session.touch()
        session.commit(QUEUES[0], 1, 0)
        session.suspend(frozenset({QUEUES[0]}))
        assert await swept(it, 2 * GRACE_S) == ["c"]
        session.suspend(None)
        assert await swept(it, GRACE_S) == ["c"]
        session.suspend(frozenset({QUEUES[1]}))
        assert await swept(it, GRACE_S - 0.1) == ["c"]
        assert await swept(it, 0.1) == []


@in_virtual_time
async def test_who_holds_all_the_bytes_it_may_and_acknowledges_none_is_evicted() -> None:
    """However few messages they are."""
    async with bench() as it:
        session = await began(it, 0)
        size_bytes = session.unacknowledged_bytes
        limited = Group("g", 2, slow_consumer_grace_ms=5_000, unacknowledged_bytes_max=size_bytes + 1)
        it.directory.update_group(limited)
        assert await swept(it, GRACE_S) == ["c"]
        it.directory.update_group(Group("g", 3, slow_consumer_grace_ms=5_000, unacknowledged_bytes_max=size_bytes))
        assert await swept(it, 1.0) == []
        closed = await event(session, SessionClosed)
        assert (closed.reason, closed.message) == (
            CloseReason.SLOW_CONSUMER,
            f"{size_bytes} bytes are not acknowledged (limit {size_bytes}), and nothing of queue t/e/0 was "
            "acknowledged for 6.0 s; open a new session to continue",
        )


@in_virtual_time
async def test_operators_read_sessions_messages_on_their_way_and_who_was_evicted() -> None:
    """By group, and by topic and group; before a group has acknowledged anything none is in flight."""

    def told() -> dict[str, Any]:
        found = [(family, samples) for family, samples in it.metrics.slices() if family is not None]
        return {family.name: (family.kind, family.labels, dict(samples)) for family, samples in found}

    async with bench() as it:
        ours = [family.help for family, _ in it.metrics.slices() if family and "consumer" in family.name]
        assert [one[0].isupper() and one[1].islower() and one.endswith(".") for one in ours] == [True] * 3
        session = await began(it, 0, 1)
        await it.open("d", group="h")
        await it.open("e", group="h")
        it.sessions.evicted_count = 7
        await it.rest()
        by_group = {("g",): 1, ("h",): 2}
        assert told()["rocketmq_consumer_connections"] == ("gauge", ("consumer_group",), by_group)
        on_their_way = ("gauge", ("topic", "consumer_group"), {("t", "g"): 2})
        assert told()["rocketmq_consumer_inflight_messages"] == on_their_way
        assert told()["ortoo_slow_consumers_evicted_total"] == ("counter", (), {(): 7})
        session.commit(QUEUES[0], 2, 0)
        assert told()["rocketmq_consumer_inflight_messages"][2] == {("t", "g"): 1}
