"""A cluster with its console in this process, and pages of a real browser that looks at it."""

import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Request, async_playwright

from ortoo.client import Client, connect
from ortoo.console.app import open_console
from ortoo.console.settings import ConsoleSettings
from ortoo.enode.log.settings import StoreSettings
from ortoo.verification.servers.cluster import SMALL_STORE, InProcessCluster, open_cluster

VENDOR = Path(__file__).parent / "vendor"
AXE = (VENDOR / "axe-4.14.1.min.js").read_text(encoding="utf-8")
TIMEOUT_MS = 120_000
"""Limit of each wait of the browser; a busy machine needs most of it."""
OPTIONS = ("--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", "--disable-dev-shm-usage")
"""Options of the browser: it resolves no names, so a request to the outside fails."""


@dataclass
class OpenPage:
    """A page, its options, and the test that uses it or has used it."""

    page: Page
    options: dict[str, Any]
    test: str


@dataclass
class Scene:
    """A cluster, its console, and the requests and errors of all pages."""

    cluster: InProcessCluster
    mq: Client
    address: str
    browser: Browser
    requests: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """Errors in the browser's console, such as violations of the content security policy."""
    _contexts: list[BrowserContext] = field(default_factory=list)
    _pages: list[OpenPage] = field(default_factory=list)

    def url(self, path: str) -> str:
        """The address of a page."""
        return f"http://{self.address}{path}"

    async def page(self, path: str = "/", **options: Any) -> Page:
        """A page in a browser profile that no other page of this test has, without cookies and choices.

        A profile takes the browser seconds on a busy machine. A page of an earlier test with the same options is
        therefore emptied and used again.
        """
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        for one in self._pages:
            if one.options == options and one.test != test and one.page.url.startswith(self.url("/")):
                one.test = test
                await one.page.evaluate("localStorage.clear()")
                await one.page.context.clear_cookies()
                await one.page.goto(self.url(path))
                return one.page
        context = await self.browser.new_context(**options)
        context.set_default_timeout(TIMEOUT_MS)
        self._contexts.append(context)
        page = await context.new_page()
        page.on("request", self._requested)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", self._logged)
        self._pages.append(OpenPage(page, options, test))
        await page.goto(self.url(path))
        return page

    def _logged(self, line: ConsoleMessage) -> None:
        if line.type == "error" and not line.text.startswith("Failed to load resource"):  # an answer with an error
            self.faults.append(line.text)

    def _requested(self, request: Request) -> None:
        self.requests.append(request.url)

    @property
    def outside_requests(self) -> list[str]:
        """The requests to other addresses than the console's."""
        return [url for url in self.requests if not url.startswith((self.url("/"), "blob:", "data:"))]

    async def close_pages(self) -> None:
        """Close all pages."""
        for context in self._contexts:
            await context.close()
        self._contexts.clear()
        self._pages.clear()


async def serious_findings(page: Page) -> list[str]:
    """The findings of axe that are serious or critical."""
    await page.evaluate(AXE)
    # Pages load no media and have no rule that needs other style sheets, so nothing is loaded before.
    found = await page.evaluate("axe.run(document, {resultTypes: ['violations'], preload: false})")
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:200]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]


@contextlib.asynccontextmanager
async def open_scene(
    folder: Path,
    *,
    console: dict[str, Any] | None = None,
    settings: dict[str, dict[str, Any]] | None = None,
    enodes: int = 1,
    store: StoreSettings = SMALL_STORE,
    user: tuple[str, str] = ("", ""),
    client_id: str = "",
) -> AsyncIterator[Scene]:
    """A cluster with `settings` of its roles, a console with the settings `console`, and a browser.

    `user` has the access key and the secret with which the test itself calls the cluster, and `client_id` its id.
    """
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed; install it, such as by `apt-get install chromium`")
    async with contextlib.AsyncExitStack() as parts:
        patch = parts.enter_context(pytest.MonkeyPatch.context())
        for threshold in ("enode.observe.findings.SLOW_FLUSH_S", "common.telemetry.process_metrics.LATE_S"):
            patch.setattr(f"ortoo.{threshold}", float("inf"))  # a busy machine has these problems, and pages show them
        cluster = await parts.enter_async_context(open_cluster(folder, settings=settings, enodes=enodes, store=store))
        chosen = ConsoleSettings(
            **{"listen_address": "127.0.0.1:0", "snode_address": cluster.address, **(console or {})}
        )
        running = await parts.enter_async_context(open_console(chosen))
        mq = await parts.enter_async_context(
            connect(cluster.address, access_key=user[0], secret_key=user[1], client_id=client_id)
        )
        playwright = await parts.enter_async_context(async_playwright())
        browser = await playwright.chromium.launch(executable_path=program, args=list(OPTIONS), timeout=TIMEOUT_MS)
        parts.push_async_callback(browser.close)
        scene = Scene(cluster, mq, running.address, browser)
        parts.push_async_callback(scene.close_pages)
        yield scene
