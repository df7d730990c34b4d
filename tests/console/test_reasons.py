"""The page `Explain` shows each reason why a group does not consume. A new reason needs a scenario."""

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import pytest_asyncio

pytest.importorskip("playwright", reason="Playwright is not installed; run `make console-setup`")

from playwright.async_api import Page

from ortoo.verification.servers.cluster import SMALL_STORE
from tests.console.scene import Scene, open_scene
from tests.console.stuck_messages import OF_RETENTION, SCENARIOS, Stuck, known_reasons, unread_for_long

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
DOCTOR_PAGE = Path(__file__).parents[2] / "docs/operations/doctor.md"
DAY_MS = 86_400_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    """A cluster with two enodes."""
    settings: dict[str, dict[str, Any]] = {
        "namesrv": {"lease_s": 2.0},
        "enode": {"transaction_check_interval_ms": 600_000},
    }
    async with open_scene(tmp_path_factory.mktemp("reasons"), enodes=2, settings=settings) as opened:
        yield opened


async def wait_for_reason(scene: Scene, page: Page, stuck: Stuck, reason: str) -> None:
    """Load the page until it shows the reason; the limit is that of the test."""
    query = urlencode({"topic": stuck.topic, "message": stuck.message})
    while True:
        await page.goto(scene.url(f"/groups/{stuck.group}/explain?{query}"))
        shown = await page.locator("ol.chain li strong").all_inner_texts()
        if reason in shown:
            break
        await scene.cluster.clock.sleep(0.2)
    item = page.locator("ol.chain li", has=page.locator("strong", has_text=reason)).first
    assert len(await item.inner_text()) > len(reason) + 10, "a reason has what was observed"


def test_every_reason_has_a_scenario_and_a_row_in_the_page() -> None:
    """The list is read from the code of the snode."""
    assert known_reasons() == SCENARIOS.keys() | set(OF_RETENTION)
    page = DOCTOR_PAGE.read_text()
    assert [one for one in known_reasons() if f"`{one}`" not in page] == []


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("reason", SCENARIOS)
async def test_the_page_shows_the_reason(scene: Scene, reason: str) -> None:
    """Real clients make the situation; the page names the reason with what was observed."""
    page = await scene.page("/groups")
    async with SCENARIOS[reason](scene) as stuck:
        await wait_for_reason(scene, page, stuck, reason)
    await scene.close_pages()
    assert scene.faults == []


async def test_the_page_shows_what_retention_takes(tmp_path: Path) -> None:
    """First the warning, and then the number of messages that are lost."""
    # The warning stays until the enode looks for old segments, however long the page takes.
    store = dataclasses.replace(SMALL_STORE, retention_age_ms=5_000, retention_interval_ms=DAY_MS)
    async with open_scene(tmp_path, store=store) as scene:
        page = await scene.page("/groups")
        warning, loss = OF_RETENTION
        async with unread_for_long(scene) as stuck:
            await wait_for_reason(scene, page, stuck, warning)
            await scene.cluster.close("enode-0")
            scene.cluster.store = dataclasses.replace(store, retention_interval_ms=100)
            await scene.cluster.open_enode("enode-0")
            await wait_for_reason(scene, page, stuck, loss)
