"""Push sessions of one group over a fake enode: order, change of owners, credit, memory."""

import asyncio
import dataclasses
import gc
import weakref

from ortoo.common.directory.group import Group
from ortoo.common.directory.topic import Placement
from ortoo.common.errors import Unavailable
from ortoo.snode.cluster.routes import DirectoryUpdate, Queue
from ortoo.snode.membership.consumer_groups import REOPEN_TIMEOUT_S
from ortoo.snode.membership.group_members import CloseReason, Subscription
from ortoo.snode.pull.offsets import SessionStart, StartFrom
from ortoo.snode.push.outbox import Assignment, Delivery, DurableOffsets, SessionClosed
from ortoo.verification.time.virtual_time import in_virtual_time
from tests.unit.snode.fake_enode import TOPIC
from tests.unit.snode.push.push_bench import QUEUES, bench, event


@in_virtual_time
async def test_a_queue_comes_in_order_without_gaps() -> None:
    """Batches stored before and after the session opened are delivered one after the other (G3)."""
    async with bench() as it:
        await it.store(0, b"a", b"b")
        session = await it.join("c")
        await it.store(0, b"c")
        await it.store(0, b"d", b"e")
        at = 0
        while at < 5:
            delivery = await event(session, Delivery)
            assert (delivery.queue, delivery.first_offset) == (QUEUES[0], at)
            at = delivery.next_offset


@in_virtual_time
async def test_the_queues_of_a_session_that_reopens_stay_with_its_client() -> None:
    """As at the end by age: no other member gets a queue in between. A client that does not return loses them soon."""
    async with bench() as it:
        first, second = await it.open("a"), await it.open("b")
        await it.rest()
        assert [sorted(one.feeders) for one in (first, second)] == [QUEUES[:2], QUEUES[2:]]
        grown: list[int] = []
        it.groups.on_members_changed = lambda *_: grown.append(len(second.feeders))
        for _ in range(3):
            await it.sessions.close(first, CloseReason.SHUTDOWN, "aged", reopens=True)
            await it.rest(REOPEN_TIMEOUT_S / 2)
            first = await it.open("a")
            await it.rest()
            assert sorted(first.feeders) == QUEUES[:2]
        assert set(grown) == {2}
        await it.rest(2 * REOPEN_TIMEOUT_S)
        counts = [len(one.feeders) for one in (first, second)]
        assert counts == [2, 2], "the end of an earlier session ends no later one"
        await it.sessions.close(first, CloseReason.SHUTDOWN, "aged", reopens=True)
        await it.rest(REOPEN_TIMEOUT_S - 0.1)
        assert len(second.feeders) == 2
        await it.rest(0.2)
        assert sorted(second.feeders) == QUEUES


@in_virtual_time
async def test_a_snode_that_stops_leaves_no_member_whose_session_was_to_reopen() -> None:
    """Other snodes would keep its queues for it until a timeout. A client that has returned stays."""
    async with bench() as it:
        gone, back = await it.open("gone"), await it.open("back")
        for session in (gone, back):
            await it.sessions.close(session, CloseReason.SHUTDOWN, "aged", reopens=True)
        await it.open("back")
        it.groups.leave_now()
        assert list(it.groups.membership.members("g")) == ["back"]
        await it.rest(2 * REOPEN_TIMEOUT_S)
        assert list(it.groups.membership.members("g")) == ["back"]


@in_virtual_time
async def test_without_credit_nothing_is_read_or_sent() -> None:
    """E-088: a session that grants one message gets one batch. The next comes with the next credit (G13)."""
    async with bench() as it:
        await it.store(0, b"a", b"b")
        await it.store(0, b"c")
        session = await it.join("c", messages=1)
        assert (await event(session, Delivery)).next_offset == 2
        waiting = it.parts.background.spawn("waiting", event(session, Delivery))
        session.grant(1, 0)
        await it.store(1, b"x")
        assert not waiting.done()
        session.grant(1, 0)
        assert (await waiting).messages == 1


@in_virtual_time
async def test_the_new_owner_starts_when_the_old_ones_acknowledgements_are_stored() -> None:
    """While the old owner's commit is in flight the new owner waits; then it starts at that offset (E-109)."""
    async with bench() as it:
        for number in range(4):
            await it.store(number, b"a", b"b")
        first = await it.join("a")
        got: dict[Queue, Delivery] = {}
        while len(got) < 4:
            delivery = await event(first, Delivery)
            got[delivery.queue] = delivery
        it.enode.gate.clear()
        it.enode.arrived.clear()
        for delivery in got.values():
            first.commit(delivery.queue, delivery.next_offset, delivery.generation)
        await it.enode.arrived.wait()
        second = await it.join("b")
        assert (await event(second, Assignment)).queues == tuple(QUEUES[2:])
        waiting = it.parts.background.spawn("waiting", event(second, Delivery))
        assert (await event(first, Assignment)).queues == tuple(QUEUES[:2])
        assert not waiting.done()
        it.enode.gate.set()
        await it.store(2, b"c")
        delivery = await waiting
        assert (delivery.queue, delivery.first_offset) == (QUEUES[2], 2)


@in_virtual_time
async def test_a_queue_that_was_away_begins_again_also_for_a_client_that_reads_late() -> None:
    """However soon it returns, the client is notified that it was revoked; earlier deliveries no longer count."""
    async with bench() as it:
        await it.store(3, b"a", b"b")
        first = await it.join("a")
        before = await event(first, Delivery)
        second = await it.join("b")
        await it.rest()
        await it.close(second)
        await it.rest()
        without, again = await event(first, Assignment), await event(first, Assignment)
        assert (without.queues, again.queues) == (tuple(QUEUES[:2]), tuple(QUEUES))
        assert before.generation < without.generation < again.generation
        for generation in (before.generation, without.generation):
            first.commit(before.queue, 2, generation)
        delivery = await event(first, Delivery)
        assert (delivery.queue, delivery.first_offset) == (QUEUES[3], 0)
        assert it.enode.offsets["g", 3] == 0


@in_virtual_time
async def test_acknowledgements_of_a_lost_queue_are_dropped() -> None:
    """Acknowledgements of the old owner after the queue has moved are not committed."""
    async with bench() as it:
        await it.store(3, b"a", b"b")
        first = await it.join("a")
        delivery = await event(first, Delivery)
        await it.join("b")
        while len(first.feeders) > 2:
            await it.parts.clock.sleep(0)
        first.commit(delivery.queue, delivery.next_offset, delivery.generation)
        await it.close(first)
        assert {3: 2} not in it.enode.commits


@in_virtual_time
async def test_closing_stores_acknowledgements_and_says_goodbye_last() -> None:
    """An acknowledgement right before the close is durable before the session has ended."""
    async with bench() as it:
        await it.store(0, b"a")
        session = await it.join("c")
        delivery = await event(session, Delivery)
        session.commit(delivery.queue, 1, delivery.generation)
        await it.close(session)
        assert it.enode.offsets[("g", 0)] == 1
        assert (await event(session, DurableOffsets)).offsets == [(QUEUES[0], 1, delivery.generation)]
        assert (await event(session, SessionClosed)).reason is CloseReason.CLIENT_LEFT


@in_virtual_time
async def test_an_enode_that_is_away_does_not_end_the_session() -> None:
    """Commits are retried until they are stored."""
    async with bench() as it:
        await it.store(0, b"a")
        session = await it.join("c")
        delivery = await event(session, Delivery)
        it.enode.commit_refusals.extend([Unavailable("away")] * 3)
        session.commit(delivery.queue, 1, delivery.generation)
        assert (await event(session, DurableOffsets)).offsets[0][1] == 1


@in_virtual_time
async def test_two_hundred_members_come_and_go_and_every_queue_has_one_owner() -> None:
    """After a storm of joins and leaves the last assignments are complete and disjoint (E-056, E-125)."""
    async with bench() as it:
        sessions = await asyncio.gather(*(it.join(f"c{number:03}", messages=0) for number in range(200)))
        await asyncio.gather(*(it.close(session) for session in sessions[3:]))
        owned: list[Queue] = []
        while len(owned) < len(QUEUES):
            await it.parts.clock.sleep(0)
            owned = [feeder.cursor.queue for session in sessions[:3] for feeder in session.feeders.values()]
        assert sorted(owned) == QUEUES
        assert all(not session.feeders for session in sessions[3:])


@in_virtual_time
async def test_a_group_subscribes_from_its_first_session_on() -> None:
    """Messages stored after a group's first session are its own, even if that session acknowledged nothing (G2)."""
    async with bench() as it:
        await it.store(0, b"before")
        first = await it.join("c", from_beginning=False)
        while len(it.enode.offsets) < len(QUEUES):
            await it.parts.clock.sleep(0)
        await it.close(first)
        await it.store(0, b"between")
        second = await it.join("c", from_beginning=False)
        delivery = await event(second, Delivery)
        assert (delivery.queue, delivery.first_offset) == (QUEUES[0], 1)


@in_virtual_time
async def test_what_is_stored_in_a_queue_that_is_added_is_its_groups_from_the_first_message_on() -> None:
    """A producer may be faster than the consumer, even one that had no queue before (G2)."""
    async with bench() as it:
        it.enode.queues = {number: [] for number in range(6)}
        for number in (0, 4):
            await it.store(number, b"before", b"its group")
        members = [await it.open(f"c{number}", start=SessionStart(StartFrom.LAST)) for number in range(5)]
        await it.rest()
        it.directory.apply(
            DirectoryUpdate(2, topics=(dataclasses.replace(TOPIC, version=2, placements=(Placement("e", 5, 5),)),))
        )
        it.groups.on_topics_changed({"t"})
        await it.rest()
        assert it.enode.offsets == {("g", number): 2 if number == 0 else 0 for number in range(5)}
        delivery = await event(members[4], Delivery)
        assert (delivery.queue, delivery.first_offset, delivery.messages) == (Queue("t", "e", 4), 0, 2)


@in_virtual_time
async def test_a_topic_that_is_made_again_begins_with_its_first_message_and_one_that_is_wanted_later_as_asked() -> None:
    """A topic existed before a later subscription to it; a recreated one did not."""
    async with bench() as it:
        await it.store(0, b"a message")
        for name, topic_id in (("t", 76), ("u", 78)):
            it.directory.update_topic(dataclasses.replace(TOPIC, name=name, topic_id=topic_id, version=2))
        await it.open(start=SessionStart(StartFrom.LAST))
        other = await it.open("d", "h", filters={"u": None}, start=SessionStart(StartFrom.LAST))
        kept = SessionStart(offsets={QUEUES[0]: 9})
        alone = await it.open("e", "i", start=kept, broadcast=True)
        await it.rest()
        it.directory.update_topic(dataclasses.replace(TOPIC, version=3))
        it.groups.on_topics_changed({"t"})
        await it.sessions.subscribe(other, [Subscription("u"), Subscription("t")])
        await it.rest()
        assert [it.enode.offsets[group, 0] for group in ("g", "h")] == [0, 1]
        assert (await event(alone, Delivery)).first_offset == 0


@in_virtual_time
async def test_an_operators_reset_makes_the_owner_begin_again() -> None:
    """The queue is revoked and assigned again, and starts at the new offset; late acknowledgements are dropped."""
    async with bench() as it:
        await it.store(0, b"a", b"b", b"c")
        session = await it.join("c")
        before = await event(session, Delivery)
        session.commit(before.queue, 3, before.generation)
        await event(session, DurableOffsets)
        await it.enode.commit_offsets(77, "g", [(0, 1, 0)], reset=True)
        assert QUEUES[0] not in (await event(session, Assignment)).queues
        assert QUEUES[0] in (await event(session, Assignment)).queues
        session.commit(before.queue, 3, before.generation)
        again = await event(session, Delivery)
        assert (again.queue, again.rows, again.next_offset) == (QUEUES[0], b"\1\0\0\0\2\0\0\0", 3)
        assert it.enode.offsets["g", 0] == 1


@in_virtual_time
async def test_an_acknowledgement_under_an_old_lock_begins_the_queue_again() -> None:
    """A session that lost its lock briefly learns it at the next acknowledgement, and continues under a new one."""
    async with bench() as it:
        await it.store(0, b"a", b"b")
        session = await it.join("c")
        before = await event(session, Delivery)
        it.enode.locks.fence((77, "g", 0), 0)
        session.commit(before.queue, 1, before.generation)
        again = await event(session, Delivery)
        assert (again.queue, again.first_offset, again.generation > before.generation) == (QUEUES[0], 0, True)
        session.commit(again.queue, 2, again.generation)
        assert (await event(session, DurableOffsets)).offsets[0][1] == 2


@in_virtual_time
async def test_what_a_client_has_of_a_log_that_was_cut_acknowledges_nothing_of_what_is_stored_there_now() -> None:
    """Its offsets are reused for other messages: the queue restarts, and the client is not refused."""
    async with bench() as it:
        await it.store(0, b"old", b"old")
        session = await it.join("c")
        before = await event(session, Delivery)
        it.enode.queues[0].clear()
        await it.store(0, b"new")
        without, again = await event(session, Assignment), await event(session, Assignment)
        assert (without.queues, set(again.queues)) == (tuple(QUEUES[1:]), set(QUEUES))
        session.commit(before.queue, 2, before.generation)
        new = await event(session, Delivery)
        assert (new.queue, new.first_offset, new.next_offset) == (QUEUES[0], 0, 1)
        assert it.enode.offsets["g", 0] == 0


@in_virtual_time
async def test_a_broadcast_begins_again_as_often_as_the_log_is_cut() -> None:
    """Behind its client's acknowledged offset; it has no locks, and no session has replaced it."""
    async with bench() as it:
        await it.store(0, *[b"old"] * 3)
        session = await it.open(broadcast=True)
        old = await event(session, Delivery)
        session.commit(old.queue, 1, old.generation)
        for stored in ([b"new"] * 2, [b"newest"], [b"next"]):
            if stored != [b"next"]:
                it.enode.queues[0].clear()
            await it.store(0, *stored)
            await it.rest(1.0)
            assert it.sessions.all() == [session]
            if stored != [b"newest"]:  # with that alone nothing is behind the acknowledged offset
                new = await event(session, Delivery)
                assert (new.next_offset, new.messages) == (2, 1)


@in_virtual_time
async def test_a_broadcast_goes_on_where_its_client_says_also_in_a_queue_that_this_snode_hears_of_later() -> None:
    """The client had it from another snode with newer data."""
    async with bench() as it:
        await it.store(1, b"before", b"next")
        it.directory.update_topic(dataclasses.replace(TOPIC, version=2, placements=(Placement("e", 1, 1),)))
        session = await it.open(broadcast=True, start=SessionStart(offsets={QUEUES[1]: 1}))
        it.directory.update_topic(dataclasses.replace(TOPIC, version=3))
        it.groups.on_topics_changed({"t"})
        delivery = await event(session, Delivery)
        assert (delivery.queue, delivery.next_offset, delivery.messages) == (QUEUES[1], 2, 1)


@in_virtual_time
async def test_unacknowledged_bytes_have_a_limit_of_their_own() -> None:
    """With any credit, a client holds at most the group's limit, and gets more after acknowledging."""
    async with bench() as it:
        it.parts.directory.update_group(Group("g", 1, unacknowledged_bytes_max=1))
        for text in (b"a", b"b"):
            await it.store(0, text)
        session = await it.join("c")
        first = await event(session, Delivery)
        waiting = it.parts.background.spawn("waiting", event(session, Delivery))
        for _ in range(50):
            await it.parts.clock.sleep(0)
        assert not waiting.done()
        session.commit(first.queue, 1, first.generation)
        assert (await waiting).first_offset == 1


@in_virtual_time
async def test_a_queue_that_is_given_up_is_gone_with_all_that_was_read_of_it() -> None:
    """Without garbage collection: the cancellation of its task would keep the batches that waited for credit."""
    async with bench() as it:
        await it.store(0, b"a")
        await it.store(0, b"b")
        session = await it.join("c", messages=1)
        await it.rest()
        feeding = weakref.ref(session.feeders[QUEUES[0]].task)
        gc.disable()
        try:
            await it.close(session)
            await it.rest()
            assert feeding() is None
        finally:
            gc.enable()
