"""A group: its lag by state, why it waits, its dead letters and their replay, and the reset of its offsets."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

pytest.importorskip("playwright", reason="Playwright is not installed; run `make console-setup`")

from ortoo.client import ConsumerSettings, Message, PopSettings
from tests.console.scene import Scene, open_scene, serious_findings

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    """A cluster without access rules."""
    async with open_scene(tmp_path_factory.mktemp("groups")) as opened:
        yield opened


async def send(scene: Scene, topic: str, count: int, *, queues: int = 1) -> None:
    """Create a topic with messages."""
    await scene.cluster.create_topic(topic, queues=queues)
    async with scene.mq.producer(topic) as producer:
        await (await producer.send_many([Message(b"%d" % number) for number in range(count)]))


async def consume(scene: Scene, group: str, topic: str, count: int) -> None:
    """Acknowledge the first messages of a topic as a member that commits offsets."""
    async with scene.mq.consumer(group, [topic], ConsumerSettings(from_beginning=True)) as consumer:
        async for message in consumer:
            message.ack()
            count -= 1
            if not count:
                return


async def park(scene: Scene, group: str, topic: str, count: int) -> None:
    """Pop messages and park them."""
    async with scene.mq.pop_consumer(group, topic, settings=PopSettings(messages_max=100)) as consumer:
        while count > 0:
            messages = await consumer.pop()
            await asyncio.gather(*(one.park(f"error <{one.offset}>") for one in messages))
            count -= len(messages)


async def test_a_held_message_is_explained_down_to_its_consumer(scene: Scene) -> None:
    """The page of the group counts held messages, and the explanation names the consumer that has them."""
    await send(scene, "held", 3)
    async with scene.mq.pop_consumer("workers", "held", settings=PopSettings(messages_max=2)) as consumer:
        assert len(await consumer.pop()) == 2
        page = await scene.page("/groups")
        await page.get_by_role("link", name="workers").click()
        topics = page.get_by_role("region", name="Topics of the group")
        row = topics.locator("tr", has=page.get_by_role("link", name="held"))
        await row.wait_for()
        assert (await row.locator("td").all_inner_texts())[:5] == ["held", "pop", "3", "1", "2"]
        assert await serious_findings(page) == []
        await row.get_by_role("link", name="Explain").click()
        await page.get_by_role("heading", name="Reasons, the most important first").wait_for()
        client_id = scene.mq.admin._connection.client_id
        assert await page.locator("tbody tr", has_text=client_id).filter(has_text="leased").count() == 2
        assert await serious_findings(page) == []


async def test_a_paused_group_is_explained_and_resumed(scene: Scene) -> None:
    """Pause and resume take effect, and the explanation names the pause."""
    await send(scene, "paused", 2)
    await consume(scene, "sleepers", "paused", 1)
    page = await scene.page("/groups/sleepers")
    await page.get_by_role("button", name="Pause group").click()
    await page.get_by_text("The group is paused").wait_for()
    assert not (await scene.mq.admin.describe_group("sleepers")).consume_enabled
    await page.goto(scene.url("/groups/sleepers/explain?topic=paused"))
    await page.locator("ol.chain li").filter(has_text="may not consume").first.wait_for()
    await page.goto(scene.url("/groups/sleepers"))
    await page.get_by_role("button", name="Resume group").click()
    await page.get_by_role("button", name="Pause group").wait_for()
    assert (await scene.mq.admin.describe_group("sleepers")).consume_enabled


async def test_dead_letters_are_paged_and_replayed_after_a_dry_run(scene: Scene) -> None:
    """Two pages show each dead letter once. The dry run stores nothing, and the replay sends each one once."""
    await send(scene, "failing", 60)
    await park(scene, "losers", "failing", 60)
    page = await scene.page("/groups/losers/dead-letters")
    first = await page.locator("tbody td:nth-child(2)").all_inner_texts()
    assert await page.locator("tbody").get_by_text("error <0>").count() == 1
    assert await serious_findings(page) == []
    await page.get_by_role("link", name="Next page").click()
    await page.get_by_role("link", name="First page").wait_for()
    second = await page.locator("tbody td:nth-child(2)").all_inner_texts()
    assert (len(first), len(second), len({*first, *second})) == (50, 10, 60)
    await page.get_by_role("button", name="Dry run").click()
    await page.get_by_text("60 messages would be sent to the group's retry topic.").wait_for()
    assert [one.replayed async for one in scene.mq.admin.list_dead_letters("losers")] == [False] * 60
    await page.get_by_role("button", name="Replay 60 dead letters").click()
    await page.get_by_text("60 messages were sent to the group's retry topic.").wait_for()
    assert [one async for one in scene.mq.admin.list_dead_letters("losers")] == []
    await page.goto(scene.url("/groups/losers/dead-letters"))
    assert await page.locator("tbody tr", has_text="yes").count() == 50


async def test_a_condition_selects_dead_letters(scene: Scene) -> None:
    """The condition applies to the list and to the replay; a wrong one is answered with its fault."""
    await send(scene, "choosy", 4)
    await park(scene, "choosers", "choosy", 4)
    page = await scene.page("/groups/choosers/dead-letters")
    await page.get_by_label("SQL condition, such as").fill("DLQ_ERROR = 'error <2>'")
    await page.get_by_role("button", name="Show").click()
    await page.wait_for_url("**where=**")
    assert await page.locator("tbody tr").count() == 1
    await page.goto(scene.url("/groups/choosers/dead-letters?where=DLQ_ERROR+%3D"))
    await page.get_by_role("heading", name="The request is not valid").wait_for()


async def test_offsets_move_exactly_as_the_preview_shows(scene: Scene) -> None:
    """No target is preselected. The preview names repeated messages, and the reset needs the name of the group."""
    await send(scene, "again", 5)
    await consume(scene, "readers", "again", 5)
    page = await scene.page("/groups/readers/reset?topic=again")
    assert await page.get_by_label("Target").input_value() == ""
    await page.get_by_label("Target").select_option("offset")
    await page.get_by_label("Time (UTC) or offset").fill("2")
    await page.get_by_role("button", name="Preview").click()
    await page.get_by_text("Up to 3 messages would be delivered again.").wait_for()
    assert await serious_findings(page) == []
    assert (await scene.mq.admin.describe_lag("readers", "again")).lag_messages == 0, "a preview moves nothing"
    apply = page.get_by_role("button", name="Reset offsets")
    assert await apply.is_disabled()
    await page.get_by_label("to move the offsets as shown").fill("readers")
    await apply.click()
    await page.wait_for_url("**/groups/readers")
    assert (await scene.mq.admin.describe_lag("readers", "again")).lag_messages == 3
    await page.goto(scene.url("/groups/readers/reset?topic=again&target=end"))
    await page.get_by_text("1 queue would move forward and stay unchanged.").wait_for()


async def test_a_topic_and_a_group_are_deleted_by_their_names(scene: Scene) -> None:
    """The buttons stay disabled until the name is typed. Both are restored afterwards."""
    await send(scene, "doomed", 1)
    await consume(scene, "doomed-group", "doomed", 1)
    page = await scene.page("/groups/doomed-group")
    button = page.get_by_role("button", name="Delete group")
    await page.get_by_label("Type doomed-group").fill("doomed")
    assert await button.is_disabled()
    await page.get_by_label("Type doomed-group").fill("doomed-group")
    await button.click()
    await page.wait_for_url("**/groups")
    await page.goto(scene.url("/topics/doomed"))
    await page.get_by_label("Type doomed").fill("doomed")
    await page.get_by_role("button", name="Delete topic").click()
    await page.wait_for_url("**/topics")
    assert [one.group.name for one in await scene.mq.admin.list_deleted_groups()] == ["doomed-group"]
    assert [one.topic.name for one in await scene.mq.admin.list_deleted_topics()] == ["doomed"]
    await page.get_by_role("button", name="Restore topic").click()
    await page.get_by_role("heading", name="Topic doomed").wait_for()
    await page.goto(scene.url("/groups"))
    assert await serious_findings(page) == []
    await page.get_by_role("button", name="Restore group").click()
    await page.get_by_role("heading", name="Group doomed-group").wait_for()
    assert (await scene.mq.admin.describe_lag("doomed-group", "doomed")).lag_messages == 0
    assert scene.faults == []
    assert scene.outside_requests == []


async def test_a_copy_of_a_dead_letter_is_edited_and_sent(scene: Scene) -> None:
    """The form has body, tag, keys and properties of the message, without those that servers added."""
    await scene.cluster.create_topic("typos", queues=1)
    async with scene.mq.producer("typos") as producer:
        await producer.send(Message(b"amuont=5\n</textarea><b>", "pay", ("k1", "k2"), properties={"region": "EU"}))
    await park(scene, "fixers", "typos", 1)
    page = await scene.page("/groups/fixers/dead-letters")
    await page.locator("tbody td:nth-child(2) a").click()
    await page.get_by_role("link", name="Edit and send a copy").click()
    await page.get_by_role("heading", name="Topic typos").wait_for()
    assert await page.get_by_label("Body").input_value() == "amuont=5\n</textarea><b>"
    assert await page.get_by_label("Properties").input_value() == "region=EU\n"
    await page.get_by_label("Body").fill("amount=5")
    await page.get_by_role("button", name="Send message").click()
    await page.get_by_text("Sent as message").wait_for()
    [*_, sent] = [one.message async for one in scene.mq.admin.tail_last("typos", 2, follow=False)]
    assert (sent.body, sent.tag, tuple(sent.keys)) == (b"amount=5", "pay", ("k1", "k2"))
    assert sent.properties == {"region": "EU"}


async def test_a_stuck_message_is_parked_after_a_preview(scene: Scene) -> None:
    """From the page of the message: the preview adds its message group, the name confirms, and the group continues."""
    await scene.cluster.create_topic("stuck", queues=1)
    async with scene.mq.producer("stuck") as producer:
        for number, message_group in enumerate(("order-1", "order-2", "order-1")):
            await producer.send(Message(b"%d" % number, message_group=message_group))
    async with scene.mq.pop_consumer("shop", "stuck", settings=PopSettings(messages_max=1, in_order=True)) as consumer:
        [held] = await consumer.pop()
        page = await scene.page(f"/message?topic=stuck&enode={held.queue.enode}&queue=0&offset={held.offset}")
        await page.get_by_role("link", name="Park").click()
        rows = page.get_by_role("region", name="Preview").locator("tbody tr")
        assert await rows.count() == 1
        await page.get_by_label("also the later messages of its message group").check()
        await page.get_by_role("button", name="Preview").click()
        await page.get_by_text("2 messages would be parked").wait_for()
        assert [await row.locator("td").nth(1).inner_text() for row in await rows.all()] == ["leased", "waiting"]
        assert [one async for one in scene.mq.admin.list_dead_letters("shop")] == [], "the preview parks nothing"
        assert await serious_findings(page) == []
        button = page.get_by_role("button", name="Park messages")
        assert await button.is_disabled()
        await page.get_by_label("Reason, for people").fill("broken amount")
        await page.get_by_label("Type shop to park").fill("shop")
        await button.click()
        await page.get_by_role("link", name="2 dead letters").click()
        await page.get_by_role("cell", name="broken amount").first.wait_for()
        assert [one.body for one in await consumer.pop()] == [b"1"]
    await page.goto(scene.url(f"/groups/shop/park?topic=stuck&enode={held.queue.enode}&queue=0&offset={held.offset}"))
    await page.get_by_text("Nothing would be parked").wait_for()
    await page.goto(scene.url(f"/message?topic=stuck&enode={held.queue.enode}&queue=0&offset={held.offset}"))
    await page.get_by_text("State: parked").wait_for()
    assert await page.get_by_role("link", name="Park").count() == 0
    assert scene.faults == []


async def test_the_reason_why_a_message_cannot_be_parked_is_shown(scene: Scene) -> None:
    """A group that commits offsets parks its first unfinished message, to which the explanation has a link."""
    await send(scene, "committed", 3)
    await consume(scene, "committers", "committed", 1)
    page = await scene.page("/groups/committers/explain?topic=committed")
    await page.locator("tbody tr").nth(1).get_by_role("link", name="Park").click()
    await page.get_by_text("has not finished the message at offset 1, which comes before 2").wait_for()
    await page.go_back()
    await page.locator("tbody tr").first.get_by_role("link", name="Park").click()
    await page.get_by_text("the offset of the group would be 2").wait_for()
    await page.get_by_label("Type committers to park").fill("committers")
    await page.get_by_role("button", name="Park message", exact=True).click()
    await page.get_by_role("link", name="1 dead letter").wait_for()
    assert (await scene.mq.admin.groups.describe("committers")).progress[0].lag_messages == 1
