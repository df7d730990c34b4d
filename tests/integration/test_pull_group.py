"""Several pull consumers of one group against a real cluster: assignments, locks, order, crashes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from ortoo.client import AllocationStrategy, Client, PullConsumer, Queue, ReceivedMessage, connect
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.v1 import consumer_pb2_grpc, namesrv_pb2, pull_pb2, topic_pb2
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster
from tests.integration.pull_group import PROMPT, beside, disjoint, only_queue, prompt, send, until
from tests.own_time import own_time

QUEUES = 8


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[InProcessCluster]:
    """One of each role, with the topic t of eight queues; a test that hangs is ended."""
    async with asyncio.timeout(60), open_cluster(tmp_path) as opened:
        await opened.create_topic("t", queues=QUEUES)
        yield opened


@pytest.fixture
async def mq(cluster: InProcessCluster) -> AsyncIterator[Client]:
    """A client that is in no group."""
    async with connect(cluster.address) as opened:
        yield opened


class Member:
    """A client of its own with one pull consumer, which the test may end at any time."""

    def __init__(self, address: str, client_id: str, **changes: object) -> None:
        self._parts = AsyncExitStack()
        self._address = address
        self._client_id = client_id
        self._settings = prompt(**changes)
        self.consumer: PullConsumer

    async def join(self) -> PullConsumer:
        """Connect and join."""
        mq = await self._parts.enter_async_context(connect(self._address, client_id=self._client_id))
        self.consumer = await self._parts.enter_async_context(mq.pull_consumer("g", "t", self._settings))
        return self.consumer

    async def leave(self) -> None:
        """Leave gracefully."""
        await self._parts.aclose()


async def test_members_share_queues_as_soon_as_one_joins_or_leaves(cluster: InProcessCluster) -> None:
    """E-042, E-043: one consumer has all queues. A second one gets half at once, not after 20 s, until it leaves."""
    first, second = Member(cluster.address, "a"), Member(cluster.address, "b")
    one = await first.join()
    await until(lambda: len(one.queues) == QUEUES)
    async with own_time() as taken:
        two = await second.join()
        await until(lambda: disjoint([one, two], QUEUES) and len(one.queues) == len(two.queues))
        assert max(one.queues) < min(two.queues), "averagely gives the first member the first block"
        await second.leave()
        await until(lambda: len(one.queues) == QUEUES)
    assert taken.seconds < 15.0
    await first.leave()


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [(AllocationStrategy.CIRCLE, [0, 2, 4, 6]), (AllocationStrategy.CONSISTENT_HASH, None)],
)
async def test_the_group_shares_by_the_strategy_it_names(
    cluster: InProcessCluster, strategy: AllocationStrategy, expected: list[int] | None
) -> None:
    """E-122, E-123: the assignment is complete and disjoint with each strategy."""
    members = [Member(cluster.address, name, strategy=strategy) for name in ("a", "b")]
    consumers = [await it.join() for it in members]
    await until(lambda: disjoint(consumers, QUEUES))
    if expected is not None:
        await until(lambda: [queue.queue_id for queue in consumers[0].queues] == expected)
    for member in members:
        await member.leave()


async def test_configured_queues_are_taken_and_no_others(cluster: InProcessCluster) -> None:
    """E-124: each consumer takes the queues that it names."""
    wanted = Queue("t", "enode-0", 5)
    member = Member(cluster.address, "a", strategy=AllocationStrategy.CONFIG, configured_queues=(wanted,))
    consumer = await member.join()
    await until(lambda: consumer.queues == (wanted,))
    await member.leave()


async def test_after_random_joins_and_leaves_every_queue_has_one_owner(cluster: InProcessCluster) -> None:
    """E-125: whenever the group is stable, the queues of all its consumers are all queues, each once."""
    randomness = Randomness(5)
    present: dict[str, Member] = {}
    for step in range(24):
        name = f"m{randomness.below(6)}"
        if name in present:
            await present.pop(name).leave()
        else:
            present[name] = Member(cluster.address, name)
            await present[name].join()
        if step % 6 == 5:
            members = list(present.values())
            await until(lambda members=members: not members or disjoint([it.consumer for it in members], QUEUES))  # type: ignore[misc]
    for member in present.values():
        await member.leave()


async def test_without_notifications_the_timer_settles_it(cluster: InProcessCluster) -> None:
    """E-126, E-049: a group without notifications rebalances at the next timer."""
    stub = consumer_pb2_grpc.ConsumerServiceStub(cluster.channels.channel_to(cluster.address))
    silent = topic_pb2.Group(name="g", consume_enabled=True, notify_members_changed=False)
    await cluster.name_service.PutGroup(namesrv_pb2.PutGroupRequest(group=silent))
    first = Member(cluster.address, "a", rebalance_interval_ms=500)
    second = Member(cluster.address, "b", rebalance_interval_ms=500)
    one, two = await first.join(), await second.join()
    await until(lambda: disjoint([one, two], QUEUES) and len(one.queues) == len(two.queues))
    members = await stub.QueryMembers(pull_pb2.QueryMembersRequest(group="g"))
    assert list(members.client_ids) == ["a", "b"]
    await second.leave()
    await first.leave()


async def test_a_queue_that_somebody_else_has_locked_waits_for_him(cluster: InProcessCluster, mq: Client) -> None:
    """E-144, E-127: it is not consumed until it is unlocked. Then consumption starts at the stored offset."""
    await cluster.create_topic("one", queues=1)
    queue = await only_queue(mq, "one")
    await send(mq, range(10), "one")
    stub = consumer_pb2_grpc.ConsumerServiceStub(cluster.channels.channel_to(cluster.address))
    wire = topic_pb2.Queue(topic="one", enode=queue.enode, queue_id=0)
    granted = await stub.LockQueues(pull_pb2.LockQueuesRequest(group="g", client_id="rival", queues=[wire]))
    (lock,) = granted.granted
    async with mq.pull_consumer("g", "one", PROMPT) as consumer:
        assert await consumer.poll(700) is None
        offset = pull_pb2.ConsumerOffset(queue=wire, offset=6, generation=lock.generation)
        await stub.CommitOffsets(pull_pb2.CommitConsumerOffsetsRequest(group="g", offsets=[offset]))
        await stub.UnlockQueues(pull_pb2.UnlockQueuesRequest(group="g", client_id="rival", queues=[wire]))
        batch = await consumer.poll(10_000)
        assert batch is not None
        assert batch[0].offset == 6


async def test_in_order_each_queue_keeps_its_order_while_members_come_and_go(
    cluster: InProcessCluster, mq: Client
) -> None:
    """E-150, E-133: in three consumers with a rebalance no queue is processed by two at once, or backwards."""
    await send(mq, range(2000), spread=True)
    inside: set[Queue] = set()
    last: dict[Queue, int] = {}
    handled: list[tuple[Queue, int]] = []

    async def handle(message: ReceivedMessage) -> None:
        queue = message.queue
        assert queue not in inside, "two members process one queue"
        assert message.offset > last.get(queue, -1), "a message came again though no consumer failed"
        inside.add(queue)
        try:
            await SystemClock().sleep(0.002)
        finally:
            inside.discard(queue)
        last[queue] = message.offset
        handled.append((queue, message.offset))

    members = [Member(cluster.address, name) for name in ("a", "b", "c")]
    tasks = []
    for count, member in enumerate(members, 1):
        tasks.append(beside((await member.join()).run_in_order(handle)))
        await until(lambda count=count: len(handled) >= 250 * count)  # type: ignore[misc]
    tasks[0].cancel()
    await members[0].leave()
    await until(lambda: len(handled) >= 2000)
    assert len(set(handled)) == 2000
    for task, member in zip(tasks[1:], members[1:], strict=True):
        task.cancel()
        await member.leave()


async def test_a_queue_moves_with_what_is_done_of_it(cluster: InProcessCluster, mq: Client) -> None:
    """E-133, E-109: the new owner starts at the last acknowledged message. Nothing is lost, few come again."""
    await send(mq, range(800), spread=True)
    done: list[bytes] = []

    async def consume(consumer: PullConsumer) -> None:
        async for batch in consumer.batches():
            for message in batch:
                done.append(message.body)
                message.ack()
            await SystemClock().sleep(0.001)

    first, second = Member(cluster.address, "a"), Member(cluster.address, "b")
    tasks = [beside(consume(await first.join()))]
    await until(lambda: len(done) > 100)
    tasks.append(beside(consume(await second.join())))
    await until(lambda: len(set(done)) == 800)
    assert len(done) <= 800 + 32 * QUEUES
    for task, member in zip(tasks, (first, second), strict=True):
        task.cancel()
        await member.leave()


async def test_consuming_goes_on_when_the_snode_starts_again(cluster: InProcessCluster, mq: Client) -> None:
    """E-240, E-106: session and group are opened again. Acknowledged messages do not come again."""
    await send(mq, range(100), spread=True)
    member = Member(cluster.address, "a")
    consumer = await member.join()
    before: set[bytes] = set()
    while len(before) < 100:
        batch = await consumer.poll(10_000)
        assert batch is not None
        before |= set(batch.bodies())
        batch.ack()
    await consumer.commit()
    await cluster.close("snode-0")
    await cluster.open_snode("snode-0")
    await send(mq, range(100, 200), spread=True)
    after: list[bytes] = []
    while len(set(after)) < 100:
        batch = await consumer.poll(20_000)
        assert batch is not None
        after += batch.bodies()
        batch.ack()
    assert set(after) == {b"%d" % n for n in range(100, 200)}
    stub = consumer_pb2_grpc.ConsumerServiceStub(cluster.channels.channel_to(cluster.address))
    await until(lambda: is_member(stub, "a"))
    await member.leave()


async def is_member(stub: consumer_pb2_grpc.ConsumerServiceStub, client_id: str) -> bool:
    answer = await stub.QueryMembers(pull_pb2.QueryMembersRequest(group="g"))
    return client_id in answer.client_ids


async def test_one_enode_that_is_away_does_not_stop_the_others(tmp_path: Path) -> None:
    """E-110: offsets of the other enode's queues are stored while one is down, and its own when it is back."""
    async with asyncio.timeout(60), open_cluster(tmp_path, enodes=2) as cluster:
        await cluster.create_topic("t", queues=2)
        async with connect(cluster.address) as mq, mq.pull_consumer("g", "t", PROMPT) as consumer:
            await until(lambda: len(consumer.queues) == 4)
            await send(mq, range(400), spread=True)
            counts: dict[str, int] = {}
            while sum(counts.values()) < 400:
                batch = await consumer.poll(10_000)
                assert batch is not None
                counts[batch.queue.enode] = counts.get(batch.queue.enode, 0) + len(batch)
                if sum(counts.values()) == 400:
                    await cluster.close("enode-1")
                batch.ack()

            async def stored(enode: str) -> bool:
                offsets = [await consumer.committed(Queue("t", enode, number)) for number in range(2)]
                return sum(it or 0 for it in offsets) == counts[enode]

            await until(lambda: stored("enode-0"))
            await cluster.open_enode("enode-1")
            await until(lambda: stored("enode-1"), 30.0)
