"""Features of consumers with a scenario of their own: retries, resets, transactions, traces, suspension, commits."""

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc

from ortoo.client import (
    CommitVerdict,
    ConsumerSettings,
    HandlerOptions,
    Message,
    PullSettings,
    Queue,
    ReceivedMessage,
    connect,
)
from ortoo.v1 import consumer_pb2, enode_deferred_pb2, namesrv_pb2, producer_pb2, pull_pb2, record_pb2, topic_pb2
from ortoo.v1.producer_pb2_grpc import ProducerServiceStub
from ortoo.verification.servers.cluster import open_cluster
from ortoo.verification.servers.ports import free_ports
from ortoo.verification.servers.scrape import scraped
from tests.integration.pull_group import PROMPT, beside, only_queue, send, until
from tests.integration.push_client import PushClient
from tests.integration.snode_calls import Snode, open_snode_cluster, queue

SECOND_MS = 1_000


async def test_what_was_given_back_is_pushed_after_its_delay_and_once(tmp_path: Path) -> None:
    """E-081: a push session on the retry topic does not get it in any way before the delay has expired."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(60):
        await running.topic("t")
        await running.publish("t", b"a", b"b", b"c")

        async def give_back(offset: int) -> None:
            request = pull_pb2.NackMessagesRequest(group="g", queue=queue("t"), offsets=[offset], delay_level=1)
            await running.consumer.NackMessages(request)

        await give_back(0)  # the group's first one: its topic is created
        retries = consumer_pb2.Subscription(topic="%RETRY%g")
        async with PushClient(running, "g", "t", from_beginning=True, subscriptions=[retries]) as client:
            first = await client.delivery()
            assert first.queue.topic == "%RETRY%g"
            clock = running.cluster.clock
            before_ms = clock.now_ms()
            await give_back(1)
            second = await client.delivery()
            assert (second.first_offset, second.batch.count) == (1, 1)
            assert second.stored_at_ms >= before_ms + SECOND_MS, "it became a message of the topic when it was due"
            assert clock.now_ms() >= before_ms + SECOND_MS
            await give_back(2)
            third = await client.delivery()
            assert (third.first_offset, third.batch.count) == (2, 1), "a message that is retried once comes once"


async def test_a_group_that_goes_back_is_counted(tmp_path: Path) -> None:
    """E-103: the smaller offset is stored, and the enode's counter of such commits grows by one."""
    [port] = free_ports(1)
    address = f"127.0.0.1:{port}"
    async with open_cluster(tmp_path, settings={"enode": {"metrics_address": address}}) as cluster, asyncio.timeout(60):
        running = Snode(cluster)
        await running.topic("t")
        await running.publish("t", *[b"x"] * 100, queue=queue("t"))

        async def commit(offset: int) -> float:
            row = pull_pb2.ConsumerOffset(queue=queue("t"), offset=offset)
            await running.consumer.CommitOffsets(pull_pb2.CommitConsumerOffsetsRequest(group="g", offsets=[row]))
            return (await scraped(address))["ortoo_backward_commits_total"][()]

        assert [await commit(offset) for offset in (10, 100, 100, 50, 60)] == [0, 0, 0, 1, 1]


async def test_an_enodes_name_may_have_any_sign(tmp_path: Path) -> None:
    """E-102: `r1@x` is a valid name. Offsets are kept by enode, topic, group and queue, with any characters."""
    async with open_snode_cluster(tmp_path) as running, asyncio.timeout(40):
        await running.cluster.open_enode("r1@x")
        await running.topic("t", 1)
        rows = [
            pull_pb2.ConsumerOffset(queue=queue("t", 0, enode), offset=offset)
            for enode, offset in (("enode-0", 7), ("r1@x", 9))
        ]
        for row in rows:
            await running.publish("t", *[b"x"] * row.offset, queue=row.queue)
        for group in ("g", "x-g"):
            await running.consumer.CommitOffsets(pull_pb2.CommitConsumerOffsetsRequest(group=group, offsets=rows))
        found = await running.consumer.QueryOffsets(pull_pb2.QueryConsumerOffsetsRequest(group="g", topic="t"))
        assert {one.queue.enode: one.offset for one in found.offsets} == {"enode-0": 7, "r1@x": 9}
        async with PushClient(running, "fresh", "t", from_beginning=True) as client:
            await client.queues(2)
            assert {(await client.delivery()).queue.enode for _ in range(2)} == {"enode-0", "r1@x"}


async def test_a_live_producer_is_asked_and_when_it_dies_another_of_its_group(tmp_path: Path) -> None:
    """E-194: P is asked about an unresolved transaction. After P died, P2 of the same group is asked and decides."""
    quick = {"transaction_check_after_ms": 100, "transaction_check_interval_ms": 100, "transaction_checks_max": 1_000}
    async with open_cluster(tmp_path, settings={"enode": quick}) as cluster, asyncio.timeout(60):
        running = Snode(cluster)
        await running.topic("t")
        watching = producer_pb2.WatchTransactionChecksRequest(producer_group="p")
        first_channel = grpc.aio.insecure_channel(cluster.address)
        first: Any = ProducerServiceStub(first_channel).WatchTransactionChecks(watching)
        assert not (await first.read()).transaction_id
        begun = await running.producer.BeginTransaction(
            producer_pb2.BeginTransactionRequest(
                topic="t", messages=[record_pb2.Message(body=b"half")], producer_group="p"
            )
        )
        asked = await first.read()
        assert (asked.transaction_id, asked.messages[0].body) == (begun.transaction_id, b"half")
        second: Any = running.producer.WatchTransactionChecks(watching)
        assert not (await second.read()).transaction_id
        await first_channel.close()  # it dies without closing
        again = await second.read()
        assert again.transaction_id == begun.transaction_id
        assert again.checks > asked.checks
        await running.producer.EndTransaction(
            producer_pb2.EndTransactionRequest(
                transaction_id=begun.transaction_id, verdict=enode_deferred_pb2.VERDICT_COMMIT
            )
        )
        async with PushClient(running, "g", "t", from_beginning=True) as client:
            assert (await client.delivery()).batch.count == 1
        second.cancel()


async def test_the_trace_topic_has_a_record_of_each_send_and_each_acknowledgement(tmp_path: Path) -> None:
    """E-249: by push, pull and pop, and not by a broadcast.

    Events in the topic itself are not recorded, so that it becomes quiet.
    """
    settings = {"snode": {"trace_topic": "traces"}}
    async with open_cluster(tmp_path, settings=settings) as cluster, asyncio.timeout(60):  # noqa: SIM117
        async with connect(cluster.address) as mq:
            await mq.admin.create_topic("t", queue_count=1)
            await send(mq, range(3))
            async with mq.consumer("push", ["t"], ConsumerSettings(from_beginning=True)) as pushed:
                async for message in pushed:
                    message.ack()
                    if message.offset == 2:
                        break
            async with mq.pull_consumer("pull", ["t"], PROMPT) as pulled:
                batch = await pulled.poll(10_000)
                assert batch is not None
                batch.ack()
            everything = ConsumerSettings(from_beginning=True, broadcast=True)
            async with mq.consumer("broadcast", ["t"], everything) as broadcast:
                async for message in broadcast:
                    message.ack()
                    if message.offset == 2:
                        break
            async with mq.producer("t") as producer:
                await producer.send(Message(b"in an hour", deliver_at_ms=cluster.clock.now_ms() + 3_600_000))
            async with mq.pop_consumer("pop", "t") as popped:
                await send(mq, [b"last"])
                taken = await popped.pop(4, 10_000)
                for one in taken:
                    await one.ack()

            async def records() -> list[dict[str, Any]]:
                return [
                    json.loads(it.message.body)
                    async for it in mq.admin.tail("traces", from_beginning=True, follow=False)
                ]

            def counts(found: list[dict[str, Any]]) -> dict[str, int]:
                totals: dict[str, int] = {}
                for one in found:
                    who = one.get("group", "send")
                    totals[who] = totals.get(who, 0) + one["message_count"]
                return totals

            wanted = {"send": 5, "push": 3, "pull": 3, "pop": len(taken)}

            async def is_whole() -> bool:
                return counts(await records()) == wanted

            await until(lambda: cluster_has(mq, "traces"))
            await until(is_whole)
            found = await records()
            assert {one["topic"] for one in found} == {"t"}
            sends = [one["first_offset"] for one in found if one["kind"] == "send"]
            assert sends.count(3) == 1, "a delayed message has a number of its own, and no offset of the queue"
            consumed = next(one for one in found if one.get("group") == "pull")
            assert (consumed["kind"], consumed["enode"], consumed["first_offset"]) == ("consume", "enode-0", 0)
            await cluster.clock.sleep(0.6)
            assert len(await records()) == len(found)


async def cluster_has(mq: Any, topic: str) -> bool:
    """Whether a topic exists."""
    return any(one.name == topic for one in await mq.admin.list_topics())


async def test_a_push_consumer_is_suspended_and_resumed(tmp_path: Path) -> None:
    """E-147: one queue or everything. The consumer keeps its queues, is not evicted as slow, and loses nothing."""
    async with open_snode_cluster(tmp_path, sweep_interval_s=0.05) as running, asyncio.timeout(60):
        await running.topic("t", 2)
        await running.cluster.name_service.PutGroup(_strict_group())
        async with connect(running.cluster.address) as mq:
            settings = ConsumerSettings(from_beginning=True, ack_interval_ms=20)
            async with mq.consumer("g", ["t"], settings) as consumer:
                await until(lambda: len(consumer.queues) == 2)
                held, free = consumer.queues
                got: dict[Queue, list[int]] = {held: [], free: []}

                async def take() -> None:
                    async for message in consumer:
                        got[message.queue].append(message.offset)
                        message.ack()

                taking = beside(take())
                consumer.suspend(held)
                for number in range(20):
                    for place in (held, free):
                        await running.publish("t", b"%d" % number, queue=_wire(place))
                await until(lambda: len(got[free]) == 20)
                await running.cluster.clock.sleep(0.5)  # longer than the grace of the group, beyond its threshold of 4
                assert got[held] == []
                assert len(consumer.queues) == 2
                consumer.suspend()
                await running.publish("t", b"x", queue=_wire(free))
                await running.cluster.clock.sleep(0.3)
                assert len(got[free]) == 20
                consumer.resume()
                await until(lambda: (len(got[held]), len(got[free])) == (20, 21))
                taking.cancel()
                assert got[held] == list(range(20))
            assert (await mq.admin.describe_lag("g", "t")).lag_messages == 0


def _strict_group() -> namesrv_pb2.PutGroupRequest:
    group = topic_pb2.Group(
        name="g", consume_enabled=True, slow_consumer_threshold_messages=4, slow_consumer_grace_ms=200
    )
    return namesrv_pb2.PutGroupRequest(group=group)


def _wire(place: Queue) -> topic_pb2.Queue:
    return queue(place.topic, place.queue_id, place.enode)


async def test_in_order_a_handler_commits_by_hand(tmp_path: Path) -> None:
    """E-151: held messages are not committed, a roll back redelivers them in order, a commit covers all of them."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq, asyncio.timeout(60):
        await mq.admin.create_topic("one", queue_count=1)
        await send(mq, range(6), "one")
        place = await only_queue(mq, "one")
        seen: list[int] = []
        committed: dict[int, int | None] = {}

        async def handle(message: ReceivedMessage) -> CommitVerdict | None:
            seen.append(message.offset)
            if message.offset == 2:
                return CommitVerdict.COMMIT
            if message.offset == 4 and seen.count(4) == 1:
                return CommitVerdict.ROLLBACK
            if message.offset == 5:
                await consumer.commit()
                committed[5] = await consumer.committed(place)
            return None

        settings = PullSettings(from_beginning=True, commit_first_ms=600_000, long_poll_ms=500)
        async with mq.pull_consumer("g", ["one"], settings) as consumer:
            running = beside(consumer.run_in_order(handle, HandlerOptions(manual_commit=True, suspend_ms=20)))
            await until(lambda: committed != {})
            running.cancel()
        assert seen == [0, 1, 2, 3, 4, 3, 4, 5]
        assert committed == {5: 3}, "a message held after the commit is not stored as done"
        async with mq.pull_consumer("g", ["one"], PROMPT) as consumer:
            batch = await consumer.poll(10_000)
            assert batch is not None
            assert batch[0].offset == 3
