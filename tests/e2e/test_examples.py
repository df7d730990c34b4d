"""The programs of examples/ do what they promise, with a real cluster, against real databases and over real crashes."""

import asyncio
import json
import sqlite3
import urllib.request
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from psycopg import AsyncConnection

from ortoo.client import Message, connect
from ortoo.common.process.clock import SystemClock
from ortoo.verification.servers import command
from ortoo.verification.servers.ports import free_port
from ortoo.verification.servers.postgres import postgres
from tests.e2e.example_runs import EXAMPLES, TIMEOUT_S, Example

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
async def example(tmp_path: Path) -> AsyncIterator[Example]:
    """A cluster, and the folder of the examples."""
    async with command.dev_process(tmp_path) as dev:
        yield Example(dev.address)


async def request(url: str, body: dict[str, object] | None = None) -> dict[str, Any]:
    """The JSON answer of a web service; it is asked again until it is there."""
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, data, {"Content-Type": "application/json"})

    def answer() -> Any:
        with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as response:
            return json.load(response)

    async with asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                return dict(await asyncio.to_thread(answer))
            except urllib.error.HTTPError:
                raise
            except urllib.error.URLError:
                await SystemClock().sleep(0.1)


async def create_topic(example: Example, name: str) -> None:
    """Create a topic, as the page of an example says."""
    done = await command.run(("ortoo", "topic", "create", name), example.address)
    assert done.exit_code == 0, done


async def bodies_of(address: str, topic: str) -> list[bytes]:
    """The bodies of all messages that a topic has now."""
    async with connect(address) as mq:
        return [stored.message.body async for stored in mq.admin.tail(topic, from_beginning=True, follow=False)]


async def eventually(is_done: Callable[[], bool]) -> None:
    """Wait until a condition holds. Errors: TimeoutError."""
    async with asyncio.timeout(TIMEOUT_S):
        while not is_done():
            await SystemClock().sleep(0.05)


async def test_a_web_service_publishes_and_a_worker_processes(example: Example) -> None:
    """FastAPI: the worker ships an accepted order. A wrong one is refused. Both processes stop gracefully."""
    example.folder = EXAMPLES / "fastapi_service"
    await create_topic(example, "orders")
    port = free_port()
    server = ("-m", "uvicorn", "service:app", "--port", str(port))
    async with example.running(*server) as service, example.running("worker.py") as worker:
        answer = await request(f"http://127.0.0.1:{port}/orders", {"number": "o-1", "cents": 4200})
        assert answer["message_id"]
        with pytest.raises(urllib.error.HTTPError, match="422"):
            await request(f"http://127.0.0.1:{port}/orders", {"number": "o-2", "cents": -1})
        await worker.until("shipped o-1 for 42.00")
        assert await worker.stop() == 0
        await service.stop()
        assert "Application shutdown complete" in service.printed
    assert await bodies_of(example.address, "orders") == [b'{"number":"o-1","cents":4200}']


async def test_an_outbox_sends_each_committed_order_once(example: Example) -> None:
    """PostgreSQL: each committed order has one message, although a relay is killed between its send and its commit."""
    async with postgres() as database, connect(example.address) as mq:
        example.environ["DATABASE_URL"] = url = database.url.replace("+psycopg", "")
        await mq.admin.ensure_topic("orders")
        await example.run("outbox.py", "place", "o-1", "4200")
        refused = await example.run("outbox.py", "place", "o-1", "1", exit_code=1)
        assert "UniqueViolation" in refused
        async with await AsyncConnection.connect(url) as locking:
            await locking.execute("select * from outbox for update")  # the relay cannot delete what it has sent
            async with example.running("outbox.py", "relay") as relay:
                sent = await anext(mq.admin.tail("orders", from_beginning=True))
                assert sent.message.keys == ("o-1",)
                await relay.kill()
        async with example.running("outbox.py", "relay"):
            await example.run("outbox.py", "place", "o-2", "800")
            async for stored in mq.admin.tail("orders", from_beginning=True):
                if stored.message.keys == ("o-2",):
                    break
    orders = [json.loads(body) for body in await bodies_of(example.address, "orders")]
    assert sorted(order["number"] for order in orders) == ["o-1", "o-2"]
    assert sorted(order["cents"] for order in orders) == [800, 4200]


async def test_a_django_project_sends_after_the_commit(example: Example, tmp_path: Path) -> None:
    """Django: an order that a view stores is shipped by the management command."""
    example.folder = EXAMPLES / "django_shop"
    await create_topic(example, "orders")
    example.environ["SHOP_DATABASE"] = str(tmp_path / "shop.sqlite")
    port = free_port()
    await example.run("manage.py", "migrate", "--verbosity", "0")
    assert "No changes" in await example.run("manage.py", "makemigrations", "--check", "--dry-run")
    server = ("manage.py", "runserver", "--noreload", str(port))
    async with example.running(*server), example.running("manage.py", "ship_orders") as worker:
        url = f"http://127.0.0.1:{port}/orders"
        assert await request(url, {"number": "o-1", "cents": 4200}) == {"number": "o-1"}
        await worker.until("shipped o-1")
        assert await request(f"{url}/o-1") == {"number": "o-1", "is_shipped": True}


async def test_a_script_copies_a_file_into_a_topic_and_back(example: Example, tmp_path: Path) -> None:
    """The rows of a CSV file come back as they were, and each is found by its key."""
    text = "email,name\nann@example.com,Ann\nbob@example.com,Bob\n"
    (tmp_path / "people.csv").write_text(text)
    printed = await example.run("csv_topic.py", "load", "people", str(tmp_path / "people.csv"), "--key", "email")
    assert printed == "2 rows stored\n"
    header, *rows = (await example.run("csv_topic.py", "dump", "people")).splitlines()
    assert [header, *sorted(rows)] == text.splitlines()
    async with connect(example.address) as mq:
        found = await mq.admin.find_messages("people", key="bob@example.com")
    assert [json.loads(one.message.body)["name"] for one in found.messages] == ["Bob"]


async def test_a_workflow_retries_parks_and_delays(example: Example) -> None:
    """An order is charged at the third attempt, and its review comes later; a declined one is a dead letter."""
    assert (await example.run("order_workflow.py")).splitlines() == [
        "charged o-1 at attempt 3",
        "shipped o-1",
        "asked for a review of o-1",
        'dead letter: {"number":"o-2","cents":999999} the card was declined',
    ]


async def test_a_request_gets_its_reply(example: Example) -> None:
    """The service computes the price, and says when it does not have the product."""
    await create_topic(example, "prices")
    async with example.running("request_reply.py", "serve"):
        assert await example.run("request_reply.py", "ask", "apples", "3") == "90 cents\n"
        assert await example.run("request_reply.py", "ask", "plums", "3") == "not for sale\n"


async def test_a_sink_stores_each_message_once(example: Example, tmp_path: Path) -> None:
    """The table has each message once, although sinks are killed and the group begins again from the first message."""
    file = tmp_path / "payments.sqlite"
    sink = ("exactly_once_sink.py", "payments", str(file))
    bodies = [f"payment {number}" for number in range(300)]

    def stored() -> list[str]:
        with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as database:
            return [row[0] for row in database.execute("select body from payments")]

    async with connect(example.address) as mq:
        await mq.admin.ensure_topic("payments", queue_count=4)
        async with mq.producer("payments") as producer:
            for start in range(0, 300, 100):
                await (await producer.send_many([Message(body.encode()) for body in bodies[start : start + 100]]))
                async with example.running(*sink) as first:
                    await first.until("stored")
                    await first.kill()
        await mq.admin.groups.reset_offsets("sink", "payments", time_ms=0, force=True)
    async with example.running(*sink) as last:
        await last.until("stored 0 of")  # messages of the earlier sinks, again
        await eventually(lambda: len(stored()) >= 300)
    assert sorted(stored()) == sorted(bodies)


async def test_calls_of_tasks_run_in_a_worker(example: Example) -> None:
    """A task that fails runs again, a delayed one runs later, and the worker stops gracefully."""
    example.folder = EXAMPLES / "task_queue"
    await create_topic(example, "mails")
    async with example.running("mails.py") as worker:
        await example.run("mails.py", "welcome", "ann")
        await worker.until("welcome, ann", "ann has not been here for 7 days")
        assert await worker.stop() == 0


async def test_the_tests_of_a_program_pass() -> None:
    """The example of a pytest suite needs no cluster; it moves its own clock."""
    suite = Example("", EXAMPLES / "tested_reminders")
    options = ("--asyncio-mode=auto", "-p", "no:cacheprovider", "-q", "--rootdir=.", "-c", "/dev/null")
    assert "4 passed" in await suite.run("-m", "pytest", *options)


def test_every_example_is_described_and_tested() -> None:
    """The page lists each example, and a test here or among Spark's tests runs it."""
    page = (EXAMPLES.parent / "docs/examples.md").read_text()
    tests = Path(__file__).read_text() + (EXAMPLES.parent / "tests/spark/test_example.py").read_text()
    names = [one.name for one in EXAMPLES.iterdir() if one.name not in ("README.md", "__pycache__")]
    assert len(names) == 10
    for name in names:
        assert f"(../examples/{name}" in page, name
        assert name in tests, name
