"""Dead letters: listed, replayed once, also after an interrupted replay. And peeking without a lease."""

import asyncio
import hashlib
import json
from pathlib import Path

import pytest

from ortoo.client import Client, Message, PoppedMessage, PopSettings, Sql, connect
from ortoo.common.process.clock import SystemClock
from ortoo.common.records.batch import encode
from ortoo.common.records.text_rules import COPY_LIMITS
from ortoo.enode.app import RunningEnode
from ortoo.v1 import namesrv_pb2, pull_pb2, topic_pb2
from ortoo.v1.consumer_pb2_grpc import ConsumerServiceStub
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster
from ortoo.verification.servers.command import run as run_command

CLOCK = SystemClock()


async def park(mq: Client, count: int, topic: str = "jobs", group: str = "g") -> None:
    """Send messages and park all of them."""
    async with mq.producer(topic) as producer:
        await (
            await producer.send_many(
                [Message(b"%d" % n, properties={"parity": "odd" if n % 2 else "even"}) for n in range(count)]
            )
        )
    async with mq.pop_consumer(group, topic, settings=PopSettings(messages_max=512)) as consumer:
        left = count
        while left:
            messages = await consumer.pop()
            await asyncio.gather(*[message.park("it was not right") for message in messages])
            left -= len(messages)


async def drained(mq: Client, topic: str = "jobs", group: str = "g") -> list[PoppedMessage]:
    """Pop and acknowledge all messages."""
    found: list[PoppedMessage] = []
    async with mq.pop_consumer(group, topic, settings=PopSettings(messages_max=1024)) as consumer:
        while messages := await consumer.pop(wait_ms=300):
            await asyncio.gather(*[message.ack() for message in messages])
            found += messages
    return found


async def until_marked(cluster: InProcessCluster) -> None:
    """Wait until the enode has marked the end of its idle log, and writes nothing more on its own."""
    enode = cluster.running["enode-0"]
    assert isinstance(enode, RunningEnode)
    engine = enode.store.engine
    appender = engine.appender
    while not engine.housekeeping._marked_position == appender.appended_position == appender.durable_position:
        await CLOCK.sleep(0.01)


def store_hash(cluster: InProcessCluster) -> str:
    """A hash of every byte of the enode's log."""
    digest = hashlib.sha256()
    for path in sorted((cluster.folder / "enode-0").glob("*.seg")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


async def test_dead_letters_tell_why_and_are_sent_again_once(tmp_path: Path) -> None:
    """A dry run stores nothing; a condition selects. A second run finds nothing left to replay."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        await cluster.create_topic("jobs", queues=2)
        await park(mq, 40)
        letters = [letter async for letter in mq.admin.list_dead_letters("g")]
        assert len(letters) == 40
        assert {(one.reason, one.attempts, one.error, one.origin_queue.topic) for one in letters} == {
            ("asked", 1, "it was not right", "jobs")
        }
        assert not any(name.startswith("DLQ_") for one in letters for name in one.message.properties)
        await until_marked(cluster)
        before = store_hash(cluster)
        odd = Sql("parity = 'odd'")
        dry = [one async for one in mq.admin.replay_dead_letters("g", odd, dry_run=True)][-1]
        assert (dry.replayed_messages, dry.done) == (20, True)
        assert store_hash(cluster) == before
        first = [one async for one in mq.admin.replay_dead_letters("g", odd)][-1]
        again = [one async for one in mq.admin.replay_dead_letters("g", odd)][-1]
        assert (first.replayed_messages, again.replayed_messages, again.skipped_messages) == (20, 0, 20)
        found = await drained(mq)
        assert sorted(int(one.body) for one in found) == list(range(1, 40, 2))
        assert {(one.topic, one.attempt) for one in found} == {("jobs", 1)}
        assert [one.replayed async for one in mq.admin.list_dead_letters("g")] == [False] * 20
        rest = [one async for one in mq.admin.replay_dead_letters("g")][-1]
        assert (rest.replayed_messages, rest.skipped_messages) == (20, 20)


@pytest.mark.parametrize("number", ["\u00b2", "9" * 30, str(1 << 31), "-1"])
async def test_what_a_producer_calls_its_properties_hides_no_dead_letter(tmp_path: Path, number: str) -> None:
    """Earlier versions stored such properties of producers: the group's letters can still be listed."""
    forged = dict.fromkeys(("DLQ_PRIORITY", "DLQ_DELIVER_AT_MS", "DLQ_EXPIRE_AT_MS", "DLQ_ATTEMPTS"), number)
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq, asyncio.timeout(60):
        await mq.admin.create_topic("jobs", queue_count=1)
        topic = await cluster.name_service.GetTopic(namesrv_pb2.GetTopicRequest(name="jobs"))
        enode = cluster.running["enode-0"]
        assert isinstance(enode, RunningEnode)
        stored = encode([Message(b"forged", properties=forged), Message(b"other")], now_ms=1, limits=COPY_LIMITS)
        await enode.appends.append(topic.topic.topic_id, 0, stored)
        async with mq.pop_consumer("g", "jobs", settings=PopSettings(messages_max=2)) as consumer:
            left = 2
            while left:
                messages = await consumer.pop()
                for message in messages:  # one after the other, in the order that is expected below
                    await message.park("no")
                left -= len(messages)
        letters = [letter async for letter in mq.admin.list_dead_letters("g")]
        assert [letter.message.body for letter in letters] == [b"forged", b"other"]
        assert [letter.attempts for letter in letters] == [1, 1]


async def test_a_replay_that_is_broken_off_goes_on_where_it_was(tmp_path: Path) -> None:
    """Each letter once, over a restart of the enode in between."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        await cluster.create_topic("jobs", queues=1)
        await park(mq, 300)
        async for progress in mq.admin.replay_dead_letters("g", messages_per_s=80):
            if progress.replayed_messages >= 50:
                break
        await cluster.close("enode-0")
        await cluster.open_enode("enode-0")
        done = [one async for one in mq.admin.replay_dead_letters("g")][-1]
        assert 0 < done.replayed_messages < 300
        assert done.replayed_messages + done.skipped_messages == 300
        assert sorted(int(one.body) for one in await drained(mq)) == list(range(300))


async def test_replay_to_another_topic_at_most_so_many(tmp_path: Path) -> None:
    """They are visible to every group of that topic."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        await cluster.create_topic("jobs", queues=1)
        await cluster.create_topic("again", queues=2)
        await park(mq, 10)
        done = [one async for one in mq.admin.replay_dead_letters("g", to_topic="again", messages_max=4)][-1]
        assert done.replayed_messages == 4
        assert len(await drained(mq, "again", "other")) == 4


async def test_peeking_takes_nothing_and_shows_what_others_have(tmp_path: Path) -> None:
    """No lease is taken and no attempt counted."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        await cluster.create_topic("jobs", queues=1)
        async with mq.producer("jobs") as producer:
            await (await producer.send_many([b"a", b"b", b"c"]))
        async with mq.pop_consumer("g", "jobs") as consumer:
            first, second = await consumer.pop(2)
            await first.ack()
            for _ in range(2):
                peeked = await mq.admin.peek("jobs", "g")
                assert [(one.message.body, one.attempts) for one in peeked] == [(b"b", 1), (b"c", 0)]
            assert [one.message.body for one in await mq.admin.peek("jobs", messages_max=1)] == [b"a"]
            [third] = await consumer.pop()
            assert (third.body, third.attempt) == (b"c", 1)
            await second.ack()


async def test_the_command_shows_and_sends_dead_letters_again(tmp_path: Path) -> None:
    """`ortoo dlq list|show|replay` and `ortoo peek`."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        await cluster.create_topic("jobs", queues=1)
        await park(mq, 3)

        async def run(*words: str) -> str:
            outcome = await run_command(("ortoo", *words), cluster.address)
            assert outcome.exit_code == 0, outcome.stderr
            return outcome.stdout

        lines = (await run("dlq", "list", "g", "--json")).splitlines()
        assert sorted(json.loads(line)["body"] for line in lines) == ["0", "1", "2"]  # parked at the same time
        chosen = json.loads(lines[1])["message_id"]
        assert json.loads(await run("dlq", "show", "g", chosen, "--json"))["error"] == "it was not right"
        assert "1 message would be sent" in await run("dlq", "replay", "g", "--where", "parity = 'odd'", "--dry-run")
        assert "3 messages sent again" in await run("dlq", "replay", "g")
        assert "it was not right" not in await run("dlq", "list", "g")
        assert len((await run("peek", "%RETRY%g", "--json")).splitlines()) == 3


async def test_messages_given_back_by_offset_come_again_later_with_their_count(tmp_path: Path) -> None:
    """E-170, E-171, E-172, E-173: one copy in %RETRY%, not before its level's delay. Parked finally or on request."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        await cluster.create_topic("jobs", queues=1)
        async with mq.producer("jobs") as producer:
            receipt = await producer.send(Message(b"a", properties={"k": "v"}))
        stub = ConsumerServiceStub(cluster.channels.channel_to(cluster.address))
        place = topic_pb2.Queue(topic="jobs", enode="enode-0", queue_id=0)
        began_s = CLOCK.monotonic_s()
        request = pull_pb2.NackMessagesRequest(group="g", queue=place, offsets=[0], delay_level=1)
        answer = await stub.NackMessages(request)
        assert list(answer.message_ids) == [receipt.message_id]
        async with mq.pop_consumer("g", "%RETRY%g") as consumer:
            [copy] = await consumer.pop()
            assert CLOCK.monotonic_s() - began_s >= 1.0
            assert (copy.body, copy.topic, copy.properties["k"]) == (b"a", "jobs", "v")
            assert copy.properties["ORIGIN_MESSAGE_ID"] == receipt.message_id
            assert copy.properties["RECONSUME_TIMES"] == "1"
            again = topic_pb2.Queue(topic="%RETRY%g", enode="enode-0", queue_id=0)
            await stub.NackMessages(pull_pb2.NackMessagesRequest(group="g", queue=again, offsets=[0], attempts_max=2))
            await stub.NackMessages(pull_pb2.NackMessagesRequest(group="g", queue=place, offsets=[0], delay_level=-1))
            await copy.ack()
            assert await consumer.pop(wait_ms=500) == []
        letters = [one async for one in mq.admin.list_dead_letters("g")]
        assert [(one.reason, one.attempts) for one in letters] == [("attempts", 2), ("asked", 1)]


async def test_a_list_of_dead_letters_continues_after_a_place(tmp_path: Path) -> None:
    """Pages of three over two enodes and two queues each show every dead letter once, also inside one batch."""
    async with open_cluster(tmp_path, enodes=2) as cluster, connect(cluster.address) as mq:
        await cluster.create_topic("jobs", queues=2)
        await park(mq, 20)
        everything = [(one.queue, one.offset) async for one in mq.admin.list_dead_letters("g")]
        paged, after = [], None
        while page := [one async for one in mq.admin.list_dead_letters("g", dead_letters_max=3, after=after)]:
            assert len(page) <= 3
            paged += [(one.queue, one.offset) for one in page]
            after = paged[-1]
        assert paged == everything
        assert len(set(paged)) == 20
