"""The cluster while it changes: an enode away, a leader change, transactions, clients and settings."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

pytest.importorskip("playwright", reason="Playwright is not installed; run `make console-setup`")

from ortoo.client import Message, TransactionVerdict
from tests.console.scene import Scene, open_scene, serious_findings
from tests.console.stuck_messages import READ_ALL, sent
from tests.integration.enode_replicas import leading, open_members

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    """A cluster with two enodes; processes that do not answer are noticed soon."""
    settings: dict[str, dict[str, Any]] = {
        "namesrv": {"lease_s": 2.0},
        "enode": {"transaction_check_interval_ms": 600_000},
    }
    async with open_scene(tmp_path_factory.mktemp("cluster"), enodes=2, settings=settings) as opened:
        yield opened


async def test_an_open_transaction_is_committed(scene: Scene) -> None:
    """The page shows its producer group; after the commit the message is in the topic."""
    await scene.cluster.create_topic("paid", queues=1, enodes=("enode-0",))

    async def verdict(check: object) -> TransactionVerdict:
        return TransactionVerdict.UNKNOWN

    async with scene.mq.transactional_producer("paid", "checkout", verdict) as producer:
        await producer.begin(Message(b"half"))
        page = await scene.page("/transactions")
        await page.get_by_role("cell", name="checkout").wait_for()
        assert await serious_findings(page) == []
        await page.get_by_role("button", name="Commit transaction").click()
        await page.get_by_text("No open transaction").wait_for()
    [stored] = [one async for one in scene.mq.admin.tail_last("paid", 5, follow=False)]
    assert stored.message.body == b"half"


async def test_clients_and_settings_are_shown(scene: Scene) -> None:
    """A consumer with its snode and its queues; settings with their origins."""
    await sent(scene, "work")
    async with scene.mq.consumer("workers", "work", READ_ALL) as consumer:
        async for _ in consumer.batches():
            break  # the page does not wait for clients, and a consumer that receives is known
        page = await scene.page("/clients?group=workers")
        await page.locator("tbody a").first.wait_for()
        await page.get_by_text("1 client: 1 at snode-0.").wait_for()
        assert await serious_findings(page) == []
        await page.locator("tbody a").first.click()
        await page.get_by_role("heading", name="Queues").wait_for()
    await page.goto(scene.url("/settings?role=namesrv&all=yes"))
    row = page.locator("tr", has=page.get_by_role("cell", name="lease_s", exact=True))
    assert "2.0" in await row.inner_text()
    assert await serious_findings(page) == []


async def test_an_enode_away_is_named_and_the_rest_works(scene: Scene) -> None:
    """Overview, enodes and topics say what is missing. Messages of the other enode are still shown and sent."""
    await scene.cluster.create_topic("wide", queues=1)
    async with scene.mq.producer("wide") as producer:
        for number in range(8):
            await producer.send(Message(b"%d" % number))
    page = await scene.page("/")
    await page.get_by_text("No problem found").wait_for()
    await scene.cluster.close("enode-1")
    try:
        await page.locator(".problem", has_text="enode-1").first.wait_for()
        await page.locator(".problem", has_text="enode-1").get_by_text("since").first.wait_for()
        assert await serious_findings(page) == []
        enodes = await scene.page("/enodes")
        await enodes.get_by_text("Enode enode-1 is away").wait_for()
        topic = await scene.page("/topics/wide")
        await topic.get_by_text("Not complete: enode enode-1 cannot be reached").wait_for()
        await topic.locator("#live-state", has_text="live").wait_for()
        async with scene.mq.producer("wide") as producer:
            await producer.send(Message(b"still sent"))
        await topic.locator("tbody tr", has_text="still sent").first.wait_for()
    finally:
        await scene.cluster.open_enode("enode-1")
    await page.get_by_text("No problem found").wait_for()
    assert scene.outside_requests == []


async def test_a_leader_change_is_watched_live(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The transfer is requested on the page of the enodes, which then shows the next leader without a reload."""
    async with (
        open_scene(tmp_path_factory.mktemp("replicas"), enodes=0) as scene,
        open_members(scene.cluster) as members,
    ):
        await leading(scene.cluster, members)
        page = await scene.page("/enodes")
        table = page.get_by_role("region", name="Replicas of enode-0")
        leader = table.locator("tr", has_text="leading")
        await leader.wait_for()
        before = await leader.locator("td").first.inner_text()
        after = "2" if before == "1" else "1"
        await table.locator("tr", has_text="following").nth(1).wait_for()
        await page.get_by_role("combobox", name="Enode").select_option("enode-0")
        await page.get_by_label("New leader").fill(after)
        await page.get_by_role("button", name="Transfer leadership").click()
        await leader.locator("td").first.get_by_text(after, exact=True).wait_for()
        assert await serious_findings(page) == []
