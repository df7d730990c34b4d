"""Disks, certificates, changes, users and refused calls, with and without access rules."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

pytest.importorskip("playwright", reason="Playwright is not installed; run `make console-setup`")

from ortoo.client import Forbidden, connect
from ortoo.v1 import namesrv_pb2
from tests.console.scene import Scene, open_scene, serious_findings
from tests.console.test_access import RULES, SECRET, sign_in
from tests.integration.test_tls import certificate

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

HOSTILE = "<script>alert(1)</script>"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    """Two enodes, and a snode with a certificate, access rules, an admin and a user."""
    folder: Path = tmp_path_factory.mktemp("operators")
    (folder / "access.toml").write_text(RULES)
    made, key = await certificate(folder)
    settings: dict[str, dict[str, Any]] = {
        "namesrv": {"lease_s": 2.0},
        "snode": {
            "access_file": str(folder / "access.toml"),
            "insecure": True,
            "tls_listen_address": "127.0.0.1:0",
            "tls_certificate_file": str(made),
            "tls_key_file": str(key),
        },
    }
    async with open_scene(folder, settings=settings, enodes=2, user=("ann", SECRET)) as opened:
        for user, enabled in (("ann", True), ("reader", True), ("left", False)):
            known = namesrv_pb2.User(access_key=user, enabled=enabled)
            await opened.cluster.name_service.PutUser(namesrv_pb2.PutUserRequest(user=known, secret_key=SECRET))
        yield opened


async def test_users_and_refused_calls_are_shown(scene: Scene) -> None:
    """Permissions of each user, a disabled user without any, and a refused call with its reason, rendered inert."""
    async with connect(scene.cluster.address, access_key="reader", secret_key=SECRET) as reader:
        for _ in range(2):
            with pytest.raises(Forbidden):
                await reader.admin.describe_topic(HOSTILE)
    page = await scene.page("/users")
    await sign_in(page, "ann")
    await page.wait_for_url("**/users")
    users = page.get_by_role("region", name="Users")

    async def row(user: str) -> list[str]:
        cell = page.get_by_role("cell", name=user, exact=True)
        return [one.strip() for one in await users.locator("tr", has=cell).locator("td").all_inner_texts()][:5]

    assert await row("ann") == ["ann", "accepted", "admin", "", ""]
    assert await row("reader") == ["reader", "accepted", "", "orders SUB", "readers SUB"]
    assert await row("left") == ["left", "disabled", "", "no permission", ""]
    refused = page.get_by_role("region", name="Refused calls").locator("tr", has_text="reader")
    cells = await refused.first.locator("td").all_inner_texts()
    assert cells[1:5] == ["reader", "127.0.0.1", "AdminService/DescribeTopic", "2"]
    assert HOSTILE in cells[5]
    assert await serious_findings(page) == []
    assert scene.faults == []


async def test_changes_are_shown_with_their_user(scene: Scene) -> None:
    """An action of the console is one call of the signed-in user; a failed one has its reason."""
    page = await scene.page("/topics")
    await sign_in(page, "ann")
    await page.wait_for_url("**/topics")
    await page.get_by_label("Name", exact=True).fill("made")
    await page.get_by_role("button", name="Create topic").click()
    await page.wait_for_url("**/topics/made")
    await page.goto(scene.url("/audit"))
    row = page.get_by_role("region", name="Changes").locator("tbody tr", has_text="AdminService/CreateTopic")
    cells = await row.first.locator("td").all_inner_texts()
    assert cells[1:6] == ["ann", "127.0.0.1", "AdminService/CreateTopic", "name=made", "done"]
    assert await serious_findings(page) == []


async def test_certificates_are_shown_with_their_end(scene: Scene) -> None:
    """Two days are left, which is marked."""
    page = await scene.page("/settings")
    await sign_in(page, "ann")
    row = page.get_by_role("region", name="Certificates").locator("tbody tr")
    await row.first.wait_for()
    cells = await row.first.locator("td").all_inner_texts()
    assert cells[1].startswith("1 d")
    assert cells[2:4] == ["snode snode-0", "tls_certificate_file"]
    assert await row.first.locator("td.bad").count() == 1
    assert await serious_findings(page) == []


async def test_disks_of_enodes_are_shown_live(scene: Scene) -> None:
    """Free bytes and inodes of both, and soon the reason for the one that is away."""
    page = await scene.page("/enodes")
    await sign_in(page, "ann")
    disks = page.get_by_role("region", name="Disks").locator("tbody tr")
    await disks.filter(has_text="enode-1").filter(has_text="iB").first.wait_for()
    assert await disks.count() == 2
    await scene.cluster.create_topic("everywhere", queues=1)
    await scene.cluster.close("enode-1")
    await disks.filter(has_text="enode-1").filter(has_text="not running").first.wait_for()
    assert await serious_findings(page) == []
    await scene.cluster.open_enode("enode-1")
    await disks.filter(has_text="enode-1").filter(has_text="iB").first.wait_for()
