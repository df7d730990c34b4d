"""A newcomer runs `ortoo dev`, opens the address that it prints, and sees the first message within a second."""

import shutil
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed; run `make console-setup`")

from playwright.async_api import async_playwright

from ortoo.cli.dev.cluster import open_dev_cluster, open_dev_console
from ortoo.client import Message, connect
from ortoo.common.process.clock import SystemClock
from tests.console.scene import OPTIONS, TIMEOUT_MS

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

VISIBLE_MS_MAX = 1_000
TRIES = 10
SEEN_AT = """text => new Promise(resolve => {
  const look = () => {
    const cell = [...document.querySelectorAll("tbody td")].find(one => one.textContent.trim() === text);
    if (cell && cell.checkVisibility()) requestAnimationFrame(() => resolve(Date.now()));
    else requestAnimationFrame(look);
  };
  look();
})"""
"""The time at which the browser has painted a cell with this text, milliseconds since 1970."""


async def test_the_first_message_is_visible_within_a_second_of_its_send(tmp_path: Path) -> None:
    """Measured by the browser, from the call of `send` to the painted row. A machine under load is late at times."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed; install it, such as by `apt-get install chromium`")
    clock, took_ms = SystemClock(), []
    async with (
        open_dev_cluster(tmp_path, "127.0.0.1:0") as snode,
        open_dev_console("127.0.0.1:0", snode.address) as console,
        connect(snode.address) as mq,
        async_playwright() as playwright,
        await playwright.chromium.launch(executable_path=program, args=list(OPTIONS), timeout=TIMEOUT_MS) as browser,
    ):
        for number in range(TRIES):
            topic = f"first-{number}"
            await mq.admin.create_topic(topic)
            page = await browser.new_page()
            page.set_default_timeout(TIMEOUT_MS)
            await page.goto(f"http://{console.address}/topics/{topic}")
            await page.locator("#live-state", has_text="live").wait_for()
            async with mq.producer(topic) as producer:
                sent_at_ms = clock.now_ms()
                await producer.send(Message(b"hello"))
                took_ms.append(await page.evaluate(SEEN_AT, "hello") - sent_at_ms)
            await page.close()
            if took_ms[-1] < VISIBLE_MS_MAX:
                return
    raise AssertionError(f"no first message was visible within {VISIBLE_MS_MAX} ms: {took_ms}")
