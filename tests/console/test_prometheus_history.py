"""Lag and rates of more than an hour, from a real Prometheus. While it is away, pages name the reason."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest
import pytest_asyncio

pytest.importorskip("playwright", reason="Playwright is not installed; run `make console-setup`")

from playwright.async_api import Page

from ortoo.client import ConsumerSettings, Message
from ortoo.verification.servers.ports import free_address
from tests.console.scene import Scene, open_scene, serious_findings
from tests.deploy.prometheus import CLUSTER, MISSING, Prometheus, prometheus

pytestmark = [
    *(pytest.mark.browser, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)),
    pytest.mark.skipif(bool(MISSING), reason=f"{MISSING} not found; run `make deploy-tools`"),
]

GROUP = "a|b"
"""A name that is a condition in the patterns of PromQL."""


@dataclass
class ScrapedScene:
    """A cluster that Prometheus scrapes, beside another one with equal names."""

    scene: Scene
    server: Prometheus
    stack: AsyncExitStack
    """Closing it stops Prometheus."""

    async def page(self, path: str, **options: object) -> Page:
        """A page of the console."""
        return await self.scene.page(path, **options)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scraped(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ScrapedScene]:
    """A group that is two messages behind. Prometheus has its series twice: also as those of another cluster."""
    folder = tmp_path_factory.mktemp("scraped")
    enode, snode, address = free_address(), free_address(), free_address()
    settings = {"enode": {"metrics_address": enode}, "snode": {"metrics_address": snode}}
    console = {"prometheus_url": f"http://{address}", "prometheus_labels": (f"{CLUSTER}=shop",)}
    async with open_scene(folder, settings=settings, console=console) as scene, AsyncExitStack() as stack:
        for topic in ("orders", "returns", "a"):
            await scene.cluster.create_topic(topic, queues=1)
        consuming = ConsumerSettings(from_beginning=True)
        async with (
            scene.mq.consumer(GROUP, ["orders", "returns"], consuming) as consumer,
            scene.mq.producer("orders") as producer,
        ):
            targets = {"shop": [enode, snode], "other": [enode, snode]}
            server = await stack.enter_async_context(prometheus(folder / "prometheus", address, targets))
            messages = aiter(consumer)
            for _ in range(3):  # rates need counters that grow between scrapes
                await producer.send(Message(b"done"))
                (await anext(messages)).ack()
                await scene.cluster.clock.sleep(1)
        async with scene.mq.producer("orders") as producer:
            for _ in range(2):
                await producer.send(Message(b"waits"))
        lag = f'sum(rocketmq_consumer_lag_messages{{consumer_group="{GROUP}"}}) == 4'
        await server.until(lambda: server.value_of(lag), within_s=120)
        yield ScrapedScene(scene, server, stack)


async def cells(page: Page) -> list[str]:
    """The first row of the table."""
    await page.get_by_text("The largest lag of each").click()
    row = page.get_by_role("region", name="Lag over the last").locator("tbody tr").first
    return [str(one) for one in await row.locator("td").all_inner_texts()]


@pytest.mark.parametrize(("span", "label"), [("6h", "6 hours"), ("24h", "24 hours"), ("7d", "7 days")])
async def test_the_lag_and_the_rates_of_a_longer_time_are_shown(scraped: ScrapedScene, span: str, label: str) -> None:
    """The values are those of this cluster alone, and of the group whose name is a pattern. The charts are drawn."""
    page = await scraped.page("/groups/a%7Cb", viewport={"width": 400, "height": 800})
    await page.get_by_label("Time").select_option(span)
    await page.get_by_role("button", name="Show").click()
    await page.get_by_role("heading", name=f"Lag over the last {label}").wait_for()
    while not await page.get_by_text("The largest lag of each").count():
        await page.reload()
    found = await cells(page)
    while found[1] != "2" or "–" in found[3:]:
        await page.reload()
        found = await cells(page)
    assert float(found[3]) >= 0
    await page.locator("[data-kind=lag] canvas").wait_for()
    await page.locator("[data-kind=rates] canvas").wait_for()
    assert await serious_findings(page) == []
    assert not await page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
    assert scraped.scene.faults == []
    assert scraped.scene.outside_requests == []


async def test_one_topic_is_shown_and_topics_of_others_are_refused(scraped: ScrapedScene) -> None:
    """Prometheus knows no permissions, so the console asks it only for topics of the group."""
    page = await scraped.page("/groups/a%7Cb?range=6h&topic=orders")
    while not await page.get_by_text("The largest lag of each").count():
        await page.reload()
    while (await cells(page))[1] != "2":
        await page.reload()
    for path, status in (
        ("/groups/a%7Cb?range=6h&topic=a", 404),
        ("/groups/a%7Cb/lag-history?range=6h&topic=a", 404),
        ("/groups/unknown/lag-history?range=6h", 404),
        ("/groups/a%7Cb?range=5h", 400),
    ):
        assert (await page.request.get(scraped.scene.url(path))).status == status, path


async def test_without_prometheus_the_page_names_the_reason_and_the_rest_works(scraped: ScrapedScene) -> None:
    """The last hour comes from the cluster."""
    await scraped.stack.aclose()
    page = await scraped.page("/groups/a%7Cb?range=6h")
    await page.get_by_text("Not shown: Prometheus at http://").first.wait_for()
    await page.get_by_text("2 messages behind").wait_for()
    values = await page.request.get(scraped.scene.url("/groups/a%7Cb/lag-history?range=6h"))
    assert (await values.json())["times_s"] == []
    await page.get_by_label("Time").select_option("1h")
    await page.get_by_role("button", name="Show").click()
    await page.get_by_role("heading", name="Lag over the last hour").wait_for()
    assert await serious_findings(page) == []
