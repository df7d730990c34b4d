"""The tutorial of the console as a walk through its pages. `make screenshots` takes the pictures of the page."""

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from playwright.async_api import Page

from ortoo.client import Client, Message, PopConsumer, PopSettings
from tests.console.scene import open_scene

VIEW = {"width": 1000, "height": 620}
KEY = "order-1042"
CLIENT_ID = "billing-1"
"""The id of the client in the pictures. A generated id would have the name of this machine."""
Step = Callable[[str], Awaitable[object]]


@contextlib.asynccontextmanager
async def stuck_order(mq: Client) -> AsyncIterator[PopConsumer]:
    """Some orders, of which one fails again and again at its only consumer."""
    await mq.admin.create_topic("orders")
    async with mq.producer("orders") as producer:
        for number in (1041, 1042, 1043):
            await producer.send(Message(b'{"amount": 5}', keys=(f"order-{number}",), message_group=f"order-{number}"))
    async with mq.pop_consumer("billing", "orders", settings=PopSettings(messages_max=1)) as consumer:
        for _ in range(3):
            [message] = await consumer.pop()
            if message.keys == (KEY,):
                await message.nack(3_600_000, error="card 4711 was declined")
            else:
                await message.ack()
        yield consumer


async def walk(page: Page, at: Step) -> None:
    """Read the problem, find the order by its key, read why it waits, and look at the group."""
    await page.get_by_text("failing handler").wait_for()
    await at("problems")
    await page.get_by_role("link", name="Find a message").click()
    await page.get_by_label("Message id or key").fill(KEY)
    await page.get_by_label("Topic").fill("orders")
    await page.get_by_role("button", name="Find", exact=True).click()
    await page.get_by_text("1 message, newest first").wait_for()
    await at("found")
    await page.locator("tbody a").first.click()
    await page.get_by_text("card 4711 was declined").first.wait_for()
    await at("message")
    await page.get_by_role("link", name="billing").click()
    await page.get_by_role("heading", name="Group billing").wait_for()
    await page.get_by_role("region", name="Topics of the group").wait_for()
    await at("group")


async def take_screenshots(folder: Path) -> None:
    """Write one picture for each step."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data:
        async with open_scene(Path(data), client_id=CLIENT_ID) as scene, stuck_order(scene.mq):
            page = await scene.page("/", viewport=VIEW, color_scheme="light")
            await walk(page, lambda name: page.screenshot(path=folder / f"console-{name}.png"))


if __name__ == "__main__":
    asyncio.run(take_screenshots(Path(sys.argv[1])))
