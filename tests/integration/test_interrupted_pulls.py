"""Pulls after sessions that ended without an answer: fewer messages at a time, until a single one is parked."""

import asyncio
from pathlib import Path
from typing import Any

from ortoo.client import connect
from ortoo.common.process.background import Background
from ortoo.v1 import consumer_pb2, pull_pb2
from tests.integration.session_client import SessionClient
from tests.integration.snode_calls import Snode, open_snode_cluster, queue

COUNT = 40


class Puller:
    """A session with the lock of the only queue."""

    def __init__(self, running: Snode, session: SessionClient, generation: int) -> None:
        self.running = running
        self.session = session
        self.generation = generation

    @classmethod
    async def join(cls, running: Snode, session: SessionClient) -> "Puller":
        """Wait until the lock is free, and take it."""
        request = pull_pb2.LockQueuesRequest(group="g", session_id=session.session_id, queues=[queue("t")])
        while not (answer := await running.consumer.LockQueues(request)).granted:
            await running.cluster.clock.sleep(0.01)
        return cls(running, session, answer.granted[0].generation)

    async def pull(self, offset: int, wait_ms: int = 0) -> Any:
        """Pull from an offset."""
        return await self.running.consumer.Pull(
            pull_pb2.PullRequest(
                group="g", queue=queue("t"), offset=offset, wait_ms=wait_ms, generation=self.generation
            )
        )

    async def commit(self, offset: int) -> None:
        """Commit an offset."""
        row = pull_pb2.ConsumerOffset(queue=queue("t"), offset=offset, generation=self.generation)
        await self.running.consumer.CommitOffsets(pull_pb2.CommitConsumerOffsetsRequest(group="g", offsets=[row]))


def count(answer: Any) -> int:
    """The number of messages."""
    return sum(len(batch.rows) // 4 or batch.batch.count for batch in answer.batches)


async def die(running: Snode, offset: int, *, gracefully: bool = False) -> int:
    """Pull from an offset, and end the session; returns the number of messages."""
    async with SessionClient(running, "c") as session:
        answer = await (await Puller.join(running, session)).pull(offset)
        if gracefully:
            await session.say(close=consumer_pb2.CloseSession())
            await session.event("closed")
    return count(answer)


async def test_fewer_messages_come_until_one_is_parked(tmp_path: Path) -> None:
    """32, 32, 2, then 1 of them twice; the dead letter has the attempts, and the queue continues behind it."""
    async with open_snode_cluster(tmp_path) as running, connect(running.cluster.address) as client:
        async with asyncio.timeout(60):
            await running.topic("t")
            await client.admin.groups.update("g", attempts_max=2)
            await running.publish("t", *[b"%d" % number for number in range(COUNT)])
            async with SessionClient(running, "c") as session:
                await (await Puller.join(running, session)).commit(0)
            assert [await die(running, 0) for _ in range(5)] == [32, 32, 2, 1, 1]
            async with SessionClient(running, "c") as session:
                puller = await Puller.join(running, session)
                answer = await puller.pull(0)
                assert (answer.next_offset, count(answer), answer.commit_soon) == (33, 32, False)
                assert answer.batches[0].first_offset + memoryview(answer.batches[0].rows).cast("i")[0] == 1
            letters = [one async for one in client.admin.list_dead_letters("g")]
            assert [(one.message.body, one.reason, one.attempts) for one in letters] == [(b"0", "attempts", 2)]


async def test_the_next_messages_follow_a_commit(tmp_path: Path) -> None:
    """A pull waits for it, and says that it does."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(60), Background("test") as background:
        await running.topic("t")
        await running.publish("t", *[b"x"] * COUNT)
        async with SessionClient(running, "c") as session:
            await (await Puller.join(running, session)).commit(0)
        assert [await die(running, 0) for _ in range(2)] == [32, 32]
        async with SessionClient(running, "c") as session:
            puller = await Puller.join(running, session)
            first = await puller.pull(0)
            assert (count(first), first.commit_soon) == (2, True)
            nothing = await puller.pull(2)
            assert (count(nothing), nothing.next_offset, nothing.commit_soon) == (0, 2, True)
            waiting = background.spawn("pull", puller.pull(2, wait_ms=30_000))
            await puller.commit(2)
            assert count(await waiting) == 2
            await puller.commit(4)
            for offset in range(4, 32, 2):
                assert count(await puller.pull(offset)) == 2
                await puller.commit(offset + 2)
            rest = await puller.pull(32)
            assert (count(rest), rest.commit_soon) == (COUNT - 32, False)


async def test_sessions_that_leave_count_no_attempt(tmp_path: Path) -> None:
    """However often they do."""
    async with open_snode_cluster(tmp_path) as running, connect(running.cluster.address) as client:
        async with asyncio.timeout(60):
            await running.topic("t")
            await client.admin.groups.update("g", attempts_max=2)
            await running.publish("t", b"x")
            async with SessionClient(running, "c") as session:
                await (await Puller.join(running, session)).commit(0)
            assert [await die(running, 0, gracefully=True) for _ in range(4)] == [1] * 4
            assert [await die(running, 0) for _ in range(3)] == [1, 1, 0]
