"""The official producers send, and all their fields arrive at native consumers."""

from pathlib import Path

import pytest

from ortoo import client as ortoo
from ortoo.verification.servers.cluster import open_cluster
from tests.official.client import LANGUAGES, ClientError, official


@pytest.mark.parametrize("language", LANGUAGES)
async def test_what_an_official_producer_sends_a_native_reader_gets(language: str, tmp_path: Path) -> None:
    """Body, tag, keys, properties, message group and id are the same on both sides."""
    async with open_cluster(tmp_path) as cluster, official(language, cluster.address) as client:
        await cluster.create_topic("t")
        await client("producer", name="p", topics=["t"])
        plain = await client("send", name="p", topic="t", body=b"plain")
        full = await client(
            "send",
            name="p",
            topic="t",
            body=bytes(range(256)),
            tag="red",
            keys=["k1", "k2"],
            properties={"colour": "rouge", "größe": "12"},
            message_group="customer-7",
        )
        async with (
            ortoo.connect(cluster.address) as mq,
            mq.consumer("g", "t", ortoo.ConsumerSettings(from_beginning=True)) as consumer,
        ):
            found = {}
            async for message in consumer:
                found[message.message_id] = message
                message.ack()
                if len(found) == 2:
                    break
    assert set(found) == {plain["message_id"], full["message_id"]}
    assert found[plain["message_id"]].body == b"plain"
    message = found[full["message_id"]]
    assert (message.body, message.tag, sorted(message.keys)) == (bytes(range(256)), "red", ["k1", "k2"])
    assert dict(message.properties) == {"colour": "rouge", "größe": "12"}
    assert message.message_group == "customer-7"


@pytest.mark.parametrize("language", LANGUAGES)
async def test_an_unknown_topic_is_told_when_the_client_starts_or_sends(language: str, tmp_path: Path) -> None:
    """The error names the topic, and the process stays usable."""
    async with open_cluster(tmp_path) as cluster, official(language, cluster.address) as client:
        with pytest.raises(ClientError):
            await client("producer", name="p", topics=["absent"])
            await client("send", name="p", topic="absent", body=b"x")
        await cluster.create_topic("t")
        await client("producer", name="q", topics=["t"])
        assert (await client("send", name="q", topic="t", body=b"x"))["message_id"]


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_body_of_4_mib_passes_and_one_byte_more_is_refused(language: str, tmp_path: Path) -> None:
    """The largest body travels alone; a larger one is refused before or by the server."""
    async with open_cluster(tmp_path) as cluster, official(language, cluster.address) as client:
        await cluster.create_topic("t")
        await client("producer", name="p", topics=["t"])
        assert (await client("send", name="p", topic="t", body=bytes(4 << 20)))["message_id"]
        with pytest.raises(ClientError):
            await client("send", name="p", topic="t", body=bytes((4 << 20) + 1))
