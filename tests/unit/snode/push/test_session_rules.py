"""One push session: its events, counts and credit, the sessions that it waits for, and its requests to enodes."""

import dataclasses
from typing import Any

import pytest

from ortoo.common.directory.group import Group
from ortoo.common.directory.topic import Placement
from ortoo.common.errors import DataLoss, Unavailable
from ortoo.common.filters.message_filter import compile_filter
from ortoo.common.records.batch import encode
from ortoo.common.records.message import Message
from ortoo.snode.cluster.routes import DirectoryUpdate, Queue, Topic
from ortoo.snode.enodes.link import LockRequest, LockResult
from ortoo.snode.membership.group_members import CloseReason
from ortoo.snode.push.outbox import Assignment, Delivery, DurableOffsets, SessionOpened
from ortoo.snode.push.plan import PushPlan
from ortoo.snode.push.session import FLUSH_TIMEOUT_S, PushSession
from ortoo.verification.time.virtual_time import in_virtual_time
from tests.unit.snode.fake_enode import TOPIC
from tests.unit.snode.push.push_bench import QUEUES, Bench, bench, event


async def bodies(it: Bench, session: PushSession) -> list[tuple[Queue, int, int]]:
    """The immediate deliveries: queue, first and next offset of each."""
    found: list[tuple[Queue, int, int]] = []

    async def read() -> None:
        while True:
            one = await event(session, Delivery)
            found.append((one.queue, one.first_offset, one.next_offset))

    await it.rest()
    reading = it.parts.background.start_future("read", read())
    await it.rest()
    reading.cancel()
    return found


async def store_tagged(it: Bench, queue_id: int, *tags: str) -> None:
    """One batch of messages with these tags."""
    await it.enode.append(77, queue_id, encode([Message(b"m" * 100, tag) for tag in tags], now_ms=1))


@in_virtual_time
async def test_a_session_says_first_who_it_is_and_how_often_it_wants_to_hear() -> None:
    """With the client's id, or the session's id if the client gave none."""
    async with bench() as it:
        for client_id in ("c", ""):
            plan = PushPlan("g", client_id, {"t": None}, heartbeat_interval_ms=7, expiry_ms=28)
            session = PushSession(it.parts, plan)
            assert await session.outbox.next() == SessionOpened(
                session.session_id, 7, 28, client_id or session.session_id
            )
            assert len(session.session_id) == 16
            assert session.client_id == client_id or session.session_id
            assert set(session._filters) == {"t"}
            assert (session.plan.broadcast, session.is_closing, session.call) == (False, False, None)
            assert session.memory.kind == "Push"


@in_virtual_time
async def test_what_is_delivered_or_lost_is_counted_by_topic_and_group() -> None:
    """A delivery of only an offset is neither."""
    async with bench() as it:
        session = await it.open()
        await it.store(1, b"a", b"b")
        await it.rest()
        one = await event(session, Delivery)
        assert it.traffic.delivered_totals == {("t", "g", "push"): [2, one.size_bytes, 1]}
        session.send(Delivery(QUEUES[1], 1, 77, 2, 9))
        assert it.traffic.lost_totals == {}
        session.send(Delivery(QUEUES[1], 1, 77, 9, 14, loss=DataLoss("a bad disk")))
        assert it.traffic.delivered_totals == {("t", "g", "push"): [2, one.size_bytes, 1]}
        assert (it.traffic.lost_totals, it.traffic.expired_totals) == ({("t", "g"): 5}, {})


@in_virtual_time
async def test_deliveries_are_traced_until_they_are_acknowledged() -> None:
    """Only deliveries with messages."""
    async with bench() as it:
        seen: list[tuple[Any, ...]] = []

        class Traces:
            """The recorded calls."""

            def on_pushed(self, *what: Any) -> None:
                seen.append(what)

            def on_committed(self, *what: Any) -> None:
                seen.append(what)

        traces: Any = Traces()
        it.traffic.traces = traces
        session = await it.open()
        await it.store(1, b"a", b"b")
        one = await event(session, Delivery)
        session.send(Delivery(QUEUES[1], 1, 77, 2, 9))
        session.commit(QUEUES[1], 2, 0)
        session.commit(QUEUES[1], 2, 0)
        assert seen == [("g", QUEUES[1], 0, 2, one.batch), ("g", QUEUES[1], 2)]


@in_virtual_time
async def test_broadcast_sessions_each_get_everything_and_keep_their_own_offsets() -> None:
    """No lock is taken and nothing stored; an acknowledgement is confirmed at once."""
    async with bench() as it:
        it.enode.locks.fence((77, "g", 0), 8)
        sessions = [await it.open(name, broadcast=True) for name in ("a", "b")]
        await it.store(0, b"a")
        for session in sessions:
            one = await event(session, Delivery)
            assert (one.queue, one.messages) == (QUEUES[0], 1)
            session.commit(QUEUES[0], 1, one.generation)
            assert (await event(session, DurableOffsets)).offsets == [(QUEUES[0], 1, one.generation)]
            assert [feeder.fence for feeder in session.feeders.values()] == [0] * 4
        await it.sessions.close(sessions[0], CloseReason.CLIENT_LEFT, "bye")
        assert it.enode.commits == []
        assert it.enode.locks.generation((77, "g", 1)) == 0


@in_virtual_time
async def test_only_what_a_client_wants_is_delivered_also_after_it_wants_something_else() -> None:
    """In queues that it already has, and in new ones."""
    async with bench() as it:
        session = await it.open(filters={"t": compile_filter("a", "")})
        await store_tagged(it, 0, "a", "b", "a")
        one = await event(session, Delivery)
        assert (one.messages, one.rows) == (2, b"\0\0\0\0\2\0\0\0")
        other = await it.open("d")
        session.subscribe({"t": compile_filter("b", "")})
        await store_tagged(it, 0, "b", "a", "b")
        assert (await event(session, Delivery)).rows == b"\0\0\0\0\2\0\0\0"
        await it.sessions.close(other, CloseReason.CLIENT_LEFT, "bye")
        await store_tagged(it, 3, "b", "a", "b")
        two = await event(session, Delivery)
        assert (two.queue, two.rows) == (QUEUES[3], b"\0\0\0\0\2\0\0\0")


@in_virtual_time
async def test_the_credit_of_what_never_left_is_for_other_queues() -> None:
    """For a queue that moved to another member, and for one that restarts."""
    async with bench() as it:
        first = await it.open("a", messages=1)
        await it.store(3, b"lost")
        await it.rest()
        await it.store(0, b"kept")
        await it.open("b")
        assert await bodies(it, first) == [(QUEUES[0], 0, 1)]
    async with bench() as it:
        session = await it.open(messages=2)
        await it.store(3, b"read")
        await it.store(3, b"lost")
        assert (await event(session, Delivery)).queue == QUEUES[3]
        await it.store(0, b"kept")
        await it.enode.commit_offsets(77, "g", [(3, 2, 0)], reset=True)
        session.commit(QUEUES[3], 1, 0)
        assert await bodies(it, session) == [(QUEUES[0], 0, 1)]


@in_virtual_time
async def test_what_is_assigned_is_told_with_its_generation() -> None:
    """Deliveries have the same generation, also those of queues that stay."""
    async with bench() as it:
        first = await it.open("a")
        one = await event(first, Assignment)
        await it.open("b")
        two = await event(first, Assignment)
        assert (one.queues, two.queues) == (tuple(QUEUES), tuple(QUEUES[:2]))
        assert 0 < one.generation < two.generation == it.groups.membership.generation("g")
        await it.store(0, b"a")
        assert (await event(first, Delivery)).generation == two.generation
        await it.enode.commit_offsets(77, "g", [(0, 0, 0)], reset=True)
        without, again = await event(first, Assignment), await event(first, Assignment)
        assert two.generation < without.generation < again.generation
        assert (without.queues, set(again.queues)) == ((QUEUES[1],), set(QUEUES[:2]))


@in_virtual_time
async def test_a_queue_of_a_topic_that_was_made_again_is_taken_on_again() -> None:
    """Its messages are others, and the client is notified before they come. A deleted topic has no deliveries."""
    async with bench() as it:
        await it.store(0, b"a", b"b")
        session = await it.open()
        old = await event(session, Delivery)
        await it.rest()
        assert [feeder.topic_id for feeder in session.feeders.values()] == [77] * 4
        before = [feeder.cursor for feeder in session.feeders.values()]
        it.groups.on_topics_changed({"t"})
        await it.rest()
        assert [feeder.cursor for feeder in session.feeders.values()] == before
        it.directory.apply(DirectoryUpdate(2, topics=(dataclasses.replace(TOPIC, topic_id=78, version=2),)))
        it.groups.on_topics_changed({"t"})
        await it.rest()
        assert [feeder.topic_id for feeder in session.feeders.values()] == [78] * 4
        without, again = await event(session, Assignment), await event(session, Assignment)
        assert (without.queues, again.queues) == ((), tuple(QUEUES))
        assert old.generation < without.generation < again.generation
        it.enode.commits.clear()
        for generation in (old.generation, without.generation):
            session.commit(old.queue, old.next_offset, generation)
        await it.rest()
        assert it.enode.commits == []
        it.directory.apply(DirectoryUpdate(3, deleted_topics=("t",)))
        session.assign(it.groups.membership.advance_generation("g"), list(QUEUES))
        assert session.feeders == {}


@in_virtual_time
async def test_locks_are_asked_for_in_the_clients_name_and_given_back() -> None:
    """They are resumed only after a loss. They are released as taken, and not if they were lost."""
    async with bench() as it:
        asked: list[LockRequest] = []
        freed: list[LockRequest] = []
        take, release = it.enode.take_locks, it.enode.release_locks

        async def taking(incarnation: str, requests: Any) -> Any:
            asked.extend(requests)
            return await take(incarnation, requests)

        async def releasing(requests: Any) -> Any:
            freed.extend(requests)
            return await release(requests)

        it.enode.take_locks, it.enode.release_locks = taking, releasing  # type: ignore[method-assign]
        session = await it.open()
        await it.rest()
        requests = [LockRequest("g", 77, number, "c", session.session_id) for number in range(4)]
        assert asked == requests
        assert [feeder.fence for feeder in session.feeders.values()] == [
            it.enode.locks.generation((77, "g", n)) for n in range(4)
        ]
        await it.enode.commit_offsets(77, "g", [(2, 0, 0)], reset=True)
        await it.rest()
        assert asked[4:] == [dataclasses.replace(requests[2], resume=True)]
        assert freed == []
        await it.sessions.close(session, CloseReason.CLIENT_LEFT, "bye")
        await it.rest()
        assert sorted(freed, key=lambda one: one.queue_id) == requests
        assert all(one.resume is False for one in freed)


@in_virtual_time
async def test_who_lost_a_queue_to_a_newer_session_of_its_client_is_replaced() -> None:
    """Not at the first request: then the other session is the older one."""
    async with bench() as it:
        session = await it.open()
        await it.rest()
        ended: list[CloseReason] = []
        session.on_end = lambda reason, message: ended.append(reason)

        async def newer(incarnation: str, requests: Any) -> list[LockResult]:
            return [LockResult(0, "c", 60_000) for _ in requests]

        it.enode.take_locks = newer  # type: ignore[method-assign]
        await it.enode.commit_offsets(77, "g", [(2, 0, 0)], reset=True)
        await it.rest()
        assert ended == [CloseReason.REPLACED]


@in_virtual_time
async def test_a_queue_is_kept_from_its_next_owner_for_a_while_and_what_cannot_be_stored_is_given_up() -> None:
    """An acknowledgement in flight is waited for four seconds; it is not repeated after that."""
    async with bench() as it:
        await it.store(0, b"a")
        session = await it.open()
        await event(session, Delivery)
        await it.rest()
        it.enode.gate.clear()
        it.enode.commits.clear()
        session.commit(QUEUES[0], 1, 0)
        closing = it.parts.background.spawn("close", it.sessions.close(session, CloseReason.CLIENT_LEFT, "bye"))
        await it.rest(FLUSH_TIMEOUT_S - 0.01)
        assert not closing.done()
        await it.rest(0.02)
        assert closing.done()
        it.enode.commit_refusals.append(Unavailable("away"))
        it.enode.gate.set()
        await it.rest(10.0)
        assert it.enode.commits == [{0: 1}]


@in_virtual_time
async def test_a_queue_begins_again_without_waiting_for_what_was_acknowledged_under_the_lost_lock() -> None:
    """They are dropped: the offset belongs to another owner now."""
    async with bench() as it:
        await it.store(0, b"a", b"b")
        session = await it.open()
        one = await event(session, Delivery)
        await it.enode.commit_offsets(77, "g", [(0, 1, 0)], reset=True)
        it.enode.commits.clear()
        session.commit(QUEUES[0], 2, one.generation)
        await it.rest()
        again = await event(session, Delivery)
        assert (again.queue, again.first_offset, again.messages) == (QUEUES[0], 0, 1)
        assert it.enode.offsets["g", 0] == 1


@in_virtual_time
async def test_nothing_of_a_suspended_queue_comes_and_other_queues_go_on() -> None:
    """After it is resumed, its messages come."""
    async with bench() as it:
        session = await it.open()
        session.suspend(frozenset({QUEUES[0]}))
        await it.store(0, b"a")
        await it.store(1, b"b")
        assert await bodies(it, session) == [(QUEUES[1], 0, 1)]
        session.suspend(None)
        await it.store(1, b"c")
        assert await bodies(it, session) == []
        session.suspend(frozenset())
        assert sorted(await bodies(it, session)) == [(QUEUES[0], 0, 1), (QUEUES[1], 1, 2)]


@in_virtual_time
async def test_what_is_not_acknowledged_may_be_as_much_as_the_group_allows() -> None:
    """Beyond it nothing is sent; the group's own setting counts, otherwise the default."""
    async with bench() as it:
        session = await it.open()
        assert session.unacknowledged_bytes_max == 64 << 20
        await it.store(0, b"a")
        await it.rest()
        size_bytes = session.unacknowledged_bytes
        it.directory.update_group(Group("g", 2, unacknowledged_bytes_max=size_bytes))
        await it.store(1, b"b")
        assert await bodies(it, session) == [(QUEUES[0], 0, 1)]
        it.directory.update_group(Group("g", 3, unacknowledged_bytes_max=size_bytes + 1))
        session.grant(0, 0)
        assert await bodies(it, session) == [(QUEUES[1], 0, 1)]


@pytest.mark.parametrize(
    ("queues", "left_bytes", "credit_bytes", "asked_bytes"),
    [
        (1, 1 << 30, 1 << 30, 1 << 20),
        (16, 1 << 30, 1 << 30, 512 << 10),
        (4, 16 * 300_000 + 15, 1 << 30, 300_000),
        (4, 1 << 30, 200_000, 200_000),
        (4, 1 << 30, 9, 64 << 10),
        (4, 16, 1 << 30, 64 << 10),
    ],
)
@in_virtual_time
async def test_a_read_asks_for_a_share_of_what_there_is(
    queues: int, left_bytes: int, credit_bytes: int, asked_bytes: int
) -> None:
    """Between 64 KiB and 1 MiB, depending on the session's 8 MiB, the remaining memory and the client's credit."""
    async with bench() as it:
        topic = Topic("t", 77, 9, TOPIC.permission, (Placement("e", queues, queues),))
        it.directory.update_topic(topic)
        it.enode.queues = {number: [] for number in range(queues)}
        session = PushSession(it.parts, PushPlan("g", "c", {"t": None}))
        session.assign(1, topic.read_queues())
        session.grant(1, credit_bytes)
        it.memory.used_bytes = it.memory.bytes_max - left_bytes
        assert session._fetch_bytes() == asked_bytes
