"""Every page at a width of 400 pixels, light and dark, and by the keyboard alone."""

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

pytest.importorskip("playwright", reason="Playwright is not installed; run `make console-setup`")

from ortoo.client import ConsumerSettings, Message
from ortoo.console.pages import ALL_PAGES
from tests.console.scene import Scene, open_scene, serious_findings

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

PATHS = (
    *("/", "/messages?topic=orders&text=key-1", "/message?topic=orders&enode=enode-0&queue=0&offset=0"),
    *("/topics", "/topics/orders", "/topics/orders/alter?permission=read_only", "/nothing-here"),
    *("/groups", "/groups/readers", "/groups/readers/alter?attempts_max=3", "/groups/readers/explain?topic=orders"),
    *("/groups/readers/dead-letters", "/groups/readers/reset?topic=orders&target=begin"),
    "/groups/readers/park?topic=orders&enode=enode-0&queue=0&offset=1",
    *("/enodes", "/enodes/enode-0/retire", "/delayed?topic=orders", "/transactions", "/clients", "/client?id=looker"),
    *("/users", "/settings", "/audit", "/sign-in"),
)
"""Addresses of all pages."""
PARTS = ("/state", "/left", "/live", "/body", "/lag-history")
"""Ends of addresses whose answers are no pages: parts of pages, server-sent events, and a file."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    """A cluster with a topic with messages, and a group that has consumed one of them."""
    async with open_scene(tmp_path_factory.mktemp("looks")) as opened:
        await opened.cluster.create_topic("orders", queues=1)
        async with opened.mq.producer("orders") as producer:
            for number in range(3):
                await producer.send(Message(b"x" * 400 + b"%d" % number, "tag", ("key-1",), properties={"a": "b"}))
        settings = ConsumerSettings(from_beginning=True, client_id="looker")
        async with opened.mq.consumer("readers", ["orders"], settings) as consumer:
            async for message in consumer:
                message.ack()
                break
            yield opened


async def test_every_page_is_looked_at_here() -> None:
    """A new page without an address in PATHS fails."""
    shown = [page.path for page in ALL_PAGES if not page.is_action and not page.path.endswith(PARTS)]
    looked_at = [path.partition("?")[0] for path in PATHS]
    patterns = {path: re.compile(re.sub(r"\{\w+\}", "[^/]+", path)) for path in shown}
    assert [path for path, pattern in patterns.items() if not any(map(pattern.fullmatch, looked_at))] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_page_fits_400_pixels_and_is_accessible(scene: Scene, scheme: str) -> None:
    """No page scrolls sideways as a whole, and axe has no serious finding."""
    page = await scene.page("/", color_scheme=scheme, viewport={"width": 400, "height": 800})
    for path in PATHS:
        await page.goto(scene.url(path))
        too_wide = await page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
        assert not too_wide, path
        assert await serious_findings(page) == [], path
        assert await page.locator("h1").count() == 1, path
    assert scene.faults == []
    assert scene.outside_requests == []


async def test_every_page_shows_its_commands(scene: Scene) -> None:
    """The `ortoo` command and the calls with grpcurl, without secrets."""
    [message] = [one async for one in scene.mq.admin.tail_last("orders", 1, follow=False)]
    place = f"topic=orders&enode={message.queue.enode}&queue={message.queue.queue_id}&offset={message.offset}"
    async with scene.mq.consumer("members", ["orders"]):
        while not (clients := await scene.mq.admin.groups.list_clients("members")):
            await scene.cluster.clock.sleep(0.1)
        page = await scene.page("/")
        calling = [path for path in PATHS if path not in ("/nothing-here", "/sign-in")]
        paths = (*calling, f"/message?{place}", f"/client?id={clients[0].client_id}")
        for path in paths:
            await page.goto(scene.url(path))
            await page.get_by_text("The same on the command line").click()
            shown = await page.locator(".commands code").all_inner_texts()
            assert any(one.startswith("ortoo ") for one in shown), path
            assert any(one.startswith("grpcurl ") for one in shown), path


async def test_the_keyboard_alone_finds_a_message(scene: Scene) -> None:
    """Tab reaches the skip link, the pages and the form; Enter follows and sends."""
    page = await scene.page("/")
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.textContent") == "Skip to the content"
    while await page.evaluate("document.activeElement.textContent") != "Find a message":
        await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/messages")
    while await page.evaluate("document.activeElement.name") != "text":
        await page.keyboard.press("Tab")
    await page.keyboard.type("key-1")
    await page.keyboard.press("Tab")
    await page.keyboard.type("orders")
    await page.keyboard.press("Enter")
    await page.get_by_text("3 messages, newest first; these are all.").wait_for()


async def test_the_keyboard_alone_pauses_a_group(scene: Scene) -> None:
    """Tab reaches the button with the name of the action, and Enter pushes it."""
    page = await scene.page("/groups/readers")
    while await page.evaluate("document.activeElement.textContent") != "Pause group":
        await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await page.get_by_text("The group is paused").wait_for()
    assert not (await scene.mq.admin.describe_group("readers")).consume_enabled
    while await page.evaluate("document.activeElement.textContent") != "Resume group":
        await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await page.get_by_role("button", name="Pause group").wait_for()


async def test_theme_and_time_zone_are_remembered(scene: Scene) -> None:
    """The switches change every page of this browser, from the first paint on."""
    page = await scene.page("/topics", timezone_id="Asia/Tokyo", color_scheme="light")
    assert "UTC" in await page.locator("tbody time").first.inner_text()
    await page.get_by_role("button", name="Times: UTC").click()
    for _ in range(2):
        await page.get_by_role("button", name="Theme:").click()
    await page.reload()
    assert (await page.locator("tbody time").first.inner_text()).endswith("+09:00")
    assert await page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(13, 17, 23)"
    assert await serious_findings(page) == []


async def test_a_followed_topic_can_be_paused_and_loads_nothing_from_outside(scene: Scene) -> None:
    """While it is paused, no message is added; then the page continues with the newest."""
    page = await scene.page("/topics/orders")
    state = page.locator("#live-state")
    await state.get_by_text("live", exact=True).wait_for()
    await page.get_by_role("button", name="Pause").click()
    await state.get_by_text("paused").wait_for()
    async with scene.mq.producer("orders") as producer:
        await producer.send(Message(b"while paused"))
    assert await page.locator("tbody tr", has_text="while paused").count() == 0
    await page.get_by_role("button", name="Continue").click()
    await page.locator("tbody tr", has_text="while paused").first.wait_for()
    assert scene.faults == []
    assert scene.outside_requests == []
