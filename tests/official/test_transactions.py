"""Transactions of the official producers: visible if and only if committed, checked when abandoned."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ortoo.v1 import topic_pb2
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster
from tests.official.client import LANGUAGES, Official, official

SOON = {"enode": {"transaction_check_after_ms": 500, "transaction_check_interval_ms": 500}}


@asynccontextmanager
async def served(language: str, folder: Path, verdict: str) -> AsyncIterator[tuple[InProcessCluster, Official]]:
    """A cluster with frequent checks; a producer `p` that answers checks with `verdict`; a push consumer `c`."""
    async with open_cluster(folder, settings=SOON) as cluster, official(language, cluster.address) as client:
        await cluster.create_topic("t", message_type=topic_pb2.MESSAGE_TYPE_TRANSACTION)
        await client("producer", name="p", topics=["t"], verdict=verdict)
        await client("push", name="c", group="g", subscriptions={"t": {"expression": "*"}})
        yield cluster, client


async def send(client: Official, transaction: str, body: bytes) -> str:
    """Send a half message; return its id."""
    await client("begin", name="p", transaction=transaction)
    sent = await client("send", name="p", topic="t", body=body, transaction=transaction)
    message_id: str = sent["message_id"]
    return message_id


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_message_is_seen_if_and_only_if_it_is_committed(language: str, tmp_path: Path) -> None:
    """A committed message is delivered; one that was rolled back before it is not."""
    async with served(language, tmp_path, "unknown") as (_, client):
        await send(client, "rolled back", b"never")
        await client("rollback", transaction="rolled back")
        committed = await send(client, "committed", b"seen")
        await client("commit", transaction="committed")
        [received] = await client.messages("c", 1)
        assert (received["message_id"], received["body"]) == (committed, b"seen")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("verdict", ["commit", "rollback"])
async def test_a_forgotten_transaction_is_asked_about(verdict: str, language: str, tmp_path: Path) -> None:
    """The producer is asked and its answer counts: the message is delivered, or never."""
    async with served(language, tmp_path, verdict) as (_, client):
        forgotten = await send(client, "forgotten", b"forgotten")
        [check] = await client.checks(1)
        assert check["message_id"] == forgotten
        if verdict == "rollback":
            await send(client, "later", b"later")
            await client("commit", transaction="later")
        [received] = await client.messages("c", 1)
        assert received["body"] == (b"forgotten" if verdict == "commit" else b"later")


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_producer_that_does_not_know_is_asked_again(language: str, tmp_path: Path) -> None:
    """No answer leaves the transaction open; it is asked about again, and can still be committed."""
    async with served(language, tmp_path, "unknown") as (_, client):
        open_for_long = await send(client, "open", b"x")
        checks = await client.checks(2)
        assert {check["message_id"] for check in checks} == {open_for_long}
        await client("commit", transaction="open")
        assert [m["message_id"] for m in await client.messages("c", 1)] == [open_for_long]
