"""Back-off of groups, expiry, dedup ids, delivery modes and priorities, through the client and the command."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ortoo.client import Conflict, ConsumerSettings, Invalid, Message, PopSettings, connect
from ortoo.common.process.clock import SystemClock
from ortoo.v1 import pull_pb2, topic_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster
from ortoo.verification.servers.command import run

CLOCK = SystemClock()
EVERYTHING = ConsumerSettings(from_beginning=True)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[InProcessCluster]:
    """One of each role, with the topic t of one queue; a test that hangs is ended."""
    async with asyncio.timeout(60), open_cluster(tmp_path) as opened:
        await opened.create_topic("t", queues=1)
        yield opened


async def _ortoo(cluster: InProcessCluster, *words: str) -> str:
    """The output of a command."""
    outcome = await run(("ortoo", *words), cluster.address)
    assert outcome.exit_code == 0, outcome.stderr
    return outcome.stdout


async def test_a_groups_back_off_is_used_when_a_message_is_given_back_without_a_delay(
    cluster: InProcessCluster,
) -> None:
    """E-170: the back-off list of the group, changed while its consumer runs. A delay given by the consumer wins."""
    async with connect(cluster.address) as mq:
        async with mq.producer("t") as producer:
            await producer.send(b"a")
        await mq.admin.groups.update("g", retry="list:0,1500ms", in_flight_max=1)
        async with mq.pop_consumer("g", "t") as consumer:
            [message] = await consumer.pop()
            await message.nack()
            [message] = await consumer.pop(wait_ms=1_000)
            began_s = CLOCK.monotonic_s()
            await message.nack()
            [message] = await consumer.pop()
            assert CLOCK.monotonic_s() - began_s >= 1.4
            await mq.admin.groups.update("g", retry="exponential:1h:2h")
            await message.nack(0)
            [message] = await consumer.pop(wait_ms=1_000)
            await message.nack()
            assert await consumer.pop(wait_ms=300) == []
        shown = (await mq.admin.groups.describe("g")).group
        assert (shown.retry, shown.in_flight_max, shown.attempts_max) == ("exponential:3600000:7200000:2", 1, 16)
        with pytest.raises(Invalid, match="retry"):
            await mq.admin.groups.update("g", retry="exponential:2h:1h")


async def test_a_message_given_back_twice_by_offset_is_copied_once(cluster: InProcessCluster) -> None:
    """E-171: a client that lost the answer repeats the call, at once or after a restart. A reset allows a copy."""
    place = topic_pb2.Queue(topic="t", enode="enode-0", queue_id=0)
    request = pull_pb2.NackMessagesRequest(group="g", queue=place, offsets=[0, 1], delay_level=1)

    async def copies() -> int:
        listed = await mq.admin.list_delayed("%RETRY%g")
        return len(listed)

    async with connect(cluster.address) as mq:
        async with mq.producer("t") as producer:
            await (await producer.send_many([b"a", b"b"]))
        await mq.admin.groups.update("g", retry="list:1h")
        request.delay_level = 0
        stub = ConsumerServiceStub(cluster.channels.channel_to(cluster.address))
        first, second = await asyncio.gather(stub.NackMessages(request), stub.NackMessages(request))
        assert first.message_ids == second.message_ids
        assert await copies() == 2
        await cluster.close("enode-0")
        await cluster.open_enode("enode-0")
        async with mq.producer("t") as producer:
            await producer.send(b"c")  # is repeated until the snode knows that the enode is back
        assert (await stub.NackMessages(request, wait_for_ready=True)).message_ids == first.message_ids
        assert await copies() == 2
        await mq.admin.groups.reset_offsets("g", "t", offset=0, force=True)
        await stub.NackMessages(request)
        assert await copies() == 4


async def test_a_message_with_a_dedup_id_is_stored_once(cluster: InProcessCluster) -> None:
    """G4: also over producers and the command. A restart forgets no id, and the receipt names the first message."""
    async with connect(cluster.address) as mq, mq.producer("t") as producer:
        first = await producer.send_once(b"pay 17", "order-17")
        again = await producer.send_once(b"pay 17 again", "order-17")
        assert (first.duplicate, again.duplicate) == (False, True)
        assert (again.queue, again.offset) == (first.queue, first.offset)
        await cluster.close("enode-0")
        await cluster.open_enode("enode-0")
        said = await _ortoo(cluster, "send", "t", "once more", "--dedup-id", "order-17", "--json")
        assert '"duplicate": true' in said
        assert not (await producer.send_once(b"pay 18", "order-18")).duplicate
        with pytest.raises(Invalid, match="send_once"):
            await producer.send(Message(b"x", properties={"DEDUP_ID": "order-17"}))
        stored = [it.message.body async for it in mq.admin.tail("t", from_beginning=True, follow=False)]
        assert stored == [b"pay 17", b"pay 18"]


async def test_expired_messages_reach_no_group_and_stay_readable(cluster: InProcessCluster) -> None:
    """Neither pushed nor pulled nor popped; a tail and reads by offset show them."""
    async with connect(cluster.address) as mq:
        async with mq.producer("t") as producer:
            now_ms = CLOCK.now_ms()
            sent = [Message(b"%d" % n, expire_at_ms=now_ms + 1 if n % 3 else None) for n in range(9)]
            await (await producer.send_many(sent))
        kept = [b"0", b"3", b"6"]
        async with mq.consumer("pushed", "t", EVERYTHING) as consumer:
            found = []
            async for message in consumer:
                found.append(message.body)
                message.ack()
                if len(found) == 3:
                    break
            assert found == kept
        async with mq.pop_consumer("popped", "t") as popping:
            popped = await popping.pop()
            assert [message.body for message in popped] == kept
            for one in popped:
                await one.ack()
        assert (await mq.admin.describe_lag("popped", "t")).lag_messages == 0
        assert len([it async for it in mq.admin.tail("t", from_beginning=True, follow=False)]) == 9


async def test_a_group_that_pops_is_not_pushed_to_until_an_operator_says_so(cluster: InProcessCluster) -> None:
    """The second mode is refused with a remedy; `ortoo group mode` shows and changes it. Consumers must be idle."""
    async with connect(cluster.address) as mq:
        async with mq.producer("t") as producer:
            await (await producer.send_many([b"a", b"b"]))
        async with mq.pop_consumer("g", "t") as popping:
            [first, _] = await popping.pop()
            await first.ack()
            with pytest.raises(Conflict, match="ortoo group mode g t --set offsets"):
                async with mq.consumer("g", "t", EVERYTHING) as consumer:
                    await anext(aiter(consumer))
            with pytest.raises(Conflict, match="in the order of message groups"):
                async with mq.pop_consumer("g", "t", settings=PopSettings(in_order=True)) as other:
                    await other.pop()
            with pytest.raises(Conflict, match="stop them first"):
                await mq.admin.groups.set_delivery_mode("g", "t", "offsets")
        assert "pop" in await _ortoo(cluster, "group", "mode", "g")
        said = await _ortoo(cluster, "group", "mode", "g", "t", "--set", "offsets")
        assert "by offsets now; before: pop" in said
        async with mq.consumer("g", "t", EVERYTHING) as consumer:
            assert (await anext(aiter(consumer))).body == b"b"


async def test_a_producer_puts_priorities_where_pops_look_first(cluster: InProcessCluster) -> None:
    """As RocketMQ's clients do: one queue for each level. Messages without a priority are the least urgent."""
    await cluster.create_topic("urgent", queues=3, message_type=topic_pb2.MESSAGE_TYPE_PRIORITY)
    async with connect(cluster.address) as mq, mq.producer("urgent") as producer:
        sent = [Message(b"0"), *(Message(b"%d" % n, priority=n) for n in (1, 2, 7)), Message(b"0 again", priority=0)]
        receipts = await (await producer.send_many(sent))
        assert [receipt.queue.queue_id for receipt in receipts] == [0, 1, 2, 2, 0]
        async with mq.pop_consumer("g", "urgent") as consumer:
            bodies = [(await consumer.pop(1))[0].body for _ in range(5)]
        assert bodies == [b"2", b"7", b"1", b"0", b"0 again"]
