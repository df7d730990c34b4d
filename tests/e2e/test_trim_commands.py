"""`ortoo topic trim` and `ortoo topic purge`, with consumers of each kind connected, and the errors of both."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from ortoo.client import Client, ConsumerSettings, Invalid, Queue, Unavailable, connect
from ortoo.verification.servers import command
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster


async def typed(cluster: InProcessCluster, *words: str) -> command.CommandResult:
    """The result of a command."""
    return await command.run(["ortoo", *words], cluster.address, timeout_s=120)


async def bodies(mq: Client) -> list[bytes]:
    """All readable messages of the topic."""
    return [one.message.body async for one in mq.admin.tail("t", from_beginning=True, follow=False)]


async def test_a_topic_is_trimmed_by_offset_and_by_time_and_purged(tmp_path: Path) -> None:
    """A dry run changes nothing. Messages behind the target stay. Delayed messages and other topics are untouched."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        await mq.admin.create_topic("t", queue_count=1)
        async with mq.producer("t") as producer:
            for number in range(6):
                await producer.send(b"%d" % number)
        last_ms = [one.stored_at_ms async for one in mq.admin.tail("t", from_beginning=True, follow=False)][-1]
        while cluster.clock.now_ms() <= last_ms:
            await cluster.clock.sleep(0.001)
        later_ms = cluster.clock.now_ms()
        async with mq.producer("t") as producer:
            await producer.send(b"6")
        tried = await typed(cluster, "topic", "trim", "t", "--before", "2", "--dry-run", "--json")
        row = {"previous_begin_offset": "0", "begin_offset": "2", "end_offset": "7"}
        assert json.loads(tried.stdout).items() >= row.items()
        assert await bodies(mq) == [b"%d" % number for number in range(7)]
        done = await typed(cluster, "topic", "trim", "t", "--before", "2")
        assert "t: 2 messages in 1 queue are now unreadable" in done.stdout
        assert await bodies(mq) == [b"2", b"3", b"4", b"5", b"6"]
        at = datetime.fromtimestamp(later_ms / 1000, UTC).isoformat()
        await typed(cluster, "topic", "trim", "t", "--before", at)
        assert await bodies(mq) == [b"6"]
        assert (await typed(cluster, "send", "t", "later", "--delay", "1h")).exit_code == 0
        assert "1 message in" in (await typed(cluster, "topic", "purge", "t")).stdout
        assert await bodies(mq) == []
        assert len(await mq.admin.list_delayed("t")) == 1
        again = await typed(cluster, "topic", "purge", "t")
        assert again.stdout == "t: 0 messages in 0 queues are now unreadable\n"
        wrong = await typed(cluster, "topic", "trim", "t", "--before", "99")
        assert wrong.exit_code == 1
        assert "beyond the end of every queue" in wrong.stderr
        with pytest.raises(Invalid, match="is not a readable queue"):
            await mq.admin.trim_topic("t", offsets={Queue("t", "enode-0", 9): 1})


async def test_connected_consumers_get_nothing_that_was_purged(tmp_path: Path) -> None:
    """A push consumer whose snode has read ahead continues with the next message, and so does a group that pops."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq, asyncio.timeout(120):
        await mq.admin.create_topic("t", queue_count=1)
        for group in ("pushed", "idle"):
            await mq.admin.put_group(group)
        async with mq.producer("t") as producer:
            for _ in range(2_000):
                producer.enqueue_nowait(b"x" * 2_000)
            await producer.flush()
        settings = ConsumerSettings(from_beginning=True)
        async with mq.pop_consumer("popped", "t") as popping, mq.consumer("pushed", "t", settings) as pushing:
            held = await popping.pop(4)
            received = await anext(aiter(pushing))
            assert (len(held), received.offset) == (4, 0)
            await mq.admin.purge_topic("t")
            async with mq.producer("t") as producer:
                await producer.send(b"after")
            while received.body != b"after":
                received.ack()
                received = await anext(aiter(pushing))
            received.ack()
            [popped] = await popping.pop(8)
            assert popped.body == b"after"
            await popped.ack()
            for message in held:
                await message.ack()
        for group in ("pushed", "popped"):
            while (lag := await mq.admin.describe_lag(group, "t")).lag_messages:
                await cluster.clock.sleep(0.05)
            assert [one.committed_offset for one in lag.queues] == [2_001]
            assert lag.by_state.lost == 0


async def test_nothing_is_trimmed_while_an_enode_is_away(tmp_path: Path) -> None:
    """A repeated call trims all queues, so that a topic is not left half trimmed without notice."""
    async with open_cluster(tmp_path, enodes=2) as cluster, connect(cluster.address) as mq, asyncio.timeout(120):
        await mq.admin.create_topic("t", queue_count=1)
        async with mq.producer("t") as producer:
            await producer.send_many([b"x"] * 8)
        await cluster.close("enode-1")
        with pytest.raises(Unavailable, match="enode-1 cannot be reached now; nothing was trimmed"):
            await mq.admin.purge_topic("t")
        begins = [one.begin_offset for one in (await mq.admin.describe_topic("t")).queues]
        assert begins == [0]


async def test_the_logs_have_the_topic_and_the_number_of_messages(tmp_path: Path) -> None:
    """One line of the snode, and one of the enode. A dry run writes none."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq, asyncio.timeout(120):
        await mq.admin.create_topic("t", queue_count=1)
        async with mq.producer("t") as producer:
            await producer.send_many([b"x"] * 8)
        with capture_logs() as logs:
            await mq.admin.purge_topic("t", dry_run=True)
            assert [one for one in logs if one["event"].startswith("topic_trim")] == []
            await mq.admin.purge_topic("t")
    asked, done = (one for one in logs if one["event"].startswith("topic_trim"))
    assert (asked["event"], asked["topic"]) == ("topic_trim_requested", "t")
    assert "user" in asked
    assert (done["event"], done["topic"], done["messages"]) == ("topic_trimmed", "t", 8)
