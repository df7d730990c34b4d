"""The cost of the web console: the time of its pages beside a busy cluster, and the processor time of idle pages."""

import argparse
import asyncio
import http.client
import re
import statistics
import sys
import time
from contextlib import AsyncExitStack
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from bench.dead_letters import park_many
from bench.percentiles import percentile
from bench.processes import Cluster, cluster, running_s
from bench.report import Figures, main
from ortoo.cli.demo.role_subprocess import RoleSubprocess
from ortoo.client import ConsumerSettings, Message, Queue, connect
from ortoo.console.pages import ALL_PAGES

METHOD = (
    "name server, enode, snode and console, each a process, with `topics` topics and `dead_letters` dead letters of a "
    "group. Measured at rest: processor time of the console without an open page. Then, in alternating windows of "
    "`idle_s`, that of the snode without and with one open overview, which asks every 15 s. Then `ortoo bench` sends "
    "`rate` messages a second to the topic of the pages. Measured: the time from the request to the last byte of each "
    "page, one request at a time in `rounds` rounds through all pages"
)
TOPIC, GROUP = "orders", "billing"
REFRESH_S = 15.0
"""The interval of the overview."""
FRAGMENT_ENDS = ("/live", "/body", "/left")
"""Ends of paths whose answers are no pages: endless answers, files, and a count that a page loads later."""
AT_ONCE = 50
MESSAGES, BATCH_MESSAGES, MESSAGES_OF_KEY = 10_000, 100, 100


def paths(queue: Queue, dead_letters: int, client_id: str) -> dict[str, str]:
    """An address for each page of the console."""
    place = urlencode({"topic": TOPIC, "enode": queue.enode, "queue": queue.queue_id, "offset": 0})
    near_end = urlencode({"enode": queue.enode, "queue": 0, "offset": max(0, dead_letters - 100)})
    own = {
        "/message": f"/message?{place}",
        "/messages": f"/messages?topic={TOPIC}&text=key-7",
        "/topics": "/topics?from=t-05",
        "/groups/{name}/explain": f"/groups/{GROUP}/explain?topic={TOPIC}",
        "/groups/{name}/dead-letters": f"/groups/{GROUP}/dead-letters?{near_end}",
        "/groups/{name}/reset": f"/groups/{GROUP}/reset?topic={TOPIC}&target=begin",
        "/groups/{name}/park": f"/groups/{GROUP}/park?{place}",
        "/delayed": f"/delayed?topic={TOPIC}",
        "/client": f"/client?id={client_id}",
    }
    names = {"topics": TOPIC, "groups": GROUP, "enodes": queue.enode}
    found = {}
    for page in ALL_PAGES:
        if not page.is_action and not page.path.endswith(FRAGMENT_ENDS):
            kind = page.path.split("/")[1]
            found[page.path] = own.get(page.path, page.path.replace("{name}", names.get(kind, "")))
    return found


class Visitor:
    """A browser that keeps its connection and its cookie."""

    def __init__(self, address: str) -> None:
        self._connection = http.client.HTTPConnection(address, timeout=60)
        self._cookie = ""

    def load(self, path: str) -> float:
        """Load a page; the seconds until its last byte. Errors: RuntimeError for another status than 200."""
        begun_s = time.perf_counter()
        self._connection.request("GET", path, headers={"cookie": self._cookie} if self._cookie else {})
        answer = self._connection.getresponse()
        text = answer.read().decode()
        took_s = time.perf_counter() - begun_s
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {re.sub('<[^>]*>', ' ', text)[:300]}")
        self._cookie = (answer.getheader("set-cookie") or self._cookie).partition(";")[0]
        return took_s


async def fill(address: str, topics: int, dead_letters: int) -> Queue:
    """The content of the cluster; returns a queue with messages."""
    async with connect(address) as mq:
        for first in range(0, topics, AT_ONCE):
            names = (f"t-{number:05}" for number in range(first, min(topics, first + AT_ONCE)))
            await asyncio.gather(*(mq.admin.create_topic(name, queue_count=1) for name in names))
        await mq.admin.create_topic(TOPIC, queue_count=4)
        async with mq.producer(TOPIC) as producer:
            for first in range(0, MESSAGES, BATCH_MESSAGES):
                keys = (f"key-{number % MESSAGES_OF_KEY}" for number in range(first, first + BATCH_MESSAGES))
                await (await producer.send_many([Message(b"x" * 200, keys=(key,)) for key in keys]))
        await park_many(mq, GROUP, "failing", dead_letters)
        return next(one.queue for one in (await mq.admin.describe_topic(TOPIC)).queues if one.end_offset)


async def idle_percent(process_id: int, seconds: float) -> float:
    """The share of a core that a process uses during some seconds."""
    before_s, begun_s = running_s(process_id), time.monotonic()
    await asyncio.sleep(seconds)
    return 100 * (running_s(process_id) - before_s) / (time.monotonic() - begun_s)


async def overview_percent(roles: Cluster, console: str, seconds: float, *, is_open: bool) -> float:
    """The share of a core that the snode uses, with an open overview or without."""
    measuring = asyncio.ensure_future(idle_percent(roles.snode.process_id, seconds))
    visitor = Visitor(console)
    while is_open and not measuring.done():
        await asyncio.to_thread(visitor.load, "/overview/state")
        await asyncio.wait([measuring], timeout=REFRESH_S)
    return await measuring


async def page_times(console: str, pages: dict[str, str], rounds: int) -> Figures:
    """Percentiles of the time of each page, and of all together."""
    visitor = Visitor(console)
    took_s: dict[str, list[float]] = {path: [] for path in pages}
    for address in pages.values():  # templates and connections are made once
        await asyncio.to_thread(visitor.load, address)
    for _, (path, address) in zip(range(rounds * len(pages)), cycle(pages.items()), strict=False):
        took_s[path].append(await asyncio.to_thread(visitor.load, address))
    shares = {"p50_ms": 0.5, "p95_ms": 0.95}
    every = [one for times in took_s.values() for one in times]
    rows = {path: took_s[path] for path in took_s} | {"all": every}
    return {
        path: {name: round(percentile(times, share) * 1000, 1) for name, share in shares.items()}
        for path, times in rows.items()
    }


async def measure(options: argparse.Namespace) -> Figures:
    """All figures."""
    async with AsyncExitStack() as stack:
        roles = await stack.enter_async_context(cluster())
        console = RoleSubprocess("console", {"SNODE_ADDRESS": roles.address}, roles.folder / "console.log")
        stack.push_async_callback(console.stop)
        await console.start()
        begun_s = time.monotonic()
        queue = await fill(roles.address, options.topics, options.dead_letters)
        filled_s = time.monotonic() - begun_s
        Visitor(console.address).load("/")
        console_percent = await idle_percent(console.process_id, options.idle_s)
        pairs = []
        for _ in range(options.pairs):
            closed = await overview_percent(roles, console.address, options.idle_s, is_open=False)
            pairs.append((closed, await overview_percent(roles, console.address, options.idle_s, is_open=True)))
        settings = ConsumerSettings(from_beginning=True, client_id="bench-console")
        mq = await stack.enter_async_context(connect(roles.address))
        consumer = await stack.enter_async_context(mq.consumer(GROUP, [TOPIC], settings))
        consuming = asyncio.ensure_future(_consume(consumer))
        stack.callback(consuming.cancel)
        load = await asyncio.create_subprocess_exec(
            *(Path(sys.executable).parent / "ortoo", "bench", TOPIC, "--rate", str(options.rate), "--no-read"),
            *("--seconds", "3600", "--address", roles.address),
            stdout=asyncio.subprocess.DEVNULL,
        )
        try:
            await asyncio.sleep(options.warm_up_s)
            pages = paths(queue, options.dead_letters, "bench-console")
            times = await page_times(console.address, pages, options.rounds)
            assert load.returncode is None, "the load ended before the measurement"
        finally:
            if load.returncode is None:
                load.terminate()
            await load.wait()
    return {
        "topics": options.topics,
        "dead_letters": options.dead_letters,
        "filled_s": round(filled_s, 1),
        "console_idle_percent": round(console_percent, 2),
        "snode_percent_closed_open": [[round(one, 2) for one in pair] for pair in pairs],
        "overview_percent": round(statistics.median(after - before for before, after in pairs), 2),
        "rate": options.rate,
        "pages": times,
    }


async def _consume(consumer: Any) -> None:
    async for batch in consumer.batches():
        batch.ack()


if __name__ == "__main__":
    main(
        "console", METHOD, measure,
        topics=10_000, dead_letters=20_000, idle_s=60.0, pairs=3, rate=2_000, rounds=20, warm_up_s=5.0,
    )  # fmt: skip
