"""Queue locks over the wire of one enode: their grants, the fencing, and their survival."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from ortoo.common.records.batch import encode
from ortoo.enode.changes.groups import GroupMode
from ortoo.enode.store import lock_table
from ortoo.v1 import enode_locks_pb2, enode_pb2, failure_pb2
from ortoo.verification.servers.lone_enode import SingleEnode, append_batches, open_single_enode, topic

TOPIC = 7 << 31
"""Its locks start at generation 1."""


async def take(
    enode: SingleEnode, owner: str, *queue_ids: int, session_id: str = "", incarnation: str = ""
) -> list[int]:
    """Request locks; return the generations, 0 where they are refused."""
    wishes = [
        enode_locks_pb2.LockRequest(
            group="g", topic_id=TOPIC, queue_id=queue_id, owner=owner, session_id=session_id or owner
        )
        for queue_id in queue_ids
    ]
    answer = await enode.stub.TakeLocks(enode_locks_pb2.TakeLocksRequest(incarnation=incarnation, requests=wishes))
    return [one.generation for one in answer.results]


async def release(enode: SingleEnode, session_id: str, *queue_ids: int) -> list[bool]:
    """Release locks."""
    wishes = [
        enode_locks_pb2.LockRequest(group="g", topic_id=TOPIC, queue_id=queue_id, session_id=session_id)
        for queue_id in queue_ids
    ]
    return list((await enode.stub.ReleaseLocks(enode_locks_pb2.ReleaseLocksRequest(requests=wishes))).released)


async def test_locks_are_granted_one_by_one_and_survive_a_restart(tmp_path: Path) -> None:
    """E-127, E-129, E-130: a batch gets the free subset, foreign unlocks do nothing, and a restart keeps owners."""
    async with open_single_enode(tmp_path, topic(TOPIC)) as enode:
        assert await take(enode, "a", 0, 1) == [1, 1]
        assert await take(enode, "b", 1, 2) == [0, 1]
        assert await release(enode, "b", 1, 2) == [False, True]
        assert await take(enode, "a", 2) == [2]
    async with open_single_enode(tmp_path, topic(TOPIC)) as enode:
        assert await take(enode, "b", 0, 1, 2) == [0, 0, 0]
        assert await take(enode, "a", 0, 1, 2) == [1, 1, 2]
        held = (await enode.stub.QueryLocks(enode_locks_pb2.QueryLocksRequest(group="g", topic_id=TOPIC))).locks
        assert [(lock.queue_id, lock.owner, lock.generation) for lock in held] == [
            (0, "a", 1),
            (1, "a", 1),
            (2, "a", 2),
        ]
        assert await release(enode, "a", 0) == [True]
        assert await take(enode, "b", 0) == [2]


async def test_commits_and_fetches_of_an_older_generation_are_refused(tmp_path: Path) -> None:
    """A previous owner can neither move its offset nor read under its old lock; the new owner can."""
    async with open_single_enode(tmp_path, topic(TOPIC)) as enode:
        await append_batches(enode.running.address, TOPIC, encode([b"x"] * 9, now_ms=1), 1)
        await append_batches(enode.running.address, TOPIC, encode([b"x"] * 3, now_ms=1), 1, queue_id=1)
        [old] = await take(enode, "a", 0)
        await release(enode, "a", 0)
        [new] = await take(enode, "b", 0)
        offsets = [enode_pb2.QueueOffset(queue_id=0, offset=5, generation=old)]
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await enode.stub.CommitOffsets(enode_pb2.CommitOffsetsRequest(topic_id=TOPIC, group="g", offsets=offsets))
        assert refused.value.code() is grpc.StatusCode.ABORTED
        [other] = await take(enode, "b", 1)
        mixed = [*offsets, enode_pb2.QueueOffset(queue_id=1, offset=3, generation=other)]
        answer = await enode.stub.CommitOffsets(
            enode_pb2.CommitOffsetsRequest(topic_id=TOPIC, group="g", offsets=mixed)
        )
        assert list(answer.fenced_queue_ids) == [0]
        call: Any = enode.stub.FetchBatches()
        for generation in (old, new):
            await call.write(enode_pb2.FetchBatchesRequest(topic_id=TOPIC, group="g", generation=generation))
        answers = [await call.read(), await call.read()]
        assert answers[0].failure.kind == failure_pb2.FAILURE_KIND_FENCED
        assert answers[1].next_offset == 9


async def test_a_reset_fences_the_owner_off(tmp_path: Path) -> None:
    """An operator's reset raises the generation: the owner continues only after it takes its lock again."""
    async with open_single_enode(tmp_path, topic(TOPIC)) as enode:
        [generation] = await take(enode, "a", 0)
        reset = [enode_pb2.QueueOffset(queue_id=0, offset=2)]
        await enode.stub.CommitOffsets(
            enode_pb2.CommitOffsetsRequest(topic_id=TOPIC, group="g", offsets=reset, reset=True)
        )
        late = [enode_pb2.QueueOffset(queue_id=0, offset=8, generation=generation)]
        with pytest.raises(grpc.aio.AioRpcError):
            await enode.stub.CommitOffsets(enode_pb2.CommitOffsetsRequest(topic_id=TOPIC, group="g", offsets=late))
        assert await take(enode, "a", 0) == [generation + 1]
        stored = await enode.stub.QueryOffsets(enode_pb2.QueryOffsetsRequest(topic_id=TOPIC, group="g"))
        assert [(item.queue_id, item.offset) for item in stored.offsets] == [(0, 2)]


async def test_a_snode_that_wants_a_lock_hears_when_it_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a lock is released, or its snode disconnects, the snode that was refused is notified at once."""
    monkeypatch.setattr(lock_table, "DETACHED_GRACE_S", 0.1)
    async with open_single_enode(tmp_path, topic(TOPIC)) as enode, asyncio.timeout(60):
        first: Any = enode.stub.Attach()
        second: Any = enode.stub.Attach()
        for call, name in ((first, "one"), (second, "two")):
            await call.write(enode_pb2.AttachRequest(snode=name, incarnation=name))
            assert not (await call.read()).freed
        described = await enode.stub.DescribeStore(enode_pb2.DescribeStoreRequest())
        assert list(described.snodes) == ["one", "two"]
        assert await take(enode, "a", 0, 1, incarnation="one") == [1, 1]
        assert await take(enode, "b", 0, 1, incarnation="two") == [0, 0]
        await release(enode, "a", 0)
        assert [one.queue_id for one in (await second.read()).freed] == [0]
        first.cancel()
        assert [one.queue_id for one in (await second.read()).freed] == [1]
        assert await take(enode, "b", 0, 1, incarnation="two") == [2, 2]


async def test_a_queue_that_is_not_there_fails_alone(tmp_path: Path) -> None:
    """Of requests sent together those for known queues are granted."""
    async with open_single_enode(tmp_path, topic(TOPIC)) as enode:
        wishes = [
            enode_locks_pb2.LockRequest(group="g", topic_id=topic_id, queue_id=0, owner="a", session_id="a")
            for topic_id in (TOPIC + 1, TOPIC)
        ]
        answers = (await enode.stub.TakeLocks(enode_locks_pb2.TakeLocksRequest(requests=wishes))).results
        assert [one.HasField("failure") for one in answers] == [True, False]
        assert answers[1].generation == 1


async def test_a_group_that_pops_is_told_so_of_every_queue(tmp_path: Path) -> None:
    """Also for unknown queues: a retry, once the queue exists, would not help."""
    async with open_single_enode(tmp_path, topic(TOPIC)) as enode:
        await enode.running.store.modes.use(TOPIC, "g", GroupMode.POP)
        wishes = [
            enode_locks_pb2.LockRequest(group="g", topic_id=TOPIC, queue_id=queue_id, owner="a", session_id="a")
            for queue_id in (0, 99)
        ]
        answers = (await enode.stub.TakeLocks(enode_locks_pb2.TakeLocksRequest(requests=wishes))).results
        assert {one.failure.kind for one in answers} == {failure_pb2.FAILURE_KIND_CONFLICT}
