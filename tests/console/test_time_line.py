"""Delayed messages on a time line: the number in each step, and the list from a step on."""

from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed; run `make console-setup`")

from ortoo.client import Message
from tests.console.scene import open_scene, serious_findings

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

HOUR_MS = 3_600_000


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_delayed_messages_are_shown_on_a_time_line(tmp_path: Path, scheme: str) -> None:
    """Three hours with messages are three bars. The link of the last one leads to its messages."""
    async with open_scene(tmp_path) as scene:
        await scene.cluster.create_topic("reminders", queues=1)
        start_ms = (scene.cluster.clock.now_ms() // HOUR_MS + 10) * HOUR_MS
        async with scene.mq.producer("reminders") as producer:
            for hour, count in ((0, 1), (20, 3), (40, 2)):
                for _ in range(count):
                    await producer.send(Message(b"later", deliver_at_ms=start_ms + hour * HOUR_MS))
        page = await scene.page("/delayed?topic=reminders", color_scheme=scheme, viewport={"width": 400, "height": 800})
        assert await page.locator("svg.line rect:not(.axis)").count() == 3
        await page.get_by_text("6 messages in steps of 1 h").wait_for()
        await page.get_by_text("The number of each step").click()
        rows = page.get_by_role("region", name="Time line").locator("tbody tr")
        assert [await rows.nth(at).locator("td").nth(1).inner_text() for at in range(3)] == ["1", "3", "2"]
        assert await serious_findings(page) == []
        assert not await page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
        await rows.last.get_by_role("link", name="Show from here").click()
        await page.get_by_text("2 messages in steps of 1 s").wait_for()
        listed = page.get_by_role("region", name="Delayed messages").locator("tbody tr")
        assert await listed.count() == 2
        assert scene.faults == []
