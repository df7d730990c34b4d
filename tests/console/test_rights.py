"""Each action is hidden from users without its permission, refused when it is called anyway, and leaves an entry."""

import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

pytest.importorskip("playwright", reason="Playwright is not installed; run `make console-setup`")

from playwright.async_api import Page as BrowserPage

from ortoo.client import Message
from ortoo.common.groups.handle import Handle, HandleKind
from ortoo.common.logs import logger
from ortoo.console.pages import ALL_PAGES
from ortoo.console.web.sign_in_attempts import FREE_OF_USER
from ortoo.v1 import namesrv_pb2
from tests.console.scene import Scene, open_scene
from tests.console.test_access import SECRET, sign_in

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

RULES = """
[[user]]
access_key = "ann"
admin = true
[[user]]
access_key = "looker"
topics = { orders = "BROWSE" }
groups = { orders = "BROWSE" }
[[user]]
access_key = "sender"
topics = { orders = "PUB" }
[[user]]
access_key = "consumer"
topics = { orders = "SUB" }
groups = { orders = "SUB" }
[[user]]
access_key = "powerless"
"""
PAGES = ("/topics/orders", "/groups/orders", "/groups/orders/dead-letters", "/enodes", "/topics", "/groups")
OWN_ACTIONS: Mapping[str, set[str]] = {
    "looker": set(),
    "sender": {"/topics/orders/send"},
    "consumer": {"/groups/orders/dead-letters/preview"},
    "powerless": set(),
}
"""The actions on these pages, of each user without all permissions."""
ADMIN_ACTIONS = {
    *(
        "/topics/create",
        "/topics/orders/send",
        "/topics/orders/delete",
        "/groups/orders/pause",
        "/groups/orders/delete",
    ),
    "/groups/orders/dead-letters/preview",
}
FORMS: Mapping[str, dict[str, str]] = {
    "/topics/create": {"topic": "forged", "queues": "1"},
    "/topics/restore": {"topic": "orders"},
    "/topics/{name}/send": {"body": "forged"},
    "/topics/{name}/delete": {"confirmed": "orders"},
    "/topics/{name}/alter/apply": {
        "permission": "none",
        "preview": "permission: read_write -> none",
        "confirmed": "orders",
    },
    "/groups/restore": {"group": "orders"},
    "/groups/{name}/pause": {},
    "/groups/{name}/resume": {},
    "/groups/{name}/delete": {"confirmed": "orders"},
    "/groups/{name}/alter/apply": {"attempts_max": "3", "preview": "attempts_max: 16 -> 3", "confirmed": "orders"},
    "/groups/{name}/reset/apply": {"topic": "orders", "offsets": "enode-0 0 0", "confirmed": "orders"},
    "/groups/{name}/park/apply": {
        "topic": "orders",
        "enode": "enode-0",
        "queue": "0",
        "offsets": "0",
        "confirmed": "orders",
    },
    "/groups/{name}/dead-letters/preview": {},
    "/groups/{name}/dead-letters/replay": {},
    "/enodes/hand-over": {"enode": "enode-0", "replica": "1"},
    "/enodes/{name}/drain": {"confirmed": "orders"},
    "/enodes/{name}/fill": {},
    "/enodes/{name}/retire/apply": {"confirmed": "orders"},
    "/delayed/cancel": {"topic": "orders", "handle": "HANDLE"},
    "/transactions/end": {"transaction": "TRANSACTION", "verdict": "commit"},
    "/transactions/resume": {"transaction": "TRANSACTION"},
}
"""A valid form of each action; a new action without one fails here."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    """A cluster with users, a topic, and a group that has consumed it and has a dead letter."""
    folder = tmp_path_factory.mktemp("rights")
    (folder / "access.toml").write_text(RULES)
    settings: dict[str, dict[str, Any]] = {"snode": {"access_file": str(folder / "access.toml"), "insecure": True}}
    masked = {"bodies_masked": True}
    async with open_scene(folder, settings=settings, user=("ann", SECRET), console=masked) as opened:
        for user in ("ann", *OWN_ACTIONS):
            known = namesrv_pb2.User(access_key=user, enabled=True)
            await opened.cluster.name_service.PutUser(namesrv_pb2.PutUserRequest(user=known, secret_key=SECRET))
        await opened.cluster.create_topic("orders", queues=1)
        async with opened.mq.producer("orders") as producer:
            await producer.send(Message(b"salary: 5", keys=("person-7",)))
        async with opened.mq.pop_consumer("orders", "orders") as consumer:
            [message] = await consumer.pop()
            await message.park("broken")
        yield opened


async def signed_in(scene: Scene, user: str) -> BrowserPage:
    """A page of a user."""
    page = await scene.page("/sign-in")
    await sign_in(page, user)
    await page.get_by_role("button", name="Sign out").wait_for()
    return page


async def token(page: BrowserPage) -> str:
    """The token for forms of this session."""
    found = await page.locator("[name=csrf_token]").first.get_attribute("value")
    return str(found)


async def actions_on(scene: Scene, page: BrowserPage) -> set[str]:
    """The addresses of all forms that change something, on the pages that the user may see."""
    found: set[str] = set()
    for path in PAGES:
        await page.goto(scene.url(path))
        for form in await page.locator("main form[method=post]").all():
            found.add(str(await form.get_attribute("action")))
    return found


@pytest.mark.parametrize("user", OWN_ACTIONS)
async def test_a_user_sees_its_own_actions_alone(scene: Scene, user: str) -> None:
    """The admin sees all of them on the same pages."""
    page = await signed_in(scene, user)
    assert await actions_on(scene, page) == OWN_ACTIONS[user]
    admin = await signed_in(scene, "ann")
    assert await actions_on(scene, admin) == ADMIN_ACTIONS


async def handles(scene: Scene) -> dict[str, str]:
    """Handles of a delayed message and of a transaction of the topic, as an attacker may have seen them."""
    topic_id = (await scene.mq.admin.describe_topic("orders")).topic.topic_id
    seals = await scene.cluster.seals()
    delayed = Handle(HandleKind.DELAYED, "enode-0", topic_id, 0, 1, 1).encoded(seals)
    return {
        "HANDLE": delayed,
        "TRANSACTION": Handle(HandleKind.TRANSACTION, "enode-0", topic_id, 0, 1, 0).encoded(seals),
    }


async def test_every_action_is_refused_without_permission(scene: Scene) -> None:
    """Also with the valid form and token of a signed-in user. Each refusal leaves an entry that names the user."""
    assert {page.path for page in ALL_PAGES if page.is_action and page.changes_cluster} == FORMS.keys()
    page = await signed_in(scene, "powerless")
    page_token, known = await token(page), await handles(scene)
    logger.configure()
    with capture_logs() as lines:
        for path, fields in FORMS.items():
            form = {name: known.get(value, value) for name, value in fields.items()}
            url = scene.url(path.replace("{name}", "enode-0" if path.startswith("/enodes") else "orders"))
            if path.startswith("/enodes"):
                form = {name: "enode-0" if name == "confirmed" else value for name, value in form.items()}
            answer = await page.request.post(url, form={"csrf_token": page_token, **form})
            assert answer.status == 403, (path, await answer.text())
    refused = [one for one in lines if one["event"] == "console_action_refused"]
    assert [one["user"] for one in refused] == ["powerless"] * len(FORMS)
    assert {one["event"] for one in lines if one.get("user") == "powerless"} == {"console_action_refused"}
    assert [one.name for one in await scene.mq.admin.list_topics() if not one.name.startswith("%")] == ["orders"]


async def test_an_action_leaves_an_entry_with_its_user_and_object(scene: Scene) -> None:
    """Without the body of the message, and without the token of the session."""
    page = await signed_in(scene, "ann")
    await page.goto(scene.url("/topics/orders"))
    logger.configure()
    with capture_logs() as lines:
        await page.get_by_label("Body").fill("a secret text")
        await page.get_by_role("button", name="Send message").click()
        await page.get_by_text("Sent as message").wait_for()
    [entry] = [one for one in lines if one["event"] == "console_action"]
    assert (entry["user"], entry["action"], entry["name"]) == ("ann", "/topics/orders/send", "orders")
    assert "a secret text" not in str(lines)
    assert await token(page) not in str(lines)


async def test_a_masked_body_is_shown_on_request_and_logged(scene: Scene) -> None:
    """No list and no page has the body before. The download is a request too, and a plain link to it is refused."""
    page = await signed_in(scene, "looker")
    await page.goto(scene.url("/topics/orders"))
    await page.locator("#live-state", has_text="live").wait_for()
    assert "salary" not in await page.content()
    assert "person-7" not in await page.content()
    await page.locator("table[data-follow] tbody a").last.click()
    await page.get_by_text("This console masks the content of messages.").wait_for()
    assert "salary" not in await page.content()
    plain = await page.request.get(page.url.replace("/message?", "/message/body?"))
    assert plain.status == 403
    logger.configure()
    with capture_logs() as lines:
        await page.get_by_role("button", name="Show the content").click()
        await page.locator("pre code", has_text="salary: 5").first.wait_for()
        async with page.expect_download() as downloading:
            await page.get_by_role("button", name="Download the body").click()
        assert (await (await downloading.value).path()).read_bytes() == b"salary: 5"
    shown = [one for one in lines if one["event"] == "body_shown"]
    assert [(one["user"], one["topic"], one["place"]) for one in shown] == [("looker", "orders", "enode-0/0@0")] * 2
    assert scene.faults == []


async def test_a_user_who_may_only_send_sees_no_bodies(scene: Scene) -> None:
    """Reading is a permission of its own."""
    page = await signed_in(scene, "sender")
    await page.goto(scene.url("/topics/orders"))
    await page.get_by_text(re.compile(r"The messages are not shown: .*no SUB\|BROWSE for topic 'orders'")).wait_for()


async def test_repeated_failures_to_sign_in_have_to_pause(scene: Scene) -> None:
    """Then also the right secret is refused for a while, the page says how long, and the log names the address."""
    page = await scene.page("/sign-in")
    logger.configure()
    with capture_logs() as lines:
        for _ in range(FREE_OF_USER + 1):
            await sign_in(page, "consumer", "wrong secret")
            await page.get_by_text("the signature of 'consumer' is wrong").wait_for()
            await page.goto(scene.url("/sign-in"))
        answer = await page.request.post(
            scene.url("/sign-in"),
            form={"csrf_token": await token(page), "access_key": "consumer", "secret_key": SECRET},
            max_redirects=0,
        )
    paused = [one for one in lines if one["event"] == "sign_in_paused"]
    if answer.status == 429:  # on a very slow machine the first pause of a second has ended
        assert "too many failed attempts; wait 1 s" in await answer.text()
        assert answer.headers["retry-after"] == "1"
        assert [(one["user"], one["address"]) for one in paused] == [("consumer", "127.0.0.1")]
    else:
        assert (answer.status, paused) == (303, [])
