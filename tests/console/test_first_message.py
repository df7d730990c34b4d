"""A newcomer opens the console: the overview is green, and the first message appears as it is sent."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

pytest.importorskip("playwright", reason="Playwright is not installed; run `make console-setup`")

from ortoo.client import Message
from ortoo.console.app import open_console
from ortoo.console.settings import ConsoleSettings
from tests.console.scene import Scene, open_scene, serious_findings

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    """A cluster without access rules."""
    async with open_scene(tmp_path_factory.mktemp("first")) as opened:
        yield opened


async def test_the_overview_of_a_healthy_cluster_is_green(scene: Scene) -> None:
    """All processes reported, and the page says that every check ran."""
    page = await scene.page("/")
    await page.get_by_text("No problem found. 3 processes reported, and every check ran.").wait_for()
    assert await serious_findings(page) == []
    assert scene.faults == []
    assert scene.outside_requests == []


async def test_a_topic_is_created_and_its_first_message_is_seen(scene: Scene) -> None:
    """The topic's page follows the topic: a message that another program sends appears without a reload."""
    page = await scene.page("/topics")
    await page.get_by_label("Name", exact=True).fill("orders")
    await page.get_by_role("button", name="Create topic").click()
    await page.get_by_role("heading", name="Topic orders").wait_for()
    await page.locator("#live-state", has_text="live").wait_for()
    async with scene.mq.producer("orders") as producer:
        await producer.send(Message(b"first message", "paid", ("order-7",)))
        row = page.locator("table[data-follow] tbody tr")
        await row.filter(has_text="first message").wait_for()
        await producer.send(Message(b"second message"))
        await row.filter(has_text="second message").wait_for()
    texts = await row.all_inner_texts()
    assert [("second" in one, "first" in one) for one in texts] == [(True, False), (False, True)], "newest first"
    assert await serious_findings(page) == []
    assert scene.faults == []
    assert scene.outside_requests == []


async def test_a_console_stops_at_once_while_pages_follow_topics(scene: Scene) -> None:
    """The endless answer ends with the process, and its page says that the connection is lost."""
    await scene.cluster.create_topic("followed")
    settings = ConsoleSettings(listen_address="127.0.0.1:0", snode_address=scene.cluster.address)
    async with open_console(settings) as console:
        page = await scene.page("/")
        await page.goto(f"http://{console.address}/topics/followed")
        await page.locator("#live-state", has_text="live").wait_for()
    await page.locator("#live-state", has_text="connection lost").wait_for()
