"""Client ids, errors, names in addresses and fields of forms are data: pages show them as inert text."""

from pathlib import Path
from urllib.parse import quote

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed; run `make console-setup`")

from ortoo.client import Message, PopSettings
from tests.console.scene import open_scene, serious_findings

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

HOSTILE = '"><script>document.title="owned"</script><img src=x onerror="document.title=1">\u202egnp'
PATHS = (
    *("/", "/topics/orders", "/groups/victims", "/groups/victims/explain?topic=orders", "/clients"),
    *("/groups/victims/dead-letters", "/message?topic=orders&enode=enode-0&queue=0&offset=0"),
    f"/client?id={quote(HOSTILE)}",
    *(f"/{kind}/{quote(HOSTILE, safe='')}" for kind in ("topics", "groups", "nothing")),
    *(f"/{kind}/{quote(HOSTILE, safe='')}/alter?permission={quote(HOSTILE)}" for kind in ("topics", "groups")),
    *(f"{path}={quote(HOSTILE)}" for path in ("/messages?topic", "/messages?text", "/topics?from", "/groups?from")),
    *(f"{path}={quote(HOSTILE)}" for path in ("/delayed?topic", "/transactions?topic", "/settings?role")),
    *(f"{path}={quote(HOSTILE)}" for path in ("/clients?group", "/sign-in?next", "/groups/victims/reset?topic")),
    f"/groups/victims/dead-letters?where={quote(HOSTILE)}",
    f"/topics/orders/alter?permission={quote(HOSTILE)}",
)


async def test_no_page_interprets_what_clients_and_addresses_say(tmp_path: Path) -> None:
    """No element of the text appears, no script runs, and the order of the text around it stays."""
    async with open_scene(tmp_path) as scene:
        await scene.cluster.create_topic("orders", queues=1)
        async with scene.mq.producer("orders") as producer:
            for _ in range(2):
                await producer.send(Message(HOSTILE.encode(), HOSTILE.replace("\u202e", ""), (HOSTILE,)))
        settings = PopSettings(messages_max=2, client_id=HOSTILE)
        async with scene.mq.pop_consumer("victims", "orders", settings=settings) as consumer:
            first, second = await consumer.pop(wait_ms=10_000)
            await first.nack(3_600_000, error=HOSTILE)
            await second.park(HOSTILE)
            page = await scene.page("/")
            for path in PATHS:
                await page.goto(scene.url(path))
                assert "owned" not in await page.title() or "script" in await page.title(), path
                assert await page.locator("main script, main img").count() == 0, path
                assert "\u202e" not in await page.locator("body").inner_text(), path
                assert await serious_findings(page) == [], path
        assert scene.faults == []
        assert scene.outside_requests == []
