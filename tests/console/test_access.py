"""Users see and do what their permissions allow. Forged, foreign and read-only requests are refused."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio

pytest.importorskip("playwright", reason="Playwright is not installed; run `make console-setup`")

from playwright.async_api import Page

from ortoo.client import Message
from ortoo.console.app import open_console
from ortoo.console.settings import ConsoleSettings
from ortoo.v1 import namesrv_pb2
from tests.console.scene import Scene, open_scene, serious_findings

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

SECRET = "s3cret"
RULES = """
[[user]]
access_key = "ann"
admin = true
[[user]]
access_key = "reader"
topics = { orders = "SUB" }
groups = { readers = "SUB" }
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    """A cluster with access rules, an admin and a user who may read one topic."""
    folder = tmp_path_factory.mktemp("access")
    (folder / "access.toml").write_text(RULES)
    settings: dict[str, dict[str, Any]] = {"snode": {"access_file": str(folder / "access.toml"), "insecure": True}}
    async with open_scene(folder, settings=settings, user=("ann", SECRET)) as opened:
        for user in ("ann", "reader"):
            known = namesrv_pb2.User(access_key=user, enabled=True)
            await opened.cluster.name_service.PutUser(namesrv_pb2.PutUserRequest(user=known, secret_key=SECRET))
        await opened.cluster.create_topic("orders")
        await opened.cluster.create_topic("salaries")
        async with opened.mq.producer("orders") as producer:
            await producer.send(Message(b"visible"))
        yield opened


async def sign_in(page: Page, user: str, secret: str = SECRET) -> None:
    """Fill in the form of the sign-in, and send it."""
    await page.get_by_label("Access key").fill(user)
    await page.get_by_label("Secret").fill(secret)
    await page.get_by_role("button", name="Sign in").click()


async def test_every_page_needs_a_sign_in(scene: Scene) -> None:
    """A page leads to the form, a wrong secret is refused, and the right one leads back to the page."""
    page = await scene.page("/topics")
    await page.wait_for_url("**/sign-in?next=/topics")
    assert await serious_findings(page) == []
    await sign_in(page, "ann", "wrong")
    await page.get_by_text("The sign-in is refused: the signature of 'ann' is wrong").wait_for()
    await sign_in(page, "ann")
    await page.wait_for_url("**/topics")
    await page.get_by_role("link", name="salaries").wait_for()
    assert SECRET not in await page.content()
    await page.get_by_role("button", name="Sign out").click()
    await page.goto(scene.url("/topics"))
    await page.wait_for_url("**/sign-in?next=/topics")


async def test_a_user_sees_what_its_permissions_allow(scene: Scene) -> None:
    """The user reads its topic, without the actions of others. Lists and other topics are refused with the reason."""
    page = await scene.page("/sign-in")
    await sign_in(page, "reader")
    await page.get_by_role("heading", name="You may not do this").wait_for()
    await page.goto(scene.url("/topics/orders"))
    await page.locator("tbody").get_by_text("visible").first.wait_for()
    await page.get_by_text("not shown:").wait_for()
    assert await page.locator("main form[method=post]").count() == 0
    await page.goto(scene.url("/topics/salaries"))
    await page.get_by_role("heading", name="You may not do this").wait_for()


async def test_the_cookie_is_closed_to_scripts_and_changes_at_the_sign_in(scene: Scene) -> None:
    """A token that was known before the sign-in gets no rights."""
    page = await scene.page("/sign-in")
    [before] = await page.context.cookies()
    await sign_in(page, "ann")
    await page.get_by_role("heading", name="Problems").wait_for()
    [after] = await page.context.cookies()
    assert (after.get("httpOnly"), after.get("sameSite")) == (True, "Lax")
    assert before.get("value") != after.get("value")
    cookie = f"{before.get('name')}={before.get('value')}"
    old = await page.request.get(scene.url("/topics"), headers={"cookie": cookie})
    assert old.url.endswith("/sign-in?next=/topics")


async def test_a_form_without_the_token_of_its_session_is_refused(scene: Scene) -> None:
    """Also with the cookie, a request without the token, from another site or for another host changes nothing."""
    page = await scene.page("/sign-in")
    await sign_in(page, "ann")
    await page.get_by_role("heading", name="Problems").wait_for()
    request = page.request
    url = scene.url("/topics/create")
    token = await page.locator("[name=csrf_token]").first.get_attribute("value")
    assert token
    without = await request.post(url, form={"topic": "forged"})
    wrong = await request.post(url, form={"topic": "forged", "csrf_token": "0" * 64})
    forged = {"topic": "forged", "csrf_token": token}
    foreign = await request.post(url, form=forged, headers={"origin": "https://evil.example"})
    cross = await request.post(url, form=forged, headers={"sec-fetch-site": "cross-site"})
    other_host = await request.get(scene.url("/"), headers={"host": "evil.example"})
    assert [one.status for one in (without, wrong, foreign, cross, other_host)] == [403] * 5
    assert "forged" not in [one.name for one in await scene.mq.admin.list_topics()]
    right = await request.post(url, form={"topic": "real", "csrf_token": token}, headers={"origin": scene.url("")})
    assert right.status == 200


async def test_every_answer_has_the_security_headers(scene: Scene) -> None:
    """Pages, errors, refusals and static files."""
    page = await scene.page("/sign-in")
    for path in ("/sign-in", "/nothing-here", "/static/console.js", "/static/nothing"):
        headers = (await page.request.get(scene.url(path))).headers
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in headers["content-security-policy"], path
        assert (headers["x-frame-options"], headers["x-content-type-options"]) == ("DENY", "nosniff"), path
    assert scene.faults == []
    assert scene.outside_requests == []


async def test_a_read_only_console_shows_no_action_and_refuses_all(scene: Scene) -> None:
    """The admin of the cluster may only look here. Bodies are hidden too."""
    settings = ConsoleSettings(
        listen_address="127.0.0.1:0", snode_address=scene.cluster.address, read_only=True, bodies_hidden=True
    )
    async with AsyncExitStack() as parts:
        console = await parts.enter_async_context(open_console(settings))
        page = await scene.page("/sign-in")
        await page.goto(f"http://{console.address}/topics/orders")
        await sign_in(page, "ann")
        await page.get_by_role("heading", name="Topic orders").wait_for()
        await page.locator("tbody").get_by_text("hidden").first.wait_for()
        assert "visible" not in await page.content()
        assert await page.locator("main form[method=post]").count() == 0
        token = await page.locator("[name=csrf_token]").first.get_attribute("value")
        sent = await page.request.post(
            f"http://{console.address}/topics/orders/send", form={"body": "x", "csrf_token": token or ""}
        )
        assert sent.status == 403
        assert "read-only" in await sent.text()
        queue = (await scene.mq.admin.describe_topic("orders")).queues[0].queue
        body = await page.request.get(
            f"http://{console.address}/message/body?topic=orders&enode={queue.enode}&queue=0&offset=0"
        )
        assert body.status == 403
