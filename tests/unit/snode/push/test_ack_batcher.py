"""Acknowledgements in flight to the enode."""

import asyncio
import itertools
from typing import Any

from ortoo.common.errors import Fenced, Forbidden, Unavailable
from ortoo.common.process.background import Background
from ortoo.common.process.randomness import Randomness
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.push.offset_commits import OffsetCommitBatcher
from ortoo.verification.time.virtual_time import in_virtual_time, running_clock
from tests.unit.snode.fake_enode import FakeEnode

A, B = Queue("t", "e", 0), Queue("t", "e", 1)


def batcher_to(
    enode: FakeEnode, durable: list[tuple[Queue, int, int]], fenced: list[tuple[Queue, int]] | None = None
) -> OffsetCommitBatcher:
    """A batcher of group g."""
    return OffsetCommitBatcher(
        "e",
        77,
        "g",
        enode.links(),
        lambda *what: durable.append(what),
        lambda queue, generation: fenced.append((queue, generation)) if fenced is not None else None,
        clock=running_clock(),
        randomness=Randomness(1),
    )


@in_virtual_time
async def test_while_a_commit_is_in_flight_only_the_newest_offsets_gather() -> None:
    """A hundred acknowledgements behind one commit make one further commit with the newest of each queue."""
    enode = FakeEnode()
    durable: list[tuple[Queue, int, int]] = []
    batcher = batcher_to(enode, durable)
    enode.gate.clear()
    async with asyncio.timeout(60), Background("test") as background:
        batcher.put(A, 1, 5)
        drained = background.spawn("drain", batcher.drain())
        await enode.arrived.wait()
        for offset in range(2, 101):
            batcher.put(A, offset, 5)
            batcher.put(B, offset * 2, 5)
        enode.gate.set()
        await drained
    assert enode.commits == [{0: 1}, {0: 100, 1: 200}]
    assert durable == [(A, 1, 5), (A, 100, 5), (B, 200, 5)]


@in_virtual_time
async def test_an_enode_that_is_away_is_asked_again_with_the_newest() -> None:
    """A commit that failed temporarily is repeated; an offset that came meanwhile wins."""
    enode = FakeEnode()
    durable: list[tuple[Queue, int, int]] = []
    batcher = batcher_to(enode, durable)
    enode.commit_refusals.append(Unavailable("away"))
    batcher.put(A, 1, 5)
    async with asyncio.timeout(60):
        await batcher.drain()
    assert enode.commits == [{0: 1}, {0: 1}]
    assert durable == [(A, 1, 5)]


@in_virtual_time
async def test_a_fenced_commit_is_dropped() -> None:
    """If a newer owner has the queue the offset is not stored, and its storage is not reported."""
    enode = FakeEnode()
    durable: list[tuple[Queue, int, int]] = []
    fenced: list[tuple[Queue, int]] = []
    batcher = batcher_to(enode, durable, fenced)
    enode.commit_refusals.append(Fenced())
    batcher.put(A, 1, 5)
    batcher.put(B, 1, 5, 3)
    await batcher.drain()
    assert (durable, fenced) == ([], [(A, 0), (B, 3)])
    assert enode.offsets == {}


@in_virtual_time
async def test_a_queue_that_is_fenced_alone_is_told_with_its_generation() -> None:
    """Of queues committed together only the fenced one is refused; the callback gets its generation."""
    enode = FakeEnode()
    durable: list[tuple[Queue, int, int]] = []
    fenced: list[tuple[Queue, int]] = []
    batcher = batcher_to(enode, durable, fenced)
    enode.locks.fence((77, "g", 0), 8)
    batcher.put(A, 1, 6, 3)
    batcher.put(B, 2, 5, 3)
    await batcher.drain()
    assert durable == [(B, 2, 5)]
    assert fenced == [(A, 3)]


@in_virtual_time
async def test_settled_waits_for_the_queue_alone() -> None:
    """A queue is settled when its own commit is done, whatever else is in flight."""
    enode = FakeEnode()
    batcher = batcher_to(enode, [])
    async with asyncio.timeout(60), Background("test") as background:
        await batcher.wait_until_stored(A)
        enode.gate.clear()
        batcher.put(A, 1, 5)
        drained = background.spawn("drain", batcher.drain())
        await enode.arrived.wait()
        waiting = background.spawn("wait", batcher.wait_until_stored(A))
        await batcher.wait_until_stored(B)
        assert not waiting.done()
        enode.gate.set()
        await waiting
        await drained


@in_virtual_time
async def test_a_forgotten_queue_is_not_committed_again() -> None:
    """After the queue was released, a failed commit is not repeated for it."""
    enode = FakeEnode()
    batcher = batcher_to(enode, [])
    enode.gate.clear()
    enode.commit_refusals.append(Unavailable("away"))
    async with asyncio.timeout(60), Background("test") as background:
        batcher.put(A, 1, 5)
        drained = background.spawn("drain", batcher.drain())
        await enode.arrived.wait()
        batcher.discard(A)
        enode.gate.set()
        await drained
    assert enode.commits == [{0: 1}]


@in_virtual_time
async def test_what_was_put_and_not_sent_yet_is_not_settled_and_can_be_forgotten() -> None:
    """Waiters wait until it is stored, or forgotten."""
    enode = FakeEnode()
    batcher = batcher_to(enode, [])
    async with asyncio.timeout(60), Background("test") as background:
        batcher.put(A, 1, 5)
        waiting = background.spawn("wait", batcher.wait_until_stored(A))
        await running_clock().sleep(1.0)
        assert not waiting.done()
        await batcher.drain()
        await waiting
        batcher.put(A, 2, 5)
        batcher.put(B, 3, 5)
        batcher.discard(A)
        await batcher.drain()
    assert enode.commits == [{0: 1}, {1: 3}]


@in_virtual_time
async def test_a_queue_that_comes_back_while_its_last_commit_is_in_flight_is_committed_as_before() -> None:
    """A refusal from before the release is not reported; later offsets are stored."""
    enode = FakeEnode()
    durable: list[tuple[Queue, int, int]] = []
    fenced: list[tuple[Queue, int]] = []
    batcher = batcher_to(enode, durable, fenced)
    enode.gate.clear()
    enode.locks.fence((77, "g", 0), 8)
    async with asyncio.timeout(60), Background("test") as background:
        batcher.put(A, 1, 5, 7)
        drained = background.spawn("drain", batcher.drain())
        await enode.arrived.wait()
        batcher.discard(A)
        batcher.put(A, 2, 6, 9)
        enode.gate.set()
        await drained
    assert (durable, fenced) == ([(A, 2, 6)], [])


@in_virtual_time
async def test_an_enode_that_stays_away_is_asked_less_and_less_often() -> None:
    """Up to once a second, and from the start after a commit that worked. Permanent refusals are dropped at once."""
    enode = FakeEnode()
    batcher = batcher_to(enode, [])
    clock, at_s = running_clock(), [0.0]
    commit = enode.commit_offsets

    async def noted(*what: Any) -> list[int]:
        at_s.append(clock.monotonic_s())
        if len(at_s) - 1 not in (8, 10):
            raise Unavailable("away")
        return await commit(*what)

    enode.commit_offsets = noted  # type: ignore[assignment,method-assign]
    batcher.on_durable = lambda *_: batcher.put(A, 2, 5) if len(at_s) == 9 else None
    batcher.put(A, 1, 5)
    await batcher.drain()
    pauses = [after - before for before, after in itertools.pairwise(at_s)]
    expected = [0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 0.0, 0.05]
    assert len(pauses) == len(expected)
    for pause, about in zip(pauses, expected, strict=True):
        assert about * 0.8 <= pause <= about * 1.2
    enode.commit_offsets = commit  # type: ignore[method-assign]
    enode.commit_refusals.append(Forbidden("no"))
    batcher.put(A, 3, 5)
    await batcher.drain()
    assert (clock.monotonic_s(), enode.offsets["g", 0]) == (at_s[-1], 2)
