"""Topics and groups are changed exactly as the preview shows, and dangerous changes need the name."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

pytest.importorskip("playwright", reason="Playwright is not installed; run `make console-setup`")

from tests.console.scene import Scene, open_scene, serious_findings

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    """A cluster with two enodes."""
    async with open_scene(tmp_path_factory.mktemp("alterations"), enodes=2) as opened:
        yield opened


async def test_a_topic_is_changed_as_previewed(scene: Scene) -> None:
    """The preview names the effect and changes nothing; the change needs the name of the topic."""
    await scene.cluster.create_topic("orders", queues=2, enodes=("enode-0",))
    page = await scene.page("/topics/orders")
    await page.get_by_role("link", name="Change permission, queues or enodes").click()
    await page.get_by_label("Permission").select_option("read_only")
    await page.get_by_label("Additional enode").select_option("enode-1")
    await page.get_by_role("button", name="Preview").click()
    await page.get_by_text("Sends to the topic are refused.").wait_for()
    before = (await scene.mq.admin.describe_topic("orders")).topic
    assert (before.permission, len(before.placements)) == ("read_write", 1), "a preview changes nothing"
    assert await serious_findings(page) == []
    button = page.get_by_role("button", name="Change topic")
    assert await button.is_disabled()
    await page.get_by_label("Type orders").fill("orders")
    await button.click()
    await page.get_by_role("heading", name="Topic orders").wait_for()
    after = (await scene.mq.admin.describe_topic("orders")).topic
    assert (after.permission, {one.enode for one in after.placements}) == ("read_only", {"enode-0", "enode-1"})
    assert scene.faults == []


async def test_a_group_is_changed_as_previewed(scene: Scene) -> None:
    """A harmless change needs no name. A wrong value is answered beside the form."""
    await scene.mq.admin.put_group("billing")
    page = await scene.page("/groups/billing")
    await page.get_by_role("link", name="Change settings").click()
    await page.get_by_label("Retries").fill("list:1s,5s")
    await page.get_by_label("Park expired messages").select_option("yes")
    await page.get_by_label("Attempts").fill("many")
    await page.get_by_role("button", name="Preview").click()
    await page.get_by_role("alert").get_by_text("attempts_max").wait_for()
    await page.get_by_label("Attempts").fill("20")
    await page.get_by_role("button", name="Preview").click()
    await page.get_by_role("heading", name="Preview").wait_for()
    assert await page.get_by_label("Type billing").count() == 0
    command = await page.locator("details.commands pre").first.text_content()
    assert command == "ortoo group update billing --attempts 20 --retry list:1s,5s --park-expired"
    await page.get_by_role("button", name="Change group").click()
    await page.get_by_role("heading", name="Group billing").wait_for()
    group = (await scene.mq.admin.groups.describe("billing")).group
    assert (group.attempts_max, group.retry, group.park_expired) == (20, "list:1000,5000", True)


async def test_a_change_since_the_preview_is_noticed(scene: Scene) -> None:
    """Another operator was faster: the button changes nothing, and the page says why."""
    await scene.mq.admin.put_group("shared")
    page = await scene.page("/groups/shared/alter?attempts_max=3")
    await page.get_by_text("parked at their next failure").wait_for()
    await scene.mq.admin.groups.update("shared", attempts_max=5)
    await page.get_by_label("Type shared").fill("shared")
    await page.get_by_role("button", name="Change group").click()
    await page.get_by_text("has changed since the preview").wait_for()
    assert (await scene.mq.admin.groups.describe("shared")).group.attempts_max == 5
    await page.goto(scene.url("/groups/shared/alter?attempts_max=5"))
    await page.get_by_text("Nothing would change.").wait_for()
