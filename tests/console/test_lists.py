"""Lists are read in pages: each name is shown once, and a list begins at any name."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

pytest.importorskip("playwright", reason="Playwright is not installed; run `make console-setup`")

from playwright.async_api import Page

from tests.console.scene import Scene, open_scene

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

NAMES = [f"n-{number:03}" for number in range(130)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    """A cluster with more topics and groups than a page shows."""
    async with open_scene(tmp_path_factory.mktemp("lists")) as opened:
        await asyncio.gather(*(opened.cluster.create_topic(name, queues=1) for name in NAMES))
        await asyncio.gather(*(opened.mq.admin.put_group(name) for name in NAMES))
        yield opened


async def names(page: Page) -> list[str]:
    """The names on a page."""
    found: list[str] = await page.locator("tbody td:first-child").all_inner_texts()
    return found


@pytest.mark.parametrize("path", ["/topics", "/groups"])
async def test_two_pages_show_each_name_once(scene: Scene, path: str) -> None:
    """The second page leads back to the first one."""
    page = await scene.page(path)
    first = await names(page)
    await page.get_by_role("link", name="Next page").click()
    await page.get_by_role("link", name="First page").wait_for()
    assert first + await names(page) == NAMES
    assert await page.get_by_role("link", name="Next page").count() == 0
    await page.get_by_label("Begin at name").fill("n-120")
    await page.get_by_role("button", name="Show").click()
    await page.wait_for_url("**from=n-120")
    assert await names(page) == NAMES[120:]
    assert scene.faults == []
