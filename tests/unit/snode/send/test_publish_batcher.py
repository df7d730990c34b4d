"""Single messages in flight to one queue."""

import asyncio

import pytest

from ortoo.common.errors import (
    NOT_ACCEPTED_FIELD,
    Internal,
    Invalid,
    NotFound,
    OrtooError,
    Overloaded,
    Unavailable,
    Unsupported,
)
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.memory_budget import MemoryBudget
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.message import Message
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.enodes.link import AppendedBatch
from ortoo.snode.enodes.request_stream import retrieve_exception
from ortoo.snode.send.publish_batcher import PublishBatcher
from tests.unit.snode.fake_enode import FakeEnode


class Draining(PublishBatcher):
    """Messages count while they wait or are in flight, in every test here (G17)."""

    async def drain(self) -> None:
        """As `in_virtual_time`; at the end no memory is counted."""
        await super().drain()
        assert not self.memory.bytes


def batcher_to(enode: FakeEnode, memory: MemoryBudget | None = None, **limits: float) -> PublishBatcher:
    """A batcher to queue 0."""
    return Draining(
        Queue("t", "e", 0),
        77,
        enode.links(),
        (memory or MemoryBudget(1 << 30)).share("test"),
        SystemClock(),
        Randomness(1),
        **({"timeout_s": 3.0} | limits),  # type: ignore[arg-type]
    )


def put(batcher: PublishBatcher, messages: list[Message], *, may_reroute: bool = False) -> asyncio.Future[int]:
    """Queue messages; the future gives the offset of the first one."""
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def stored(offset: int | OrtooError) -> None:
        if future.done():
            return
        if isinstance(offset, int):
            future.set_result(offset)
        else:
            future.set_exception(offset)

    batcher.put(messages, stored, may_reroute=may_reroute)
    return future


async def test_what_arrives_during_an_append_becomes_one_batch() -> None:
    """Ten requests behind one in flight make one further batch; every caller gets its own offset."""
    enode = FakeEnode()
    batcher = batcher_to(enode)
    enode.gate.clear()
    async with asyncio.timeout(60), Background("test") as background:
        first = put(batcher, [Message(b"0")])
        background.spawn("drain", batcher.drain())
        await enode.arrived.wait()
        others = [put(batcher, [Message(b"a"), Message(b"b")]) for _ in range(10)]
        enode.gate.set()
        assert await first == 0
        assert await asyncio.gather(*others) == list(range(1, 21, 2))
    assert [batch.count for batch in enode.seen] == [1, 20]


async def test_a_lost_answer_does_not_store_twice() -> None:
    """After a lost answer the same batch is sent again, and the enode returns its first offset (G4)."""
    enode = FakeEnode()
    batcher = batcher_to(enode)
    enode.lost_answers = 2
    future = put(batcher, [Message(b"x")])
    await batcher.drain()
    assert future.result() == 0
    assert len(enode.seen) == 3
    assert enode.seen[0] == enode.seen[1] == enode.seen[2]
    assert enode.end(0) == 1


async def test_an_outcome_that_stays_unknown_begins_a_new_sequence() -> None:
    """At the timeout the callers get Unavailable, and later messages have another producer id."""
    enode = FakeEnode()
    batcher = batcher_to(enode, timeout_s=0.0)
    enode.lost_answers = 1
    lost, waiting = put(batcher, [Message(b"x")]), put(batcher, [Message(b"y")])
    await batcher.drain()
    assert isinstance(lost.exception(), Unavailable)
    assert isinstance(waiting.exception(), Unavailable)
    after = put(batcher, [Message(b"z")])
    await batcher.drain()
    assert after.result() == 2
    assert enode.seen[0].producer_id != enode.seen[1].producer_id
    assert enode.seen[1].first_sequence == 0


@pytest.mark.parametrize("second", [NotFound("who?", field="batch.producer_id"), Overloaded("its disk is full")])
async def test_a_refusal_of_the_second_try_says_nothing_about_the_first(second: OrtooError) -> None:
    """The sender is told that the outcome is unknown, and not that the request was refused."""
    enode = FakeEnode()
    batcher = batcher_to(enode, timeout_s=0.1)
    enode.refusals.extend([Unavailable("it ended the stream"), *[second] * 100])
    sent = put(batcher, [Message(b"x")])
    await batcher.drain()
    assert isinstance(sent.exception(), Unavailable)
    assert len(enode.seen) > 1


@pytest.mark.parametrize("second", [Internal("a defect"), Unsupported("it runs an older version")])
async def test_what_may_be_stored_together_is_not_sent_apart(second: OrtooError) -> None:
    """Of two requests whose batch is stored and not answered none is stored again under another producer id."""

    class Losing(FakeEnode):
        async def _append(self, queue_id: int, batch: SealedBatch) -> AppendedBatch:
            if len(self.seen) == 1:
                self.refusals.append(second)
            return await super()._append(queue_id, batch)

    enode = Losing()
    enode.lost_answers = 1
    batcher = batcher_to(enode)
    sent = [put(batcher, [Message(b"a")]), put(batcher, [Message(b"b")])]
    await batcher.drain()
    assert enode.end(0) == 2
    assert [type(one.exception()) for one in sent] == [Unavailable, Unavailable]


async def test_who_has_to_stay_is_answered_in_time_beside_many_who_may_go_elsewhere() -> None:
    """Messages that may move fail at once, which makes space for more of them. Others are still sent in time."""

    class Refusing(FakeEnode):
        async def _append(self, queue_id: int, batch: SealedBatch) -> AppendedBatch:
            self.seen.append(batch)
            if len(self.seen) < 100:
                put(batcher, [Message(b"moves")], may_reroute=True).add_done_callback(retrieve_exception)
            await SystemClock().sleep(0.01)
            raise Overloaded("its disk is full", field=NOT_ACCEPTED_FIELD)

    enode = Refusing()
    batcher = batcher_to(enode, timeout_s=0.05)
    stays = put(batcher, [Message(b"stays")])
    put(batcher, [Message(b"moves")], may_reroute=True).add_done_callback(retrieve_exception)
    async with asyncio.timeout(60), Background("test") as background:
        background.spawn("drain", batcher.drain())
        with pytest.raises(Overloaded):
            await stays
        assert len(enode.seen) < 50


@pytest.mark.parametrize("first", ["was not taken", "may be stored"])
async def test_what_may_go_elsewhere_waits_for_nothing_that_may_not(first: str) -> None:
    """An enode that takes nothing is retried only with the messages bound to it."""
    enode = FakeEnode()
    if first == "may be stored":
        enode.refusals.append(Unavailable("it ended the stream"))
    enode.refusals.extend([Overloaded("its disk is full", field=NOT_ACCEPTED_FIELD)] * 1000)
    batcher = batcher_to(enode)
    async with asyncio.timeout(60), Background("test") as background:
        stays = put(batcher, [Message(b"stays")], may_reroute=first == "may be stored")
        background.spawn("drain", batcher.drain())
        await enode.arrived.wait()
        with pytest.raises(Overloaded) as told:
            await put(batcher, [Message(b"moves")], may_reroute=True)
        assert told.value.field == NOT_ACCEPTED_FIELD
        assert not stays.done()


@pytest.mark.parametrize("refusal", [Unavailable("it is frozen"), Overloaded("bytes wait for its disk")])
async def test_nobody_waits_for_many_times_the_timeout(refusal: OrtooError) -> None:
    """Messages behind a batch that timed out fail with it, and not one batch after another."""
    enode = FakeEnode()
    enode.refusals.extend([refusal] * 1000)
    batcher = batcher_to(enode, timeout_s=0.2)
    waiting = [put(batcher, [Message(b"x" * 600_000)]) for _ in range(5)]
    tries: list[int] = []
    waiting[0].add_done_callback(lambda _: tries.append(len(enode.seen)))
    await batcher.drain()
    await SystemClock().sleep(0)
    assert [type(one.exception()) for one in waiting] == [type(refusal)] + [Unavailable] * 4
    assert tries == [len(enode.seen)]
    stored = put(batcher, [Message(b"x")])
    enode.refusals.clear()
    await batcher.drain()
    assert stored.result() == 0


async def test_only_what_was_never_sent_may_go_elsewhere() -> None:
    """G4: an enode that died with a batch may have stored it, though it takes nothing at the retry."""

    class Dying(FakeEnode):
        async def _append(self, queue_id: int, batch: SealedBatch) -> AppendedBatch:
            if self.seen:
                raise Unavailable("it went away before this was sent", field=NOT_ACCEPTED_FIELD)
            await super()._append(queue_id, batch)
            raise Unavailable("it ended the stream")

    enode = Dying()
    batcher = batcher_to(enode, timeout_s=0.1)
    enode.gate.clear()
    async with asyncio.timeout(60), Background("test") as background:
        sent = put(batcher, [Message(b"sent")], may_reroute=True)
        background.spawn("drain", batcher.drain())
        await enode.arrived.wait()
        waiting = put(batcher, [Message(b"waiting")], may_reroute=True)
        enode.gate.set()
        outcomes = await asyncio.gather(sent, waiting, return_exceptions=True)
    assert [type(one) for one in outcomes] == [Unavailable, Unavailable]
    assert [one.field == NOT_ACCEPTED_FIELD for one in outcomes if isinstance(one, Unavailable)] == [False, True]


async def test_sequences_continue_from_batch_to_batch() -> None:
    """Batches of one batcher have one producer id and a sequence without gaps."""
    enode = FakeEnode()
    batcher = batcher_to(enode)
    for number in range(3):
        put(batcher, [Message(b"x")] * (number + 1))
        await batcher.drain()
    assert [batch.first_sequence for batch in enode.seen] == [0, 1, 3]
    assert len({batch.producer_id for batch in enode.seen}) == 1


@pytest.mark.parametrize("was_away", [False, True])
async def test_a_forgotten_producer_begins_again(*, was_away: bool) -> None:
    """An enode that forgot the idle producer id gets the messages under a new one, also after a failed try."""
    enode = FakeEnode()
    batcher = batcher_to(enode)
    put(batcher, [Message(b"before")])
    await batcher.drain()
    if was_away:
        enode.refusals.append(Unavailable("it went away before this was sent", field=NOT_ACCEPTED_FIELD))
    enode.refusals.append(NotFound(field="batch.producer_id"))
    future = put(batcher, [Message(b"x")])
    await batcher.drain()
    assert future.result() == 1
    assert len({batch.producer_id for batch in enode.seen}) == 2


async def test_a_refusal_is_told_and_the_batcher_goes_on() -> None:
    """A refused batch fails its callers with the reason; the next batch is stored."""
    enode = FakeEnode()
    batcher = batcher_to(enode)
    enode.refusals.append(Invalid("no", field="batch"))
    refused = put(batcher, [Message(b"x")])
    await batcher.drain()
    assert isinstance(refused.exception(), Invalid)
    stored = put(batcher, [Message(b"y")])
    await batcher.drain()
    assert stored.result() == 0


async def test_requests_share_batches_again_when_those_that_go_apart_have_failed() -> None:
    """Three are refused together, and the enode is unreachable when the first is sent alone."""
    enode = FakeEnode()
    batcher = batcher_to(enode, timeout_s=0.05)
    enode.refusals.append(Invalid("one of them"))
    enode.refusals.extend([Unavailable("it is away")] * 100)
    for _ in range(3):
        put(batcher, [Message(b"x")])
    await batcher.drain()
    enode.refusals.clear()
    for _ in range(3):
        put(batcher, [Message(b"y")])
    await batcher.drain()
    assert [stored.batch.count for stored in enode.queues[0]] == [3]


@pytest.mark.parametrize("place", [0, 2_000, 3_999])
async def test_plain_messages_among_others_make_batches_that_fit(place: int) -> None:
    """A plain message has empty rows in the columns of the others, so fewer fit. No batch is refused and sent apart."""
    enode = FakeEnode()
    batcher = batcher_to(enode)
    messages = [Message(b"x" * 228)] * 4_000
    messages[place] = Message(
        b"x", message_group="g", properties={"p": "v"}, message_id="m", born_host="h", trace_context="t", expire_at_ms=9
    )
    sent = [put(batcher, messages[at : at + 10]) for at in range(0, len(messages), 10)]
    await batcher.drain()
    assert [future.result() for future in sent] == list(range(0, len(messages), 10))
    assert len(enode.seen) == 2
    assert len(enode.seen[0].records) > 800_000, "it is filled"


async def test_what_waits_is_bounded() -> None:
    """Beyond the bound senders are throttled, and none of their messages are kept."""
    batcher = batcher_to(FakeEnode(), waiting_bytes_max=1000)
    put(batcher, [Message(b"x" * 900)])
    with pytest.raises(Overloaded):
        put(batcher, [Message(b"x" * 900)])
    await batcher.drain()


async def test_what_a_sender_left_behind_counts_until_it_has_gone() -> None:
    """G17: a sender that cancels releases the call's memory, not the message that waits or is in flight."""
    enode, budget = FakeEnode(), MemoryBudget(1 << 30)
    batcher = batcher_to(enode, budget)
    enode.gate.clear()
    async with asyncio.timeout(60), Background("test") as background:
        sent = put(batcher, [Message(bytes(1000))])
        drained = background.start_future("drain", batcher.drain())
        await enode.arrived.wait()
        waits = put(batcher, [Message(bytes(2000))])
        sent.cancel()
        waits.cancel()
        assert budget.used_bytes > 3000
        enode.gate.set()
        await drained
    assert not budget.used_bytes
