"""Lite topics with the official clients."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ortoo.v1 import topic_pb2
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster
from tests.official.client import LANGUAGES, Official, official


@asynccontextmanager
async def served(language: str, folder: Path) -> AsyncIterator[tuple[InProcessCluster, Official]]:
    """A cluster with a parent topic `t`, and a producer `p` of its lite topics."""
    async with open_cluster(folder) as cluster, official(language, cluster.address) as client:
        await cluster.create_topic("t", message_type=topic_pb2.MESSAGE_TYPE_LITE)
        await client("producer", name="p", topics=["t"])
        yield cluster, client


async def send(client: Official, lite_topic: str, *bodies: bytes) -> None:
    """Send to a lite topic, one after another."""
    for body in bodies:
        await client("send", name="p", topic="t", lite_topic=lite_topic, body=body)


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_lite_push_consumer_gets_what_it_subscribed_to(language: str, tmp_path: Path) -> None:
    """Each lite topic in its order; others wait for a subscription, and are delivered from their beginning."""
    async with served(language, tmp_path) as (_, client):
        await client("lite_push", name="c", group="g", topic="t")
        for name in ("a", "b"):
            await client("subscribe_lite", name="c", lite_topic=name)
        for number in range(3):
            for name in ("a", "b", "later"):
                await send(client, name, b"%d" % number)
        received = await client.messages("c", 6)
        for name in ("a", "b"):
            assert [one["body"] for one in received if one["lite_topic"] == name] == [b"0", b"1", b"2"]
        await client("subscribe_lite", name="c", lite_topic="later")
        received = (await client.messages("c", 9))[6:]
        assert [(one["lite_topic"], one["topic"], one["body"]) for one in received] == [
            ("later", "t", b"%d" % number) for number in range(3)
        ]
        await client("unsubscribe_lite", name="c", lite_topic="a")
        await send(client, "a", b"unwanted")
        await send(client, "b", b"wanted")
        assert [one["body"] for one in (await client.messages("c", 10))[9:]] == [b"wanted"]


async def test_a_lite_simple_consumer_receives_and_acknowledges(tmp_path: Path) -> None:
    """One message of each lite topic at a time; the next one comes when it is acknowledged."""
    async with served("python", tmp_path) as (_, client):
        await client("lite_simple", name="c", group="g", topic="t", await_s=2)
        await client("subscribe_lite", name="c", lite_topic="a")
        await client("subscribe_lite", name="c", lite_topic="b")
        await send(client, "a", b"a0", b"a1")
        await send(client, "b", b"b0")
        first = [
            one for _ in range(2) for one in (await client("receive", name="c", count=8, invisible_s=30))["messages"]
        ]
        assert sorted(one["body"] for one in first) == [b"a0", b"b0"]
        for one in first:
            await client("ack", name="c", message_id=one["message_id"])
        [last] = (await client("receive", name="c", count=8, invisible_s=30))["messages"]
        assert (last["body"], last["lite_topic"]) == (b"a1", "a")
