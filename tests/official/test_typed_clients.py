"""The official clients for Java and Go, with TLS, which is their default, and without."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ortoo.client import connect
from ortoo.common.grpc.tls import make_self_signed_certificate
from ortoo.v1 import namesrv_pb2
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster
from tests.official.client import TYPED_LANGUAGES, Official, official

EVERYTHING = {"t": {"expression": "*"}}


@asynccontextmanager
async def client_by_default(language: str, tmp_path: Path) -> AsyncIterator[tuple[InProcessCluster, Official]]:
    """A client with default settings, at the TLS port of a snode that makes its own certificate."""
    async with open_cluster(tmp_path, settings={"snode": {"tls_listen_address": "127.0.0.1:0"}}) as cluster:
        await cluster.create_topic("t")
        async with official(language, cluster.running["snode-0"].tls_address) as client:
            yield cluster, client


@pytest.mark.parametrize("language", TYPED_LANGUAGES)
async def test_a_client_works_as_it_comes(language: str, tmp_path: Path) -> None:
    """With TLS by default, a sent message arrives whole, is acknowledged, and does not come again."""
    async with client_by_default(language, tmp_path) as (cluster, client):
        await client("producer", name="p", topics=["t"])
        said = {"tag": "urgent", "keys": ["k-1"], "properties": {"of": "bank"}}
        sent = await client("send", name="p", topic="t", body=b"hello", **said)
        await client("simple", name="s", group="g", subscriptions=EVERYTHING)
        (message,) = (await client("receive", name="s", count=8, invisible_s=30))["messages"]
        assert message["message_id"] == sent["message_id"]
        assert (message["body"], message["tag"], message["keys"]) == (b"hello", "urgent", ["k-1"])
        assert message["properties"]["of"] == "bank"
        await client("ack", name="s", message_id=message["message_id"])
        async with connect(cluster.address) as mq:
            assert (await mq.admin.describe_lag("g", "t")).lag_messages == 0


@pytest.mark.parametrize("language", TYPED_LANGUAGES)
async def test_a_failing_listener_gets_the_message_again(language: str, tmp_path: Path) -> None:
    """A push consumer gets a message until its listener succeeds, with the attempt's number."""
    async with client_by_default(language, tmp_path) as (cluster, client):
        async with connect(cluster.address) as mq:
            await mq.admin.groups.update("g", attempts_max=4, retry="list:100ms")
            async with mq.producer("t") as producer:
                await producer.send(b"poison")
        await client("push", name="c", group="g", subscriptions=EVERYTHING, failures=2)
        seen = await client.messages("c", 3)
        assert [(m["body"], m["attempt"], m["failed"]) for m in seen] == [
            (b"poison", 1, True),
            (b"poison", 2, True),
            (b"poison", 3, False),
        ]


@pytest.mark.parametrize("language", TYPED_LANGUAGES)
async def test_a_message_that_fails_for_ever_is_a_dead_letter(language: str, tmp_path: Path) -> None:
    """The number of attempts of the group, not one more, then a dead letter with the reason."""
    async with client_by_default(language, tmp_path) as (cluster, client), connect(cluster.address) as mq:
        await mq.admin.groups.update("g", attempts_max=2, retry="list:100ms")
        async with mq.producer("t") as producer:
            await producer.send(b"poison")
        await client("push", name="c", group="g", subscriptions=EVERYTHING, failures=99)
        await client.messages("c", 2)
        async with asyncio.timeout(60):
            async for news in cluster.name_service.WatchRoutes(namesrv_pb2.WatchRoutesRequest()):
                if "%DLQ%g" in {topic.name for topic in news.topics}:
                    break
            async for _ in mq.admin.tail("%DLQ%g", from_beginning=True):
                break
        [letter] = [one async for one in mq.admin.list_dead_letters("g")]
        assert (letter.message.body, letter.attempts, letter.reason) == (b"poison", 2, "attempts")
        assert len(await client.messages("c", 2)) == 2


@pytest.mark.parametrize("language", TYPED_LANGUAGES)
async def test_told_to_do_without_tls_it_works_in_the_clear(language: str, tmp_path: Path) -> None:
    """With its own switch the same client sends to the other port."""
    async with open_cluster(tmp_path) as cluster, official(language, cluster.address) as client:
        await cluster.create_topic("t")
        await client("producer", name="p", topics=["t"], tls=False)
        sent = await client("send", name="p", topic="t", body=b"hello")
        async with connect(cluster.address) as mq:
            async for stored in mq.admin.tail("t", from_beginning=True):
                assert stored.message_id == sent["message_id"]
                break


async def test_the_python_client_by_tls(tmp_path: Path) -> None:
    """With TLS switched on it sends and receives with a trusted certificate."""
    certificate, key = make_self_signed_certificate(("localhost", "127.0.0.1"))
    files = {"tls_certificate_file": certificate, "tls_key_file": key}
    for name, text in files.items():
        (tmp_path / name).write_bytes(text)
    settings = {"tls_listen_address": "127.0.0.1:0"} | {name: str(tmp_path / name) for name in files}
    async with open_cluster(tmp_path / "cluster", settings={"snode": settings}) as cluster:
        await cluster.create_topic("t")
        address = cluster.running["snode-0"].tls_address
        async with official("python", address, roots=tmp_path / "tls_certificate_file") as client:
            await client("producer", name="p", topics=["t"])
            await client("push", name="c", group="g", subscriptions=EVERYTHING)
            sent = await client("send", name="p", topic="t", body=b"hello")
            assert [m["message_id"] for m in await client.messages("c", 1)] == [sent["message_id"]]
