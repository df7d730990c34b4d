"""A console of two clusters: addresses name the cluster, and sessions, rights, tokens and entries belong to one."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

pytest.importorskip("playwright", reason="Playwright is not installed; run `make console-setup`")

from playwright.async_api import Page as BrowserPage
from structlog.testing import capture_logs

from ortoo.client import Client, connect
from ortoo.common.logs import logger
from ortoo.console.app import open_console
from ortoo.console.settings import ConsoleSettings
from ortoo.v1 import namesrv_pb2
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster
from tests.console.scene import Scene, open_scene, serious_findings
from tests.console.test_access import SECRET, sign_in

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

ADMIN = '[[user]]\naccess_key = "ann"\nadmin = true\n'
READER = ADMIN.replace("ann", "root") + '[[user]]\naccess_key = "ann"\ntopics = { orders = "SUB" }\n'
SECRETS = {"east": SECRET, "west": "another"}


@dataclass
class TwoClusters:
    """A browser, a console, and its clusters: `ann` is an admin of `east`, and a reader in `west`."""

    scene: Scene
    address: str
    east: Client
    west: Client

    def url(self, path: str) -> str:
        """The address of a page of the console."""
        return f"http://{self.address}{path}"

    async def signed_in(self, cluster: str, page: BrowserPage | None = None) -> BrowserPage:
        """A page of a cluster, after the sign-in there."""
        page = page or await self.scene.page("/healthz")
        await page.goto(self.url(f"/clusters/{cluster}/topics/orders"))
        await sign_in(page, "ann", SECRETS[cluster])
        await page.get_by_role("heading", name="Topic orders").wait_for()
        return page


def guarded(folder: Path, rules: str) -> dict[str, dict[str, Any]]:
    """The settings of a cluster with access rules."""
    folder.mkdir()
    (folder / "access.toml").write_text(rules)
    return {"snode": {"access_file": str(folder / "access.toml"), "insecure": True}}


async def fill(cluster: InProcessCluster, users: dict[str, str]) -> None:
    """Create the users with their secrets, and a topic."""
    for user, secret in users.items():
        known = namesrv_pb2.User(access_key=user, enabled=True)
        await cluster.name_service.PutUser(namesrv_pb2.PutUserRequest(user=known, secret_key=secret))
    await cluster.create_topic("orders", queues=1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def two(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TwoClusters]:
    """Two clusters, and a console with the profiles of both."""
    folder = tmp_path_factory.mktemp("clusters")
    async with AsyncExitStack() as parts:
        patch = parts.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("XDG_CONFIG_HOME", str(folder))
        east = guarded(folder / "east", ADMIN)
        scene = await parts.enter_async_context(
            open_scene(folder / "east", settings=east, user=("ann", SECRETS["east"]))
        )
        west = guarded(folder / "west", READER)
        other = await parts.enter_async_context(open_cluster(folder / "west", settings=west))
        await fill(scene.cluster, {"ann": SECRETS["east"]})
        await fill(other, {"ann": SECRETS["west"], "root": "admin of west"})
        (folder / "ortoo").mkdir()
        for name, address in (("east", scene.cluster.address), ("west", other.address)):
            profile = f'address = "{address}"\naccess_key = "ann"\nsecret_key = "{SECRETS[name]}"\n'
            (folder / "ortoo" / f"{name}.toml").write_text(profile)
        settings = ConsoleSettings(listen_address="127.0.0.1:0", profiles=("east", "west"))
        console = await parts.enter_async_context(open_console(settings))
        root = await parts.enter_async_context(connect(other.address, access_key="root", secret_key="admin of west"))
        yield TwoClusters(scene, console.address, scene.mq, root)


async def test_a_switch_leads_to_the_same_section_of_the_other_cluster(two: TwoClusters) -> None:
    """The address and the title name the cluster, the commands its profile. The first cluster is shown first."""
    page = await two.scene.page("/healthz", viewport={"width": 400, "height": 800})
    await page.goto(two.url("/"))
    await page.wait_for_url("**/clusters/east/sign-in?next=/clusters/east/")
    page = await two.signed_in("east", page)
    assert await page.title() == "Topic orders – east – Ortoo"
    await page.get_by_text("The same on the command line").click()
    await page.get_by_text("ortoo --profile east topic describe orders").wait_for()
    links = await page.evaluate(
        "[...document.querySelectorAll('[href], [action], [hx-get], [data-follow]')].flatMap(it => "
        "['href', 'action', 'hx-get', 'data-follow'].map(name => it.getAttribute(name)).filter(Boolean))"
    )
    own = ("/clusters/east/", "/static/", "#")
    assert [one for one in links if not one.startswith(own)] == ["/clusters/west/topics"]
    await page.get_by_text("Cluster: east").focus()
    await page.keyboard.press("Enter")
    assert await serious_findings(page) == []
    assert not await page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
    await page.get_by_role("link", name="west", exact=True).click()
    await page.wait_for_url("**/clusters/west/sign-in?next=/clusters/west/topics")
    missing = await page.goto(two.url("/clusters/north/"))
    assert missing is not None
    assert missing.status == 404


async def test_a_sign_in_counts_in_its_cluster_alone(two: TwoClusters) -> None:
    """A session of one cluster is none of the other, which also refuses the secret of the first."""
    page = await two.signed_in("east")
    await page.goto(two.url("/clusters/west/topics/orders"))
    await sign_in(page, "ann", SECRETS["east"])
    await page.get_by_text("The sign-in is refused").wait_for()
    await two.signed_in("west", page)
    assert await page.locator("main form[method=post]").count() == 0, "a reader in this cluster"
    await page.goto(two.url("/clusters/east/topics/orders"))
    assert await page.get_by_role("button", name="Delete topic").count() == 1, "an admin in that one"
    await page.get_by_role("button", name="Sign out").click()
    await page.goto(two.url("/clusters/west/topics/orders"))
    await page.get_by_role("heading", name="Topic orders").wait_for()


async def test_a_token_and_a_session_of_one_cluster_change_nothing_in_the_other(two: TwoClusters) -> None:
    """Also when the cookie of one cluster is sent to the other under its name there."""
    page = await two.signed_in("east")
    token = await page.locator("[name=csrf_token]").first.get_attribute("value")
    await two.signed_in("west", page)
    form = {"topic": "forged", "csrf_token": token or ""}
    assert (await page.request.post(two.url("/clusters/west/topics/create"), form=form)).status == 403
    cookies = {one["path"]: (one["name"], one["value"]) for one in await page.context.cookies()}
    assert set(cookies) == {"/clusters/east/", "/clusters/west/"}
    await page.context.clear_cookies()
    moved = {"cookie": f"{cookies['/clusters/west/'][0]}={cookies['/clusters/east/'][1]}"}
    answer = await page.request.get(two.url("/clusters/west/topics/orders"), headers=moved)
    assert "/clusters/west/sign-in" in answer.url
    for client in (two.east, two.west):
        assert [one.name for one in await client.admin.list_topics()] == ["orders"]


async def test_an_action_changes_its_cluster_and_leaves_an_entry_there(two: TwoClusters) -> None:
    """The log line of the console names the cluster too."""
    page = await two.signed_in("east")
    await page.goto(two.url("/clusters/east/topics"))
    logger.configure()
    with capture_logs() as lines:
        await page.get_by_label("Name", exact=True).fill("created")
        await page.get_by_role("button", name="Create topic").click()
        await page.wait_for_url("**/clusters/east/topics/created")
    assert [(one["cluster"], one["action"]) for one in lines if one["event"] == "console_action"] == [
        ("east", "/topics/create")
    ]
    found = [[one.name for one in await client.admin.list_topics()] for client in (two.east, two.west)]
    assert found == [["created", "orders"], ["orders"]]
    entries = [await client.admin.users.list_audit_entries() for client in (two.east, two.west)]
    assert ["name=created" in {entry.target for entry in one.entries} for one in entries] == [True, False]
    await two.east.admin.delete_topic("created")
