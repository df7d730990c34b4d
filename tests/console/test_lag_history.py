"""The chart of a group's lag over the last hour, and the table of the same values."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

pytest.importorskip("playwright", reason="Playwright is not installed; run `make console-setup`")

from ortoo.client import ConsumerSettings, Message
from tests.console.scene import Scene, open_scene, serious_findings

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    """A group that is two messages behind in one topic, and one in another."""
    async with open_scene(tmp_path_factory.mktemp("history")) as opened:
        for topic in ("orders", "returns"):
            await opened.cluster.create_topic(topic, queues=1)
        async with opened.mq.consumer("g", ["orders", "returns"], ConsumerSettings(from_beginning=True)) as consumer:
            for topic in ("orders", "returns"):
                async with opened.mq.producer(topic) as producer:
                    await producer.send(Message(b"first"))
            messages = aiter(consumer)
            for _ in range(2):
                (await anext(messages)).ack()
        for topic, count in (("orders", 2), ("returns", 1)):
            async with opened.mq.producer(topic) as producer:
                for _ in range(count):
                    await producer.send(Message(b"waits"))
        yield opened


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_chart_is_drawn_and_grows(scene: Scene, scheme: str) -> None:
    """A sample appears without a reload. The page fits 400 pixels, and axe has no serious finding."""
    page = await scene.page("/groups/g", color_scheme=scheme, viewport={"width": 400, "height": 800})
    while not await page.locator("[data-chart]").count():
        await page.reload()  # the enode takes its first sample soon after it became leader
    chart = page.locator("[data-chart]")
    await page.locator("[data-chart] canvas").wait_for()
    before = await chart.get_attribute("data-samples")
    await page.locator(f"[data-chart]:not([data-samples='{before}'])").wait_for()
    assert await serious_findings(page) == []
    assert not await page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
    await page.get_by_role("button", name="Theme:").click()
    await page.get_by_role("button", name="Times:").click()
    await page.locator("[data-chart] canvas").wait_for()
    assert scene.faults == []
    assert scene.outside_requests == []


async def test_the_table_has_the_lag_of_all_topics_or_of_one(scene: Scene) -> None:
    """Without JavaScript the table has the values, and the command shows the same."""
    page = await scene.page("/groups/g", java_script_enabled=False)
    rows = page.get_by_role("region", name="Lag over the last hour").locator("tbody tr")

    async def lag() -> str:
        return str(await rows.first.locator("td").nth(1).inner_text()) if await rows.count() else ""

    for address, shown in (("/groups/g", "3"), ("/groups/g?topic=returns", "1")):
        await page.goto(scene.url(address))
        await page.get_by_text("The largest lag").click()
        while await lag() != shown:
            await page.goto(scene.url(address))
            await page.get_by_text("The largest lag").click()
    await page.get_by_text("The same on the command line").click()
    await page.get_by_text("ortoo lag g returns --history").wait_for()
    await page.get_by_text("AdminService/ListLagHistory").first.wait_for()
