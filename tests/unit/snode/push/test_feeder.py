"""One queue of a push session: its start, its requests to the enode, its deliveries, and its errors."""

import itertools

import pytest

from ortoo.common.errors import DataLoss, Fenced, Forbidden, NotFound, OrtooError, OutOfRange, Overloaded, Unavailable
from ortoo.common.filters.message_filter import compile_filter
from ortoo.snode.enodes.link import FetchBatchesRequest, FetchedBatches, QueueRange
from ortoo.snode.pull.offsets import SessionStart, StartFrom
from ortoo.snode.push.feeder import SKIPPED_MAX
from ortoo.snode.push.outbox import Delivery
from ortoo.verification.time.virtual_time import in_virtual_time
from tests.unit.snode.push.feeder_bench import BYTES_MAX, QUEUE, RETRY, Feed, fetched, script, stored, told, whole


@in_virtual_time
async def test_a_queue_goes_on_where_the_group_was() -> None:
    """It reads from there, under its lock, as much as allowed, for any time."""
    async with script() as (it, enode):
        enode.offsets["g", 2] = 5
        feed = Feed(it, enode)
        await feed.run()
        assert enode.asked == [FetchBatchesRequest(77, 2, 5, BYTES_MAX, wait_ms=30_000, group="g", generation=6)]
        assert (feed.cursor.next_offset, feed.cursor.committed_offset) == (5, 5)
        assert enode.commits == []


@in_virtual_time
async def test_a_queue_without_an_offset_begins_as_the_session_asked_and_the_group_subscribes() -> None:
    """With the oldest message, at the end, or at a time; a retry topic always with its oldest message."""
    cases = ((StartFrom.FIRST, 3, QUEUE), (StartFrom.LAST, 7, QUEUE), (StartFrom.TIME, 41, QUEUE))
    for start_from, begins_at, queue in (*cases, (StartFrom.LAST, 3, RETRY), (StartFrom.TIME, 3, RETRY)):
        async with script() as (it, enode):
            feed = Feed(it, enode, start=SessionStart(start_from, 40), queue=queue)
            await feed.run()
            assert enode.asked[0].from_offset == feed.cursor.next_offset == begins_at
            assert feed.cursor.committed_offset is None
            assert enode.commits == [{2: begins_at}]


@in_virtual_time
async def test_the_first_offset_is_stored_under_the_lock_of_the_queue() -> None:
    """A session that lost the lock meanwhile does not subscribe the group, and is fenced before its first read."""
    async with script() as (it, enode):
        enode.locks.fence((77, "g", 2), 8)
        with pytest.raises(Fenced):
            await Feed(it, enode, fence=7).run()
        assert enode.commits == [{}]
        assert enode.asked == []


@in_virtual_time
async def test_a_broadcast_session_begins_with_what_its_client_keeps_and_nobody_subscribes() -> None:
    """Without a stored offset as requested; it has no lock."""
    for offsets, begins_at, acknowledged in (({QUEUE: 6}, 6, 6), ({QUEUE: 0}, 0, 0), ({}, 3, None)):
        async with script() as (it, enode):
            rule = SessionStart(StartFrom.FIRST, offsets=offsets)
            feed = Feed(it, enode, start=rule, broadcast=True)
            await feed.run()
            assert enode.asked == [FetchBatchesRequest(77, 2, begins_at, BYTES_MAX, wait_ms=30_000)]
            assert feed.cursor.committed_offset == acknowledged
            assert enode.commits == []


@in_virtual_time
async def test_a_queue_that_its_enode_does_not_have_yet_is_waited_for() -> None:
    """A topic is created at the name server first."""
    async with script() as (it, enode):
        found, enode.ranges = enode.ranges, [QueueRange(1, 100, 200)]
        feed = Feed(it, enode)
        with pytest.raises(NotFound, match="enode e does not have queue t/e/2 yet") as refused:
            await feed.feeder._first_offset()
        assert refused.value.field == "queue_id"
        await feed.run(10.0)
        assert enode.asked == []
        enode.ranges = found
        await feed.run(3.0)
        assert enode.asked[0].from_offset == 3


@in_virtual_time
async def test_batches_are_delivered_whole_in_their_order_and_awaited_from_then_on() -> None:
    """With all fields for the client; messages already read are cut off."""
    async with script() as (it, enode):
        one, two, three = stored(3, "a", "b"), stored(5, "a"), stored(6, "a", "b", "c")
        feed = Feed(it, enode, [fetched(one, two, end_offset=9), fetched(three)])
        await it.rest(2.0)
        got = await feed.run()
        assert got == [whole(one), whole(two), whole(three)]
        assert (feed.cursor.end_offset, feed.cursor.sent_offset, feed.cursor.waiting_since_s) == (9, 9, 2.0)
        assert feed.cursor.unacknowledged_bytes == sum(len(each.batch.records) for each in (one, two, three))
    async with script() as (it, enode):
        enode.offsets["g", 2] = 7
        (got_one,) = await Feed(it, enode, [fetched(three)]).run()
        assert (got_one.first_offset, got_one.next_offset, got_one.messages) == (6, 9, 2)
        assert got_one.rows == b"\1\0\0\0\2\0\0\0"


@in_virtual_time
async def test_what_is_not_wanted_is_passed_over_and_the_client_told_at_the_end_of_the_queue() -> None:
    """Or after a number of messages; batches behind one without a match are delivered too."""
    async with script() as (it, enode):
        wanted = compile_filter("a", "")
        unwanted, some, last = stored(3, "b", "b"), stored(5, "a", "b", "a"), stored(8, "c")
        feed = Feed(it, enode, [fetched(unwanted, some, end_offset=9), fetched(last)], message_filter=wanted)
        delivered, moved = await feed.run()
        assert delivered == Delivery(QUEUE, 9, 77, 5, 8, 1_005, some.batch, b"\0\0\0\0\2\0\0\0", 2)
        assert moved == told(8, 9)
        many = [stored(number, *["b"] * 4_096) for number in range(3, 3 + SKIPPED_MAX, 4_096)]
        for batches, expected in ((many[:-1], []), (many, [told(3, 3 + SKIPPED_MAX)])):
            enode.offsets["g", 2] = 3
            feed = Feed(it, enode, [fetched(*batches, end_offset=100_000)], message_filter=wanted)
            assert await feed.run() == expected


@in_virtual_time
async def test_messages_whose_time_is_over_are_left_out_and_counted() -> None:
    """By the clock of the snode."""
    async with script() as (it, enode):
        batch = stored(3, "x", "a", "x", expire_at_ms=it.clock.now_ms() + 5_000)
        feed = Feed(it, enode, [fetched(batch)])
        (early,) = await feed.run(1.0)
        assert (early.messages, it.traffic.expired_totals) == (3, {})
        enode.offsets.clear()
        await it.rest(4.0)
        feed = Feed(it, enode, [fetched(batch)])
        (late,) = await feed.run(1.0)
        assert (late.messages, it.traffic.expired_totals) == (1, {("t", "g"): 2})


@in_virtual_time
async def test_what_expires_or_is_wanted_no_more_while_the_client_takes_nothing_is_left_out() -> None:
    """Also messages read before: its credit may come an hour later."""
    async with script() as (it, enode):
        first, second = stored(3, "a"), stored(4, "x", "a", "b", expire_at_ms=it.clock.now_ms() + 5_000)
        feed = Feed(it, enode, [fetched(first, second)], message_filter=compile_filter("a||b||x", ""))
        feed.client.stops_after = 1
        feeding = it.parts.background.start_future("feed", feed.run(10.0))
        await it.rest(6.0)
        assert len(feed.client.got) == 1
        feed.feeder.message_filter = compile_filter("a||x", "")
        feed.client.takes.set()
        late = (await feeding)[1]
        assert (late.messages, late.next_offset, it.traffic.expired_totals) == (1, 7, {("t", "g"): 1})


@in_virtual_time
async def test_memory_is_drawn_before_a_read_and_held_until_each_batch_is_delivered() -> None:
    """A feeder that waits at the end of a queue holds none."""
    async with script() as (it, enode):
        one, two = stored(3, "a", "b"), stored(5, "a")
        size, next_size = len(one.batch.records), len(two.batch.records)
        feed = Feed(it, enode, [fetched(one, two, end_offset=7), fetched(stored(6, "a"))])
        await feed.run()
        assert enode.asked_bytes == [BYTES_MAX, BYTES_MAX, 0]
        assert feed.client.held == [0, size + next_size, next_size, 0, len(stored(6, "a").batch.records), 0]
        assert feed.client.share.bytes == 0


@in_virtual_time
async def test_nothing_is_read_and_nothing_sent_while_the_client_takes_nothing() -> None:
    """Before each read and before each batch it waits for the client."""
    async with script() as (it, enode):
        feed = Feed(it, enode, [fetched(stored(3, "a"))])
        feed.client.takes.clear()
        assert await feed.run() == []
        assert enode.asked == []


@in_virtual_time
async def test_an_enode_that_is_away_is_asked_again_less_and_less_often() -> None:
    """Up to once a second, later if the enode asks for it, and from the start after a read that worked."""
    async with script() as (it, enode):
        away: list[FetchedBatches | OrtooError] = [Unavailable("away") for _ in range(6)]
        busy = Overloaded("busy", retry_after_ms=10_000)
        feed = Feed(it, enode, [*away, busy, fetched(stored(3, "a")), Unavailable("away")])
        await feed.run()
        at_s = enode.asked_at_s
        pauses = [after - before for before, after in itertools.pairwise(at_s)]
        expected = [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 11.0, 0.0, 0.05]
        assert len(pauses) == len(expected)
        for pause, about in zip(pauses, expected, strict=True):
            base = about - 10.0 if about > 10.0 else about
            assert base * 0.8 <= pause - (about - base) <= base * 1.2


@in_virtual_time
async def test_who_lost_the_queue_reads_no_more() -> None:
    """Either by a read or when it takes the lock."""
    async with script() as (it, enode):
        with pytest.raises(Fenced):
            await Feed(it, enode, [Fenced("somebody else has it")]).run()
        assert len(enode.asked) == 1


@in_virtual_time
async def test_an_offset_that_is_not_stored_is_jumped_from_at_once() -> None:
    """To the oldest message if the next one has expired, to the end if the log was lost."""
    for at, goes_on_at in ((5, 20), (20, 30), (40, 30)):
        async with script() as (it, enode):
            enode.offsets["g", 2] = at
            feed = Feed(it, enode, [OutOfRange(begin_offset=20, end_offset=30)])
            await feed.run(0.01)
            assert [one.from_offset for one in enode.asked] == [at, goes_on_at]
            assert feed.cursor.committed_offset == min(at, goes_on_at)


@in_virtual_time
async def test_that_messages_were_deleted_by_age_is_told_so_that_the_group_goes_on_behind_them() -> None:
    """With the next delivery, or in a separate one if there is none."""
    async with script() as (it, enode):
        enode.offsets["g", 2] = 5
        answers: list[FetchedBatches | OrtooError] = [
            OutOfRange(begin_offset=20, end_offset=20),
            FetchedBatches((), 20, 20),
            fetched(stored(20, "a")),
        ]
        assert await Feed(it, enode, answers).run() == [told(5, 20), whole(stored(20, "a"))]


@in_virtual_time
async def test_a_queue_whose_end_was_cut_off_begins_again() -> None:
    """The client has messages whose offsets are used again for others. Without such messages nothing is restarted."""
    async with script() as (it, enode):
        cut = OutOfRange(begin_offset=0, end_offset=4)
        with pytest.raises(Fenced, match="queue t/e/2 ends at offset 4, but messages up to 5 were delivered"):
            await Feed(it, enode, [fetched(stored(3, "a", "b")), cut]).run()
        enode.offsets["g", 2] = 5
        assert await Feed(it, enode, [cut, fetched(stored(4, "a"))]).run() == [whole(stored(4, "a"))]


@in_virtual_time
async def test_damaged_messages_are_read_three_times_and_then_passed_over_with_the_reason() -> None:
    """Non-matching messages before them are reported first; the next damage has three reads again."""
    async with script() as (it, enode):
        loss, later = (DataLoss("a bad disk", begin_offset=at, end_offset=at + 2) for at in (5, 8))
        good = stored(7, "a")
        answers: list[FetchedBatches | OrtooError] = [
            fetched(stored(3, "b", "b"), end_offset=20),
            *[loss] * 3,
            fetched(good, end_offset=20),
            *[later] * 3,
        ]
        feed = Feed(it, enode, answers, message_filter=compile_filter("a", ""))
        assert await feed.run() == [told(3, 5), told(5, 7, loss), whole(good), told(8, 10, later)]
        assert [one.from_offset for one in enode.asked] == [3, 5, 5, 5, 7, 8, 8, 8, 10]
        at_s = enode.asked_at_s
        assert at_s[4] == at_s[3]
    async with script() as (it, enode):
        enode.offsets["g", 2] = 0
        first = DataLoss("a bad disk", end_offset=1)
        assert await Feed(it, enode, [first] * 3).run() == [told(0, 1, first)]


@in_virtual_time
async def test_only_reads_of_what_is_damaged_count_before_it_is_passed_over() -> None:
    """An enode that was unreachable for long before the first or between them has not read it."""
    async with script() as (it, enode):
        loss, away, batch = DataLoss("a bad cable", begin_offset=3, end_offset=5), Unavailable("away"), stored(3, "a")
        feed = Feed(
            it, enode, [*[away] * 5, loss, away, loss, fetched(batch), *[loss] * 2, away, fetched(stored(4, "a"))]
        )
        assert await feed.run() == [whole(batch), whole(stored(4, "a"))]


@in_virtual_time
async def test_damage_of_which_nobody_knows_how_far_it_goes_is_never_passed_over() -> None:
    """It is read again and again, as is anything that an enode refuses permanently: an operator may repair it."""
    for error in (DataLoss("a bad disk", end_offset=3), DataLoss("a bad disk"), Forbidden("no")):
        async with script() as (it, enode):
            batch = stored(3, "a")
            assert await Feed(it, enode, [*[error] * 7, fetched(batch)]).run() == [whole(batch)]
            assert [one.from_offset for one in enode.asked] == [3] * 8 + [4]
