"""Official clients keep sending and receiving while the snode ends their old connections and streams."""

from pathlib import Path

import pytest

from ortoo.common.process.clock import SystemClock
from ortoo.verification.servers.cluster import open_cluster
from tests.official.client import LANGUAGES, official
from tests.official.test_receiving import EVERYTHING

AGE_S = 1.0


@pytest.mark.parametrize("language", LANGUAGES)
async def test_no_call_of_an_official_client_fails_when_its_connection_is_old(language: str, tmp_path: Path) -> None:
    """All sends over several ages succeed, and each message arrives."""
    settings = {"snode": {"connection_age_max_s": AGE_S}}
    clock = SystemClock()
    async with open_cluster(tmp_path, settings=settings) as cluster, official(language, cluster.address) as client:
        await cluster.create_topic("t")
        await client("producer", name="p", topics=["t"])
        await client("push", name="c", group="g", subscriptions={"t": EVERYTHING})
        sent = set[str]()
        end_s = clock.monotonic_s() + 6 * AGE_S
        while clock.monotonic_s() < end_s:
            sent.add((await client("send", name="p", topic="t", body=b"%d" % len(sent)))["message_id"])
            await clock.sleep(0.05)
        received = set[str]()
        while received != sent:
            await clock.sleep(0.05)  # the events of the client are read meanwhile
            received |= {message["message_id"] for message in await client.messages("c", 1)}
