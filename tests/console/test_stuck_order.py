"""The tutorial of the console: each of its steps shows what its page says."""

import platform
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed; run `make console-setup`")

from tests.console.scene import open_scene
from tests.console.stuck_order import CLIENT_ID, stuck_order, walk

pytestmark = [pytest.mark.browser]


async def test_the_stuck_order_is_found_and_explained(tmp_path: Path) -> None:
    """Each page names its part: the failing group, the order, the error with its attempt, and the number of retries."""
    shown: dict[str, str] = {}
    async with open_scene(tmp_path, client_id=CLIENT_ID) as scene, stuck_order(scene.mq):
        page = await scene.page("/")

        async def look(step: str) -> None:
            shown[step] = await page.locator("main").inner_text()

        await walk(page, look)
    assert "1 message waits in retries" in shown["problems"]
    assert "order-1042" in shown["found"]
    assert "State: delayed, attempt 1" in shown["message"]
    assert "card 4711 was declined" in shown["message"]
    assert "1 message behind" in shown["group"]
    assert CLIENT_ID in shown["message"]
    assert not any(platform.node() in text for text in shown.values()), "a picture would have the name of this machine"
