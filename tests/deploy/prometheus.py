"""A real Prometheus with the project's alert rules, by default with time thirty times faster than in production.

Scrape and evaluation intervals and every duration in the rules (`for:` and the windows) are divided by the speed.
Expressions and thresholds are unchanged. An alert that fires after ten minutes in production fires after 20 seconds.
"""

import asyncio
import contextlib
import json
import os
import re
import shutil
import urllib.parse
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ortoo.common.process.clock import SystemClock
from ortoo.verification.servers.scrape import get
from tests.repo.tree import ROOT

RULES = ROOT / "deploy/k8s/chart/files/alerts.yaml"
SEARCH_PATH = f"{ROOT / '.tools'}{os.pathsep}{os.environ.get('PATH', '')}"
PROMETHEUS, PROMTOOL = (shutil.which(tool, path=SEARCH_PATH) or "" for tool in ("prometheus", "promtool"))
"""The programs, from `make deploy-tools` or installed; empty = there is none."""
MISSING = [name for name, found in (("prometheus", PROMETHEUS), ("promtool", PROMTOOL)) if not found]
SPEED = 30
SCRAPE_S = 30
"""Scrape interval of the chart."""
TIMEOUT_MS = 10_000
"""The default of Prometheus, which is that of the chart."""
POLL_S = 0.2
CLUSTER = "ortoo_cluster"
"""The label that the chart sets to the name of the release."""
_UNIT_MS = {"s": 1_000, "m": 60_000}
_DURATION = re.compile(r"(?<=for: )(\d+)([sm])$|(?<=\[)(\d+)([sm])(?=\])|(?<=offset )(\d+)([sm])\b", re.MULTILINE)


def sped_up(rules: str, speed: int = SPEED) -> str:
    """The rules with their durations divided by `speed`."""

    def shorter(match: re.Match[str]) -> str:
        number, unit = (part for part in match.groups() if part is not None)
        return f"{int(number) * _UNIT_MS[unit] // speed}ms"

    return _DURATION.sub(shorter, rules)


class Prometheus:
    """The running server."""

    def __init__(self, address: str) -> None:
        """Configure it to listen on `address`."""
        self._address = address
        self._clock = SystemClock()

    async def value_of(self, expression: str) -> float | None:
        """The first value of an expression now; None when there is none."""
        found = (await self._data(f"/api/v1/query?query={urllib.parse.quote(expression)}"))["result"]
        return float(found[0]["value"][1]) if found else None

    async def alerts(self, state: str = "firing") -> dict[str, list[dict[str, str]]]:
        """The alerts in a state, each with the labels of the processes or groups that it names."""
        found: dict[str, list[dict[str, str]]] = {}
        for alert in (await self._data("/api/v1/alerts"))["alerts"]:
            if alert["state"] == state:
                labels = {name: value for name, value in alert["labels"].items() if name not in ("alertname", "job")}
                found.setdefault(alert["labels"]["alertname"], []).append(labels)
        return found

    async def until(self, holds: Callable[[], Any], within_s: float) -> None:
        """Wait until the coroutine function returns a true value. Errors: TimeoutError."""
        async with asyncio.timeout(within_s):
            while True:
                with contextlib.suppress(OSError, ValueError, KeyError):
                    if await holds():
                        return
                await self._clock.sleep(POLL_S)

    async def _data(self, path: str) -> dict[str, Any]:
        answer = await get(self._address, path)
        body = answer.body
        if b"chunked" in answer.headers.lower().encode():
            body = b"".join(re.split(rb"\r\n[0-9a-f]+\r\n", b"\r\n" + body))
        data: dict[str, Any] = json.loads(body[body.index(b"{") : body.rindex(b"}") + 1])["data"]
        return data


@contextlib.asynccontextmanager
async def prometheus(
    folder: Path, address: str, targets: Mapping[str, Sequence[str]], *, speed: int = SPEED
) -> AsyncIterator[Prometheus]:
    """Run one that scrapes `targets`, by cluster, and listens on `address`; it stops at the end of the block."""
    folder.mkdir(parents=True)
    rules, config = folder / "rules.yaml", folder / "prometheus.yaml"
    rules.write_text(sped_up(RULES.read_text(), speed))
    interval = f"{SCRAPE_S * 1000 // speed}ms"
    timeout = f"{min(SCRAPE_S * 1000 // speed, TIMEOUT_MS)}ms"
    times = {"scrape_interval": interval, "evaluation_interval": interval, "scrape_timeout": timeout}
    clusters = [{"targets": list(some), "labels": {CLUSTER: name}} for name, some in targets.items()]
    jobs = [{"job_name": "ortoo", "static_configs": clusters}]
    config.write_text(json.dumps({"global": times, "rule_files": [str(rules)], "scrape_configs": jobs}))
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(PROMETHEUS, f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"),
            f"--web.listen-address={address}",
            stdout=log,
            stderr=log,
        )
    try:
        server = Prometheus(address)
        await server.until(lambda: server.value_of("vector(1)"), within_s=60)
        yield server
    finally:
        process.kill()
        await process.wait()
