"""An enode is drained, filled again, drained, stopped and retired. Each step says what it changes."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed; run `make console-setup`")

from ortoo.client import Message
from tests.console.scene import open_scene, serious_findings

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]


async def test_an_enode_is_drained_and_retired(tmp_path: Path) -> None:
    """A topic of this enode alone prevents the drain. Retiring is refused while the enode runs, or loses messages."""
    settings: dict[str, dict[str, Any]] = {"namesrv": {"lease_s": 2.0}}
    async with open_scene(tmp_path, enodes=2, settings=settings) as scene:
        admin = scene.mq.admin
        await scene.cluster.create_topic("both", queues=1)
        await scene.cluster.create_topic("alone", queues=1, enodes=("enode-1",))
        page = await scene.page("/enodes")
        row = page.get_by_role("region", name="Enodes").locator("tr", has_text="enode-1")
        await row.get_by_role("link", name="Drain or retire").click()
        await page.get_by_text("no other enode accepts messages of alone").wait_for()
        await page.get_by_text("Stop its processes first.").wait_for()
        await page.get_by_text("Nothing: the groups with members").wait_for()
        assert await serious_findings(page) == []
        await admin.update_topic("alone", add_enodes=["enode-0"])
        await page.reload()
        await page.get_by_text("2 topics: alone, both").wait_for()
        button = page.get_by_role("button", name="Drain enode")
        assert await button.is_disabled()
        await page.get_by_label("to stop sends to it").fill("enode-1")
        await button.click()
        await page.get_by_text("Drained: no topic sends to this enode.").wait_for()
        assert (await admin.describe_topic("both")).topic.publish_order == (("enode-0", 1),)
        await page.get_by_role("button", name="Resume sends to 2 topics").click()
        await page.get_by_role("button", name="Drain enode").wait_for()
        assert (await admin.describe_topic("both")).topic.publish_order == ()

        await scene.cluster.close("enode-1")
        while await page.get_by_text("It is away").count() == 0:
            await page.reload()
        await page.get_by_text("Not drained: alone, both.").wait_for()
        assert await serious_findings(page) == []
        await page.get_by_label("to remove it from 2 topics").fill("enode-1")
        await page.get_by_role("button", name="Retire enode").click()
        await page.get_by_text("2 topics, not drained").wait_for()
        await page.goto(scene.url("/enodes/enode-1/retire"))
        await page.get_by_label("lose these messages").check()
        await page.get_by_label("to remove it from 2 topics").fill("enode-1")
        await page.get_by_role("button", name="Retire enode").click()
        await page.get_by_role("heading", name="Enodes", exact=True).wait_for()
        assert [one.enode for one in (await admin.describe_topic("both")).topic.placements] == ["enode-0"]
        async with scene.mq.producer("both") as producer:
            await producer.send(Message(b"still sent"))
        assert scene.faults == []
