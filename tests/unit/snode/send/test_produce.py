"""One producer's stream."""

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from ortoo.common.errors import Invalid, Overloaded, Unavailable
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.memory_budget import MemoryBudget
from ortoo.common.records.batch import encode
from ortoo.common.records.message import Message
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.enodes.link import FlushMode
from ortoo.snode.send.batch_stream import ProduceResult, ProduceStream
from ortoo.snode.topics.creation import ProducerTopics
from tests.unit.snode.fake_enode import FakeEnode

BATCH = encode([b"x" * 100], now_ms=1)


def stream_to(enode: FakeEnode, **limits: Any) -> ProduceStream:
    """A stream whose topics are all known."""
    memory = MemoryBudget().share("produce streams")
    return ProduceStream(enode.directory(), cast(ProducerTopics, None), enode.links(), memory, SystemClock(), **limits)


async def answers_of(stream: ProduceStream) -> list[ProduceResult]:
    """All answers until the end."""
    answers: list[ProduceResult] = []
    while ready := await stream.next_results():
        answers += ready
    return answers


async def test_answers_of_a_queue_come_in_order_even_when_one_is_refused() -> None:
    """A batch that is refused at once is answered after the earlier ones of its queue, not before."""
    enode = FakeEnode()
    stream = stream_to(enode)
    enode.gate.clear()
    queue = Queue("t", "e", 0)
    await stream.submit(1, queue, BATCH, FlushMode.DEFAULT)
    await stream.submit(2, queue, SealedBatch(b"junk", 0, 1, 1), FlushMode.DEFAULT)
    await stream.submit(3, queue, BATCH, FlushMode.DEFAULT)
    stream.finish()
    enode.gate.set()
    answers = await answers_of(stream)
    assert [answer.request_id for answer in answers] == [1, 2, 3]
    assert isinstance(answers[1].error, Invalid)
    assert [answer.appended.first_offset for answer in answers if answer.appended] == [0, 1]


async def test_a_full_stream_is_not_read() -> None:
    """Beyond the bound `take` waits until answers have been sent, and then continues (back-pressure)."""
    enode = FakeEnode()
    stream = stream_to(enode, batches_max=2)
    enode.gate.clear()
    async with asyncio.timeout(60), Background("test") as background:
        for number in (1, 2):
            await stream.submit(number, Queue("t", "e", number), BATCH, FlushMode.DEFAULT)
        third = background.spawn("third", stream.submit(3, Queue("t", "e", 0), BATCH, FlushMode.DEFAULT))
        await enode.arrived.wait()
        assert not third.done()
        enode.gate.set()
        await stream.next_results()
        await third


async def test_the_time_of_a_batch_is_that_from_its_arrival_to_its_answer() -> None:
    """It contains the time in which the enode does not answer."""
    enode, clock, answered = FakeEnode(), SystemClock(), list[tuple[str, float]]()
    stream = stream_to(enode, on_answered=lambda status, latency_s: answered.append((status, latency_s)))
    enode.gate.clear()
    begun_s = clock.monotonic_s()
    await stream.submit(1, Queue("t", "e", 0), BATCH, FlushMode.DEFAULT)
    arrived_s = clock.monotonic_s()
    await clock.sleep(0.05)
    waited_s = clock.monotonic_s() - arrived_s
    stream.finish()
    enode.gate.set()
    await answers_of(stream)
    [(status, latency_s)] = answered
    assert status == "OK"
    assert waited_s <= latency_s <= clock.monotonic_s() - begun_s


async def test_one_queue_does_not_wait_for_another() -> None:
    """A queue whose enode refuses is answered while another's batch is still in flight."""
    enode = FakeEnode()
    stream = stream_to(enode)
    enode.gate.clear()
    await stream.submit(1, Queue("t", "e", 0), BATCH, FlushMode.DEFAULT)
    await stream.submit(2, Queue("t", "e9", 0), BATCH, FlushMode.DEFAULT)
    assert [answer.request_id for answer in await stream.next_results()] == [2]
    enode.gate.set()
    stream.finish()
    assert [answer.request_id for answer in await answers_of(stream)] == [1]


async def test_errors_of_the_enode_reach_the_producer() -> None:
    """Overloaded and Unavailable are passed on unchanged."""
    enode = FakeEnode()
    enode.refusals.extend([Overloaded("slow down", retry_after_ms=5), Unavailable("gap")])
    stream = stream_to(enode)
    for number in (1, 2):
        await stream.submit(number, Queue("t", "e", 0), BATCH, FlushMode.DEFAULT)
    stream.finish()
    assert [type(answer.error) for answer in await answers_of(stream)] == [Overloaded, Unavailable]


async def test_the_columns_say_whether_a_batch_is_delayed() -> None:
    """For any envelope of the producer, the enode gets what the columns have (G6)."""
    enode = FakeEnode()
    stream = stream_to(enode)
    delayed = encode([Message(b"x", deliver_at_ms=5)], now_ms=1)
    for number, batch in enumerate([delayed, replace(delayed, delayed=False), replace(BATCH, delayed=True)]):
        await stream.submit(number, Queue("t", "e", 0), batch, FlushMode.DEFAULT)
    stream.finish()
    await answers_of(stream)
    assert [batch.delayed for batch in enode.seen] == [True, True, False]


async def test_the_end_carries_its_error_after_the_last_answer() -> None:
    """Taken batches are answered first, then the stream's own error is raised."""
    enode = FakeEnode()
    stream = stream_to(enode)
    await stream.submit(1, Queue("t", "e", 0), BATCH, FlushMode.DEFAULT)
    stream.finish(Unavailable("stopping"))
    assert len(await stream.next_results()) == 1
    with pytest.raises(Unavailable, match="stopping"):
        await stream.next_results()
