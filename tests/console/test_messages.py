"""A message is found by its id or key and explained, and its content is shown as inert text."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

pytest.importorskip("playwright", reason="Playwright is not installed; run `make console-setup`")

from ortoo.client import Message, PopSettings
from tests.console.scene import Scene, open_scene, serious_findings

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

HOSTILE = '<script>document.title="owned"</script><img src=x onerror="document.title=1">\u202egnp\x1b]0;owned\x07'
"""Markup, a control that reverses the order of text, and a terminal escape."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    """A cluster with a topic."""
    async with open_scene(tmp_path_factory.mktemp("messages")) as opened:
        await opened.cluster.create_topic("orders")
        yield opened


async def test_an_id_alone_finds_its_message_and_each_group_is_explained(scene: Scene) -> None:
    """The id contains its topic. One group has failed with the message, and the page shows consumer and error."""
    async with scene.mq.producer("orders") as producer:
        receipt = await producer.send(Message(b"stuck", "paid", ("order-7",), properties={"region": "EU"}))
    async with scene.mq.pop_consumer("billing", "orders", settings=PopSettings(messages_max=1)) as consumer:
        [popped] = await consumer.pop()
        await popped.nack(3_600_000, error="the card was <b>declined</b>")
    page = await scene.page("/messages")
    await page.get_by_label("Message id or key").fill(receipt.message_id)
    await page.get_by_role("button", name="Find").click()
    await page.get_by_role("cell", name="stuck", exact=True).wait_for()
    await page.locator("main table a").first.click()
    await page.get_by_role("heading", name=f"Message {receipt.message_id}").wait_for()
    text = await page.locator("main").inner_text()
    assert "State: delayed, attempt 1" in text
    assert "the card was <b>declined</b>" in text, "the error is shown as text"
    assert "EU" in text
    assert await serious_findings(page) == []


async def test_a_key_finds_messages_newest_first(scene: Scene) -> None:
    """The search for a key asks for the topic."""
    async with scene.mq.producer("orders") as producer:
        for number in range(3):
            await producer.send(Message(b"order %d" % number, keys=("customer-1",)))
    page = await scene.page("/messages?text=customer-1")
    await page.get_by_text("Give the topic").wait_for()
    await page.get_by_label("Topic").fill("orders")
    await page.get_by_role("button", name="Find").click()
    await page.get_by_text("3 messages, newest first; these are all.").wait_for()
    bodies = [await row.locator("td").nth(4).inner_text() for row in await page.locator("tbody tr").all()]
    assert bodies == ["order 2", "order 1", "order 0"]


async def test_a_delayed_message_is_explained_and_cancelled(scene: Scene) -> None:
    """Its id finds the reason why no group gets it yet. The page of delayed messages cancels it."""
    async with scene.mq.producer("orders") as producer:
        receipt = await producer.send(Message(b"later", deliver_at_ms=scene.cluster.clock.now_ms() + 3_600_000))
    page = await scene.page(f"/messages?topic=orders&text={receipt.message_id}")
    await page.get_by_role("heading", name="Not stored in the topic yet").wait_for()
    assert "the message is delayed for another" in await page.locator("main").inner_text()
    await page.get_by_role("link", name="Delayed messages of the topic").click()
    await page.get_by_text(receipt.message_id).wait_for()
    assert await serious_findings(page) == []
    await page.get_by_role("button", name="Cancel message").click()
    await page.get_by_text("No delayed message on the enodes that answer.").wait_for()


async def test_what_clients_send_is_inert(scene: Scene) -> None:
    """Markup, bidirectional controls and terminal escapes in body, key, tag and properties are shown as text."""
    topic = "hostile"
    await scene.cluster.create_topic(topic)
    page = await scene.page(f"/topics/{topic}")
    await page.locator("#live-state", has_text="live").wait_for()
    async with scene.mq.producer(topic) as producer:
        hostile = HOSTILE.replace("\x1b", "").replace("\x07", "")
        receipt = await producer.send(Message(HOSTILE.encode(), keys=("<i>key</i>",), properties={"p": hostile}))
    await page.locator("tbody tr").filter(has_text="<script>").first.wait_for()
    live_title = await page.title()
    await page.goto(scene.url(f"/messages?topic={topic}&text={receipt.message_id}"))
    await page.locator("tbody a").first.click()
    await page.get_by_role("heading", name="Body").wait_for()
    shown = await page.locator("pre code").first.inner_text()
    assert (live_title, await page.title()) == ("Topic hostile – Ortoo", "Message – Ortoo")
    assert "\\u202egnp\\x1b]0;owned\\x07" in shown
    assert await page.locator("main script, main img, main i").count() == 0
    assert scene.faults == []


async def test_a_large_body_and_bytes_that_are_no_text(scene: Scene) -> None:
    """The page shows the start of 4 MiB with a note, and offers all bytes as a file that browsers do not interpret."""
    body = b"\xff\xfe<html>" + b"x" * ((4 << 20) - 8)
    async with scene.mq.producer("orders") as producer:
        receipt = await producer.send(Message(body))
    page = await scene.page(f"/messages?topic=orders&text={receipt.message_id}")
    await page.locator("tbody a").first.click()
    await page.get_by_text("the first 64.0 KiB are shown").wait_for()
    async with page.expect_download() as download:
        await page.get_by_role("link", name="Download the body").click()
    file = await (await download.value).path()
    assert await asyncio.to_thread(file.read_bytes) == body
    response = await page.request.get(
        await page.get_by_role("link", name="Download the body").evaluate("it => it.href")
    )
    assert response.headers["content-type"] == "application/octet-stream"
    assert response.headers["content-disposition"].startswith("attachment")


async def test_a_message_is_sent_from_the_page_of_its_topic(scene: Scene) -> None:
    """Body, tag, keys and properties arrive as they were typed."""
    page = await scene.page("/topics/orders")
    await page.get_by_label("Body").fill("two\nlines")
    await page.get_by_label("Tag").fill("typed")
    await page.get_by_label("Keys, separated by spaces").fill("a b")
    await page.get_by_label("Properties").fill("region=EU")
    await page.get_by_role("button", name="Send message").click()
    await page.get_by_text("Sent as message").wait_for()
    [stored] = [one async for one in scene.mq.admin.tail_last("orders", 1, follow=False)]
    message = stored.message
    assert (message.body, message.tag, tuple(message.keys)) == (b"two\nlines", "typed", ("a", "b"))
    assert message.properties == {"region": "EU"}
    assert scene.outside_requests == []
