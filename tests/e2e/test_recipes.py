"""The programs of the page on recipes run as their readers run them, with a real cluster."""

import asyncio
import json
import re
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from ortoo.client import connect
from ortoo.common.process.clock import SystemClock
from ortoo.verification.servers import command
from ortoo.verification.servers.ports import free_port
from ortoo.verification.servers.valkey import valkey
from tests.e2e.example_runs import TIMEOUT_S, Example
from tests.repo.tree import ROOT

pytestmark = pytest.mark.timeout(600)
PAGE = ROOT / "docs/recipes.md"
TRACES = ROOT / "docs/operations/traces.md"


def programs(page: Path) -> dict[str, str]:
    """The programs of a page, by the comment in their first line."""
    blocks = re.findall(r"^```python\n# (.*?)\n(.*?)^```", page.read_text(), re.S | re.M)
    return dict(blocks)


@pytest.fixture
async def recipe(tmp_path: Path) -> AsyncIterator[Example]:
    """A cluster, and a folder with the programs of the page."""
    folder = tmp_path / "recipes"
    folder.mkdir()
    for name, text in programs(PAGE).items():
        if name.endswith(".py"):
            (folder / name).write_text(text)
    async with command.dev_process(tmp_path) as dev:
        yield Example(dev.address, folder)


async def answer_of(url: str, body: dict[str, object] | None = None, *, until: int = 0) -> tuple[int, Any]:
    """The status and the JSON answer of a web service; it is asked again until it is there and has the status."""
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, data, {"Content-Type": "application/json"})

    def answer() -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    async with asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                status, found = await asyncio.to_thread(answer)
            except (urllib.error.URLError, ConnectionError):
                pass
            else:
                if until in (0, status):
                    return status, found
            await SystemClock().sleep(0.1)


async def stored_bodies(address: str, topic: str, count: int) -> list[bytes]:
    """The bodies of a topic, once there are `count`."""
    bodies: list[bytes] = []
    async with connect(address) as mq, asyncio.timeout(TIMEOUT_S):
        async for stored in mq.admin.tail(topic, from_beginning=True):
            bodies.append(stored.message.body)
            if len(bodies) == count:
                break
    return bodies


async def test_a_worker_answers_health_checks(recipe: Example) -> None:
    """Its batches are stored, a bad one is parked at once, and the check needs no framework."""
    port = free_port()
    async with connect(recipe.address) as mq:
        await mq.admin.create_topic("numbers")
        recipe.environ["HEALTH_PORT"] = str(port)
        async with recipe.running("worker.py") as worker, mq.producer("numbers") as p:
            running = {"status": "running", "restarts": 0}
            assert await answer_of(f"http://127.0.0.1:{port}/", until=200) == (200, running)
            await p.send(b"7")
            await worker.until("stored 7")
            await p.send(b"-1")
            await worker.until("failed: ValueError('a negative number')")


async def test_fastapi_reports_a_consumer_that_has_ended(recipe: Example) -> None:
    """An order is shipped, and the check is 503 when the consumer cannot continue, while the service still answers."""
    port = free_port()
    async with connect(recipe.address) as mq:
        await mq.admin.create_topic("orders")
        async with recipe.running("-m", "uvicorn", "fastapi_shop:app", "--port", str(port)) as service:
            url = f"http://127.0.0.1:{port}"
            assert await answer_of(f"{url}/health") == (200, {"consumer": "running"})
            status, found = await answer_of(f"{url}/orders", {"number": "o-1", "cents": 4200})
            assert (status, set(found)) == (202, {"message_id"})
            await service.until("shipped o-1")
            await mq.admin.delete_topic("orders", at_once=True)
            status, found = await answer_of(f"{url}/health", until=503)
            assert found["consumer"] not in ("running", "None")


async def test_flask_sends_from_preloaded_workers_of_gunicorn(recipe: Example) -> None:
    """Each worker connects after the fork, and the server stops gracefully."""
    port = free_port()
    async with connect(recipe.address) as mq:
        await mq.admin.create_topic("orders")
    async with recipe.running("-m", "gunicorn", "--bind", f"127.0.0.1:{port}", "flask_shop:app") as server:
        for number in range(8):
            status, _ = await answer_of(f"http://127.0.0.1:{port}/orders", {"number": f"o-{number}"})
            assert status == 202
        assert await server.stop() == 0
    bodies = await stored_bodies(recipe.address, "orders", 8)
    assert sorted(json.loads(body)["number"] for body in bodies) == [f"o-{number}" for number in range(8)]


async def test_a_celery_task_sends_once(recipe: Example, tmp_path: Path) -> None:
    """A task that runs twice stores one message. Celery's folder broker reads files before they are written."""
    async with connect(recipe.address) as mq, valkey(tmp_path / "valkey") as broker:
        await mq.admin.create_topic("orders")
        recipe.environ["CELERY_BROKER"] = broker.url
        celery = ("-m", "celery", "-A", "celery_tasks")
        async with recipe.running(*celery, "worker", "--concurrency", "2", "--loglevel", "INFO") as worker:
            for number in ("o-1", "o-1", "o-2"):
                task = await recipe.run(*celery, "call", "celery_tasks.place", "--args", json.dumps([number]))
                await worker.until(f"[{task.strip()}] succeeded")
            await worker.stop()
        stored = [one.message.body async for one in mq.admin.tail("orders", from_beginning=True, follow=False)]
    assert sorted(stored) == [b"o-1", b"o-2"]


async def test_a_notebook_keeps_its_client_from_cell_to_cell(
    recipe: Example, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The cells print what they store, and the last one closes the client."""
    monkeypatch.setenv("ORTOO_ADDRESS", recipe.address)
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    cells = [text for name, text in programs(PAGE).items() if "cell" in name]
    assert len(cells) == 4
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    client = NotebookClient(notebook, timeout=int(TIMEOUT_S))
    done = await client.async_execute()
    printed = ["".join(output.get("text", "") for output in cell.outputs) for cell in done.cells]
    assert printed[1] == "3 stored\n"
    assert sorted(printed[2].split("\n")) == ["", "sample 0", "sample 1", "sample 2"]


async def test_tests_may_set_the_time(recipe: Example) -> None:
    """Under freezegun and time-machine, the application's time stands still and the broker's does not."""
    options = (
        "--asyncio-mode=auto",
        "-p",
        "no:cacheprovider",
        "-q",
        "--rootdir=.",
        "--confcutdir=.",
        "-c",
        "/dev/null",
    )
    assert "2 passed" in await recipe.run("-m", "pytest", *options, "test_frozen.py")


async def test_a_traced_program_prints_its_spans(recipe: Example) -> None:
    """The program of the page on traces."""
    (recipe.folder / "traced.py").write_text(programs(TRACES)["traced.py"])
    async with connect(recipe.address) as mq:
        await mq.admin.create_topic("orders")
    printed = (await recipe.run("traced.py")).splitlines()
    assert sorted(printed) == ["charge", "charged o-1", "checkout", "process orders", "send orders"]


def test_every_recipe_is_run() -> None:
    """No program of the page is without a test."""
    tests = Path(__file__).read_text()
    names = [name for name in programs(PAGE) if name.endswith(".py")]
    assert len(names) == 6
    for name in names:
        assert name == "gunicorn.conf.py" or name.removesuffix(".py") in tests, name
