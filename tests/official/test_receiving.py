"""The official consumers receive, acknowledge, fail and retry as they do with RocketMQ."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ortoo import client as ortoo
from ortoo.v1 import namesrv_pb2, topic_pb2
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster
from tests.official.client import LANGUAGES, ClientError, Official, official

EVERYTHING = {"expression": "*"}


@asynccontextmanager
async def served(language: str, folder: Path, *topics: str) -> AsyncIterator[tuple[InProcessCluster, Official]]:
    """A cluster with some topics, an official client, and its producer `p` for them."""
    async with open_cluster(folder) as cluster, official(language, cluster.address) as client:
        for topic in topics:
            await cluster.create_topic(topic)
        await client("producer", name="p", topics=list(topics))
        yield cluster, client


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_push_consumer_gets_everything_that_was_sent(language: str, tmp_path: Path) -> None:
    """Id, body, tag, keys, properties and message group arrive unchanged; no message is corrupted or comes twice."""
    async with served(language, tmp_path, "t") as (_, client):
        await client("push", name="c", group="g", subscriptions={"t": EVERYTHING})
        sent = {}
        for number in range(20):
            fields = {"tag": "red", "keys": [f"k{number}"], "properties": {"n": str(number), "größe": "ß"}}
            body = b"%d" % number
            receipt = await client("send", name="p", topic="t", body=body, **fields)
            sent[receipt["message_id"]] = {"body": body, **fields}
        received = await client.messages("c", 20)
        assert {m["message_id"] for m in received} == set(sent)
        assert len(received) == 20
        for message in received:
            expected = sent[message["message_id"]]
            assert {name: message[name] for name in expected} == expected
            assert (message["topic"], message["attempt"], message["corrupted"]) == ("t", 1, False)


@pytest.mark.parametrize("language", LANGUAGES)
async def test_what_a_native_producer_sends_an_official_consumer_gets(language: str, tmp_path: Path) -> None:
    """All properties of a native message are equal at an official consumer, including its id."""
    async with served(language, tmp_path, "t") as (cluster, client):
        await client("push", name="c", group="g", subscriptions={"t": EVERYTHING})
        async with ortoo.connect(cluster.address) as mq, mq.producer("t") as producer:
            message = ortoo.Message(b"\x00\xff", "red", ("k1", "k2"), properties={"a": "b"}, message_group="m")
            receipt = await producer.send(message)
        [received] = await client.messages("c", 1)
        assert received["message_id"] == receipt.message_id
        assert (received["body"], received["tag"], received["keys"]) == (b"\x00\xff", "red", ["k1", "k2"])
        assert (received["properties"], received["message_group"]) == ({"a": "b", "__SHARDINGKEY": "m"}, "m")


@pytest.mark.parametrize("language", LANGUAGES)
async def test_two_members_share_a_topic(language: str, tmp_path: Path) -> None:
    """Each message goes to one consumer of the group, and both get some."""
    async with (
        served(language, tmp_path, "t") as (cluster, client),
        official(language, cluster.address, client.events) as other,
    ):
        await client("push", name="c1", group="g", subscriptions={"t": EVERYTHING})
        await other("push", name="c2", group="g", subscriptions={"t": EVERYTHING})
        sent: list[str] = []
        while len(sent) < 1000 and {m["consumer"] for m in client.events.all} != {"c1", "c2"}:
            sent += [(await client("send", name="p", topic="t", body=b"x"))["message_id"] for _ in range(20)]
        received = await client.events.wait(len(sent), lambda _: True, 120)
        assert sorted(m["message_id"] for m in received) == sorted(sent)
        assert {m["consumer"] for m in received} == {"c1", "c2"}


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_native_consumer_that_pops_in_order_shares_a_group(language: str, tmp_path: Path) -> None:
    """Each client gets the messages that the other one has not acknowledged. Without the order, pops are refused."""
    async with served(language, tmp_path, "t") as (cluster, client), ortoo.connect(cluster.address) as mq:
        first = (await client("send", name="p", topic="t", body=b"1"))["message_id"]
        async with mq.pop_consumer("g", "t", settings=ortoo.PopSettings(in_order=True)) as consumer:
            [message] = await consumer.pop(1)
            assert message.message_id == first
            await message.ack()
        second = (await client("send", name="p", topic="t", body=b"2"))["message_id"]
        await client("simple", name="s", group="g", subscriptions={"t": EVERYTHING}, await_s=3)
        received: list[str] = []
        while not received:
            found = await client("receive", name="s", count=16, invisible_s=20)
            received = [m["message_id"] for m in found["messages"]]
        assert received == [second]
        async with mq.pop_consumer("g", "t") as other:
            with pytest.raises(ortoo.Conflict, match="in the order of message groups"):
                await other.pop(1)


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_simple_consumer_receives_and_acknowledges(language: str, tmp_path: Path) -> None:
    """An acknowledged message does not come again; a nacked one comes again at once with the next attempt."""
    async with served(language, tmp_path, "t") as (_, client):
        first = (await client("send", name="p", topic="t", body=b"1"))["message_id"]
        second = (await client("send", name="p", topic="t", body=b"2"))["message_id"]
        await client("simple", name="s", group="g", subscriptions={"t": EVERYTHING}, await_s=3)
        got: set[str] = set()
        while got != {first, second}:
            found = await client("receive", name="s", count=16, invisible_s=20)
            got |= {m["message_id"] for m in found["messages"]}
        await client("ack", name="s", message_id=first)
        await client("invisible", name="s", message_id=second, seconds=0)
        again = await client("receive", name="s", count=16, invisible_s=20)
        assert [(m["message_id"], m["attempt"]) for m in again["messages"]] == [(second, 2)]
        await client("ack", name="s", message_id=second)
        assert (await client("receive", name="s", count=16, invisible_s=20))["messages"] == []


@pytest.mark.parametrize("language", LANGUAGES)
async def test_an_acknowledgement_after_the_lease_is_refused(language: str, tmp_path: Path) -> None:
    """A message that came again belongs to its new receiver; the old handle is refused with that reason."""
    async with served(language, tmp_path, "t") as (_, client):
        message_id = (await client("send", name="p", topic="t", body=b"1"))["message_id"]
        await client("simple", name="s", group="g", subscriptions={"t": EVERYTHING}, await_s=5)
        await client("simple", name="r", group="g", subscriptions={"t": EVERYTHING}, await_s=5)
        assert len((await client("receive", name="s", count=1, invisible_s=10))["messages"]) == 1
        await client("invisible", name="s", message_id=message_id, seconds=0)
        with pytest.raises(ClientError):
            await client("ack", name="s", message_id=message_id)
        again = await client("receive", name="r", count=1, invisible_s=10)
        assert [m["attempt"] for m in again["messages"]] == [2]
        await client("ack", name="r", message_id=message_id)


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_failing_listener_gets_the_message_again(language: str, tmp_path: Path) -> None:
    """After a failure the message comes again by the client's back-off, with the next attempt."""
    async with served(language, tmp_path, "t") as (_, client):
        await client("push", name="c", group="g", subscriptions={"t": EVERYTHING}, failures=1)
        message_id = (await client("send", name="p", topic="t", body=b"x"))["message_id"]
        received = await client.messages("c", 2)
        assert [(m["message_id"], m["attempt"], m["failed"]) for m in received] == [
            (message_id, 1, True),
            (message_id, 2, False),
        ]


@pytest.mark.parametrize("language", LANGUAGES)
async def test_filters_choose_by_tag_and_by_sql(language: str, tmp_path: Path) -> None:
    """Tags and conditions over properties select; the other messages count as done for the group."""
    async with served(language, tmp_path, "t") as (_, client):
        by_tag, by_sql = {"expression": "red || blue"}, {"expression": "n > 1 AND colour = 'rouge'", "sql": True}
        await client("push", name="tags", group="g1", subscriptions={"t": by_tag})
        await client("push", name="sql", group="g2", subscriptions={"t": by_sql})
        for number, tag in enumerate(["red", "green", "blue", "red"]):
            properties = {"n": str(number), "colour": "rouge" if tag == "red" else "autre"}
            await client("send", name="p", topic="t", body=b"%d" % number, tag=tag, properties=properties)
        assert {m["body"] for m in await client.messages("tags", 3)} == {b"0", b"2", b"3"}
        assert [m["body"] for m in await client.messages("sql", 1)] == [b"3"]


@pytest.mark.parametrize("language", LANGUAGES)
async def test_an_empty_poll_waits_and_a_message_wakes_it(language: str, tmp_path: Path) -> None:
    """A waiting poll gets a message that is sent meanwhile, long before its timeout."""
    async with served(language, tmp_path, "t") as (_, client):
        await client("simple", name="s", group="g", subscriptions={"t": EVERYTHING}, await_s=30)
        async with asyncio.timeout(25):
            found, sent = await asyncio.gather(
                client("receive", name="s", count=1, invisible_s=10),
                client("send", name="p", topic="t", body=b"x"),
            )
        assert [m["message_id"] for m in found["messages"]] == [sent["message_id"]]


@pytest.mark.parametrize("language", LANGUAGES)
async def test_messages_of_a_group_come_in_order(language: str, tmp_path: Path) -> None:
    """Within a message group each message comes after the one before was acknowledged, also with two consumers."""
    async with (
        served(language, tmp_path, "t") as (cluster, client),
        official(language, cluster.address, client.events) as other,
    ):
        await client("push", name="c1", group="g", subscriptions={"t": EVERYTHING})
        await other("push", name="c2", group="g", subscriptions={"t": EVERYTHING})
        for number in range(10):
            for group in ("a", "b", "c"):
                body = f"{group}{number}".encode()
                await client("send", name="p", topic="t", body=body, message_group=group)
        events = sorted(await client.events.wait(30, lambda _: True, 40), key=lambda m: m["at_ms"])
        for group in ("a", "b", "c"):
            bodies = [m["body"].decode() for m in events if m["message_group"] == group]
            assert bodies == [f"{group}{number}" for number in range(10)]


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_delayed_message_comes_in_time_and_a_recalled_one_never(language: str, tmp_path: Path) -> None:
    """Not before its time, soon after it; a recall takes the other one away."""
    async with served(language, tmp_path, "t") as (_, client):
        await client("push", name="c", group="g", subscriptions={"t": EVERYTHING})
        gone = await client("send", name="p", topic="t", body=b"gone", delay_s=8)
        recalled = await client("recall", name="p", topic="t", recall_handle=gone["recall_handle"])
        assert gone["message_id"] in recalled["receipt"]
        kept = await client("send", name="p", topic="t", body=b"kept", delay_s=8)
        [received] = await client.messages("c", 1)
        assert (received["body"], received["message_id"]) == (b"kept", kept["message_id"])


@pytest.mark.parametrize("language", LANGUAGES)
async def test_fifty_topics_on_one_client(language: str, tmp_path: Path) -> None:
    """One producer and one push consumer serve fifty topics."""
    topics = [f"t{number}" for number in range(50)]
    async with served(language, tmp_path, *topics) as (_, client):
        await client("push", name="c", group="g", subscriptions=dict.fromkeys(topics, EVERYTHING))
        for topic in topics:
            await client("send", name="p", topic=topic, body=topic.encode())
        assert sorted(m["topic"] for m in await client.messages("c", 50)) == sorted(topics)


@pytest.mark.parametrize("language", LANGUAGES)
async def test_clients_go_on_after_the_server_was_away(language: str, tmp_path: Path) -> None:
    """A restarted snode has no data about its clients; they still send and receive."""
    async with served(language, tmp_path, "t") as (cluster, client):
        await client("push", name="c", group="g", subscriptions={"t": EVERYTHING})
        await client("send", name="p", topic="t", body=b"before")
        await client.messages("c", 1)
        await cluster.close("snode-0")
        await cluster.open_snode("snode-0")
        sent = None
        async with asyncio.timeout(40):
            while sent is None:
                try:
                    sent = await client("send", name="p", topic="t", body=b"after")
                except ClientError:
                    continue
        assert (await client.messages("c", 2))[-1]["body"] == b"after"


@pytest.mark.parametrize("language", LANGUAGES)
async def test_after_the_last_attempt_a_message_is_a_dead_letter(language: str, tmp_path: Path) -> None:
    """A message that fails as often as its group allows is parked once; a subscriber of %DLQ%group gets it."""
    async with served(language, tmp_path, "t") as (cluster, client):
        soon = topic_pb2.RetryPolicy(kind=topic_pb2.RETRY_KIND_LIST, listed_delays_ms=[1_000])
        group = topic_pb2.Group(name="g", attempts_max=2, retry=soon)
        await cluster.name_service.PutGroup(namesrv_pb2.PutGroupRequest(group=group))
        await client("push", name="c", group="g", subscriptions={"t": EVERYTHING}, failures=99)
        sent = await client("send", name="p", topic="t", body=b"poison", tag="red", properties={"a": "b"})
        failed = await client.messages("c", 2)
        assert [m["attempt"] for m in failed] == [1, 2]
        async with asyncio.timeout(60):
            async for news in cluster.name_service.WatchRoutes(namesrv_pb2.WatchRoutesRequest()):
                if "%DLQ%g" in {topic.name for topic in news.topics}:
                    break
        await client("push", name="letters", group="readers", subscriptions={"%DLQ%g": EVERYTHING})
        [letter] = await client.messages("letters", 1)
        assert (letter["message_id"], letter["body"]) == (sent["message_id"], b"poison")
        assert (letter["tag"], letter["properties"]["a"]) == ("red", "b")


@pytest.mark.parametrize("language", LANGUAGES)
async def test_urgent_messages_overtake(language: str, tmp_path: Path) -> None:
    """In a topic for priorities the most urgent waiting message comes first."""
    async with served(language, tmp_path, "t") as (cluster, client):
        await cluster.create_topic("urgent", queues=4, message_type=topic_pb2.MESSAGE_TYPE_PRIORITY)
        await client("producer", name="q", topics=["urgent"])
        for priority in (1, 3, 2):
            await client("send", name="q", topic="urgent", body=b"%d" % priority, priority=priority)
        await client("simple", name="s", group="g", subscriptions={"urgent": EVERYTHING})
        bodies: list[tuple[bytes, int]] = []
        while len(bodies) < 3:
            found = await client("receive", name="s", count=1, invisible_s=20)
            bodies += [(m["body"], m["priority"]) for m in found["messages"]]
        assert bodies == [(b"3", 3), (b"2", 2), (b"1", 1)]


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_topic_of_one_kind_refuses_others(language: str, tmp_path: Path) -> None:
    """The client compares a message with the route, or the server does."""
    async with served(language, tmp_path, "t") as (cluster, client):
        await cluster.create_topic("ordered", message_type=topic_pb2.MESSAGE_TYPE_FIFO)
        await client("producer", name="q", topics=["ordered"])
        with pytest.raises(ClientError):
            await client("send", name="q", topic="ordered", body=b"x")
        assert (await client("send", name="q", topic="ordered", body=b"x", message_group="m"))["message_id"]
