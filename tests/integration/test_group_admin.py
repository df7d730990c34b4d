"""An operator's calls about groups and clients, seen by a consumer of this library."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ortoo.client import (
    Client,
    ConsumerSettings,
    Invalid,
    NotFound,
    OrtooError,
    PullConsumer,
    ReceivedMessage,
    RetryLater,
    Unsupported,
    blocking,
    connect,
)
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster
from tests.integration.pull_group import PROMPT, beside, only_queue, send, until


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[InProcessCluster]:
    """One of each role, with the topic one of one queue; a test that hangs is ended."""
    async with asyncio.timeout(60), open_cluster(tmp_path) as opened:
        await opened.create_topic("one", queues=1)
        yield opened


@pytest.fixture
async def mq(cluster: InProcessCluster) -> AsyncIterator[Client]:
    """The operator."""
    async with connect(cluster.address) as opened:
        yield opened


async def take(consumer: PullConsumer, count: int) -> list[int]:
    """The next `count` offsets, acknowledged."""
    offsets: list[int] = []
    while len(offsets) < count:
        batch = await consumer.poll(15_000)
        assert batch is not None
        offsets += batch.offsets
        batch.ack()
    return offsets


async def test_simultaneous_changes_of_different_settings_are_kept(mq: Client) -> None:
    """Each change stores its own settings alone, so that none restores an earlier value of another setting."""
    await mq.admin.groups.update("g")
    for number in range(1, 9):
        await asyncio.gather(
            mq.admin.groups.update("g", attempts_max=number), mq.admin.groups.update("g", in_flight_max=number)
        )
        stored = (await mq.admin.groups.describe("g")).group
        assert (stored.attempts_max, stored.in_flight_max) == (number, number)


async def test_a_changed_group_is_declared(cluster: InProcessCluster, mq: Client) -> None:
    """A group that its consumer created keeps its settings, and is declared after an operator's change."""
    await send(mq, range(1), "one")
    async with connect(cluster.address, client_id="a") as own, own.pull_consumer("g", "one", PROMPT) as consumer:
        assert await take(consumer, 1) == [0]
        assert (await mq.admin.groups.describe("g")).group.auto_created
    changed = await mq.admin.groups.update("g", attempts_max=3)
    assert (changed.auto_created, changed.attempts_max, changed.retry) == (False, 3, "classic")


async def test_a_group_goes_back_at_once_and_forward_only_when_forced(cluster: InProcessCluster, mq: Client) -> None:
    """E-191: the connected consumer continues at the new offset. The answer lists every queue."""
    await send(mq, range(20), "one")
    queue = await only_queue(mq, "one")
    async with connect(cluster.address, client_id="a") as own, own.pull_consumer("g", "one", PROMPT) as consumer:
        assert await take(consumer, 20) == list(range(20))
        await consumer.commit()
        (moved,) = await mq.admin.groups.reset_offsets("g", "one", offset=5)
        assert (moved.queue, moved.offset) == (queue, 5)
        assert await take(consumer, 15) == list(range(5, 20))
        await consumer.commit()
        (moved,) = await mq.admin.groups.reset_offsets("g", "one", time_ms=0)
        assert moved.offset == 0
        assert (await take(consumer, 20))[0] == 0
    (moved,) = await mq.admin.groups.reset_offsets("g", "one", offset=3)
    (moved,) = await mq.admin.groups.reset_offsets("g", "one", time_ms=-1)
    assert moved.offset == 3
    (moved,) = await mq.admin.groups.reset_offsets("g", "one", time_ms=-1, force=True)
    assert moved.offset == 20


async def test_a_dry_run_of_a_reset_moves_nothing(cluster: InProcessCluster, mq: Client) -> None:
    """It returns the same as the reset, also with force, and the stored offset stays."""
    await send(mq, range(20), "one")
    async with connect(cluster.address, client_id="a") as own, own.pull_consumer("g", "one", PROMPT) as consumer:
        assert len(await take(consumer, 20)) == 20
        await consumer.commit()
    reset = mq.admin.groups.reset_offsets
    await reset("g", "one", offset=10)
    for target, force in ((5, False), (15, False), (15, True)):
        (tried,) = await reset("g", "one", offset=target, force=force, dry_run=True)
        (stored,) = (await mq.admin.describe_lag("g", "one")).queues
        assert (tried.previous, stored.committed_offset) == (10, 10)
        assert (tried.offset, tried.refused_offset) == ((10, 15) if target == 15 and not force else (target, -1))
    assert (await reset("g", "one", offset=15, force=True))[0].offset == 15


async def test_a_reset_to_the_stored_offset_is_an_event(cluster: InProcessCluster, mq: Client) -> None:
    """A connected consumer that has read further without a commit continues at the stored offset."""
    await send(mq, range(10), "one")
    async with connect(cluster.address, client_id="a") as own, own.pull_consumer("g", "one", PROMPT) as consumer:
        assert await take(consumer, 10) == list(range(10))
        await consumer.commit()
        await mq.admin.groups.reset_offsets("g", "one", offset=4)
        batch = await consumer.poll(15_000)
        assert batch is not None
        assert batch.offsets[0] == 4
        (moved,) = await mq.admin.groups.reset_offsets("g", "one", offset=4)
        assert (moved.previous, moved.offset) == (4, 4)
        assert (await take(consumer, 6))[0] == 4


async def test_a_number_that_cannot_be_an_offset_is_refused(mq: Client) -> None:
    """A time in milliseconds would otherwise skip all messages. The message shows the time."""
    await send(mq, range(3), "one")
    for force in (False, True):
        with pytest.raises(Invalid, match=r"largest offset is 3; if you mean the time 2026-11-28T\d\d:") as refused:
            await mq.admin.groups.reset_offsets("g", "one", offset=1_795_834_762_327, force=force)
        assert refused.value.field == "offset"


async def test_a_group_is_described_when_a_topic_that_its_members_want_is_gone(mq: Client) -> None:
    """A missing topic does not fail the call: it shows the group members, and the progress in the existing topics."""
    await mq.admin.create_topic("going", queue_count=1)
    async with mq.pull_consumer("g", ["one", "going"], PROMPT) as consumer:
        await until(lambda: {queue.topic for queue in consumer.queues} == {"one", "going"})
        await mq.admin.delete_topic("going")
        described = await mq.admin.groups.describe("g")
        assert [one.topic for one in described.progress] == ["one"]
        assert len(described.members) == 1


async def test_resets_that_cannot_be_are_named(mq: Client) -> None:
    """E-192: an unknown topic, a group without offsets, no target and two targets."""
    with pytest.raises(NotFound):
        await mq.admin.groups.reset_offsets("g", "nowhere", offset=0)
    for wrong in ({}, {"offset": 1, "time_ms": 1}):
        with pytest.raises(OrtooError, match="one of"):
            await mq.admin.groups.reset_offsets("g", "one", **wrong)  # type: ignore[arg-type]


async def test_a_clone_has_the_offsets_of_its_source(cluster: InProcessCluster, mq: Client) -> None:
    """E-114: the new group starts at the offsets of the other one."""
    await send(mq, range(10), "one")
    async with mq.pull_consumer("g", "one", PROMPT) as consumer:
        await take(consumer, 10)
    await send(mq, range(3), "one")
    (copied,) = await mq.admin.groups.clone_offsets("g", "copy", "one")
    assert copied.offset == 10
    async with mq.pull_consumer("copy", "one", PROMPT) as consumer:
        assert await take(consumer, 3) == [10, 11, 12]


async def test_a_client_says_what_it_does(cluster: InProcessCluster, mq: Client) -> None:
    """E-193, E-195: its queues and offsets as the client reports them, its stacks. An unknown client is named."""
    await send(mq, range(10), "one")
    queue = await only_queue(mq, "one")
    async with connect(cluster.address, client_id="a") as own, own.pull_consumer("g", "one", PROMPT) as consumer:
        batch = await consumer.poll(15_000)
        assert batch is not None
        batch[0].ack()
        told = await mq.admin.groups.describe_client("a", "g")
        (item,) = told.queues
        assert (item.group, item.queue, item.offset, item.next_offset) == ("g", queue, 1, 10)
        assert (item.held_messages, item.locked, told.failure) == (9, True, "")
        assert told.properties["language"] == "python"
        assert "task member of g:balance" in await mq.admin.groups.print_stack("a")
        assert [it.client_id for it in await mq.admin.groups.list_clients("g")] == ["a"]
        (member,) = (await mq.admin.groups.describe("g")).members
        assert (member.client_id, member.topics, member.pushed) == ("a", ("one",), False)
        assert await mq.admin.groups.list_topic_groups("one") == ["g"]
        with pytest.raises(Unsupported, match="no handler"):
            await mq.admin.groups.consume_directly("a", "g", queue, 3, b"x")
    with pytest.raises(NotFound):
        await mq.admin.groups.describe_client("a", "g")
    with pytest.raises(NotFound):
        await mq.admin.groups.list_consumers("g")


async def test_one_message_is_processed_directly(cluster: InProcessCluster, mq: Client) -> None:
    """E-157: the handler processes it at once, and its outcome and duration are returned. No offset moves."""
    queue = await only_queue(mq, "one")
    seen: list[tuple[int, bytes]] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append((message.offset, message.body))
        if message.body == b"bad":
            raise RetryLater
        await cluster.clock.sleep(0.03)

    async with connect(cluster.address, client_id="a") as own, own.pull_consumer("g", "one", PROMPT) as consumer:
        running = beside(consumer.run_in_order(handle))
        await until(lambda: consumer.queues == (queue,))
        begun_s = cluster.clock.monotonic_s()
        good = await mq.admin.groups.consume_directly("a", "g", queue, 42, b"good")
        middle_s = cluster.clock.monotonic_s()
        bad = await mq.admin.groups.consume_directly("a", "g", queue, 43, b"bad")
        end_s = cluster.clock.monotonic_s()
        assert (good.succeeded, good.error, good.orderly) == (True, "", True)
        assert 30 <= good.duration_ms <= (middle_s - begun_s) * 1000 + 1
        assert bad.duration_ms <= (end_s - middle_s) * 1000 + 1
        assert bad.succeeded is False
        assert "RetryLater" in bad.error
        assert seen == [(42, b"good"), (43, b"bad")]
        assert consumer.position(queue) == 0
        assert (await mq.admin.describe_lag("g", "one")).queues[0].committed_offset == 0
        running.cancel()


async def test_a_topic_grows(mq: Client) -> None:
    """Queues are added, and removed for producers only; consumers share the new ones."""
    changed = await mq.admin.update_topic("one", read_queue_count=3, write_queue_count=2)
    (placement,) = changed.placements
    assert (placement.read_queue_count, placement.write_queue_count) == (3, 2)
    assert (await mq.admin.update_topic("one", permission="read_only")).permission == "read_only"
    with pytest.raises(OrtooError):
        await mq.admin.update_topic("one", read_queue_count=1)


async def test_the_blocking_calls_do_the_same(cluster: InProcessCluster, mq: Client) -> None:
    """Groups and clients are described, changed and reset, and a push handler runs in threads."""
    await send(mq, range(10), "one")

    def use() -> tuple[list[bytes], int, int, list[str]]:
        with blocking.connect(cluster.address, client_id="me") as own:
            seen: list[bytes] = []
            with own.consumer("g", "one", ConsumerSettings(from_beginning=True)) as consumer:

                def handle(message: ReceivedMessage) -> None:
                    seen.append(message.body)
                    if len(seen) == 10:
                        consumer.stop()

                consumer.run(handle)
            threshold = own.admin.groups.update("g", slow_consumer_threshold_messages=9)
            (moved,) = own.admin.groups.reset_offsets("g", "one", offset=2)
            own.admin.update_topic("one", read_queue_count=2)
            described = own.admin.groups.describe("g")
            clients = [it.client_id for it in own.admin.groups.list_clients()]
            assert described.group.slow_consumer_threshold_messages == threshold.slow_consumer_threshold_messages
            return seen, threshold.slow_consumer_threshold_messages, moved.offset, clients

    seen, threshold, offset, clients = await asyncio.to_thread(use)
    assert seen == [b"%d" % n for n in range(10)]
    assert (threshold, offset) == (9, 2)
    assert "me" not in clients, "a client that only pushes and queries has no session of its own"
