"""Ten thousand topics and twenty thousand dead letters: each page is as fast as the first one."""

import asyncio
import statistics
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed; run `make console-setup`")

from playwright.async_api import Page

from bench.dead_letters import park_many
from tests.console.scene import Scene, open_scene

pytestmark = [pytest.mark.browser, pytest.mark.deep, pytest.mark.timeout(1_200)]

TOPICS, DEAD_LETTERS = 10_000, 20_000
AT_ONCE = 50
READY_MS_MAX = 300


async def ready_ms(page: Page, url: str) -> float:
    """Median time until the first byte of a page, of five loads."""
    times = []
    for _ in range(5):
        await page.goto(url)
        timing = "performance.getEntriesByType('navigation')[0]"
        times.append(float(await page.evaluate(f"{timing}.responseStart - {timing}.requestStart")))
    return statistics.median(times)


async def fill(scene: Scene) -> None:
    """Create the topics, and the dead letters. `python -m bench.console --dead-letters 1000000` fills more."""
    for first in range(0, TOPICS, AT_ONCE):
        creating = (scene.cluster.create_topic(f"t-{n:05}", queues=1) for n in range(first, first + AT_ONCE))
        await asyncio.gather(*creating)
    await park_many(scene.mq, "g", "failing", DEAD_LETTERS)


async def test_pages_of_long_lists_are_fast(tmp_path: Path) -> None:
    """The first page, a page in the middle and a page of dead letters near the end; each shows a part of the list."""
    async with open_scene(tmp_path) as scene:
        await fill(scene)
        page = await scene.page("/topics")
        assert await page.locator("tbody tr").count() == 100
        queue = (await scene.mq.admin.describe_topic("%DLQ%g")).queues[0].queue
        near_end = f"/groups/g/dead-letters?enode={queue.enode}&queue={queue.queue_id}&offset={DEAD_LETTERS - 100}"
        paths = ("/topics", "/topics?from=t-05000", "/groups/g/dead-letters", near_end)
        took = {path: await ready_ms(page, scene.url(path)) for path in paths}
        assert max(took.values()) < READY_MS_MAX, took
        await page.goto(scene.url("/topics?from=t-05000"))
        assert await page.locator("tbody a").first.inner_text() == "t-05000"
