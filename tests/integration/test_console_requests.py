"""Requests to a console without a browser: odd sign-ins, cookies, the end of a session, and idle connections."""

import asyncio
import contextlib
import http.client
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from ortoo.client import connect
from ortoo.console.app import open_console
from ortoo.console.settings import ConsoleSettings
from ortoo.console.web import server
from ortoo.v1 import namesrv_pb2
from ortoo.verification.servers.cluster import open_cluster
from ortoo.verification.servers.ports import free_address
from ortoo.verification.servers.scrape import scraped

SECRET = "s3cret"
RULES = """
[[user]]
access_key = "ann"
admin = true
"""


@dataclass
class Visitor:
    """A browser that has opened the sign-in."""

    address: str
    cookie: str = ""
    is_secure: bool = False

    async def request(self, method: str, path: str, **fields: str) -> tuple[int, str]:
        """The status and the text of an answer."""

        def load() -> tuple[int, str]:
            connection = http.client.HTTPConnection(self.address, timeout=60)
            with contextlib.closing(connection):
                connection.request(method, path, urlencode(fields), {"cookie": self.cookie} if self.cookie else {})
                answer = connection.getresponse()
                if cookie := answer.getheader("set-cookie"):
                    self.cookie, _, attributes = cookie.partition(";")
                    self.is_secure = "secure" in attributes.lower()
                return answer.status, answer.read().decode()

        return await asyncio.to_thread(load)

    async def act(self, path: str, page: str = "/sign-in", **fields: str) -> tuple[int, str]:
        """Send a form with the token of the session, which is on `page`."""
        _, text = await self.request("GET", page)
        found = re.search(r'name="csrf_token" value="(\w+)"', text)
        assert found is not None
        return await self.request("POST", path, csrf_token=found[1], **fields)


@contextlib.asynccontextmanager
async def guarded_console(folder: Path) -> AsyncIterator[Any]:
    """A console of a cluster with the user `ann` and the topic `orders`."""
    (folder / "access.toml").write_text(RULES)
    settings: dict[str, dict[str, Any]] = {"snode": {"access_file": str(folder / "access.toml"), "insecure": True}}
    async with asyncio.timeout(120), open_cluster(folder, settings=settings) as cluster:
        user = namesrv_pb2.User(access_key="ann", enabled=True)
        await cluster.name_service.PutUser(namesrv_pb2.PutUserRequest(user=user, secret_key=SECRET))
        await cluster.create_topic("orders")
        chosen = ConsoleSettings(listen_address="127.0.0.1:0", snode_address=cluster.address)
        async with open_console(chosen) as console:
            yield console


async def test_an_access_key_that_no_user_has_is_refused(tmp_path: Path) -> None:
    """A signature cannot carry the key, or would name another user than the log."""
    async with guarded_console(tmp_path) as console:
        for key in ("é", "a\nb", "ann/x", "ann,x", " ann"):
            status, text = await Visitor(console.address).act("/sign-in", access_key=key, secret_key=SECRET)
            assert (status, "expected letters" in text) == (400, True), key
        visitor = Visitor(console.address)
        assert (await visitor.act("/sign-in", access_key="ann", secret_key=SECRET))[0] == 303
        assert (await visitor.request("GET", "/topics"))[0] == 200


async def test_the_environment_gives_no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise every browser would have the permissions of the operator who started the console."""
    monkeypatch.setenv("ORTOO_ACCESS_KEY", "ann")
    monkeypatch.setenv("ORTOO_SECRET_KEY", SECRET)
    async with guarded_console(tmp_path) as console:
        assert (await Visitor(console.address).request("GET", "/topics"))[0] == 303


async def test_the_cookie_needs_https_where_others_reach_the_console() -> None:
    """Browsers do not send it in plain text. A loopback address may have no certificate."""
    for host, is_secure in (("127.0.0.1", False), ("0.0.0.0", True)):
        chosen = ConsoleSettings(listen_address=f"{host}:0", snode_address="127.0.0.1:1")
        async with asyncio.timeout(60), open_console(chosen) as console:
            visitor = Visitor(f"127.0.0.1:{console.address.rpartition(':')[2]}")
            for path in ("/healthz", "/readyz"):
                assert (await visitor.request("GET", path))[0] == 200
            await visitor.request("GET", "/sign-in")
            assert visitor.cookie != ""
            assert visitor.is_secure is is_secure


async def test_a_page_follows_its_topic_no_longer_than_the_session(tmp_path: Path) -> None:
    """A page that stays open after the sign-out would show the messages that the next person may not see."""
    async with guarded_console(tmp_path) as console:
        visitor = Visitor(console.address)
        await visitor.act("/sign-in", access_key="ann", secret_key=SECRET)
        host, _, port = console.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        with contextlib.closing(writer):
            head = f"GET /topics/orders/live HTTP/1.1\r\nhost: {console.address}\r\ncookie: {visitor.cookie}\r\n\r\n"
            writer.write(head.encode())
            await reader.readuntil(b"text/event-stream")
            assert (await visitor.act("/sign-out", "/topics"))[0] == 303
            await reader.readuntil(b"event: refused")


async def test_connections_without_a_request_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes one of the places of all browsers. The time also counts between requests, and for a part of one."""
    monkeypatch.setattr(server, "KEEP_ALIVE_S", 0.5)
    chosen = ConsoleSettings(listen_address="127.0.0.1:0", snode_address="127.0.0.1:1")
    async with asyncio.timeout(60), open_console(chosen) as console:
        host, _, port = console.address.rpartition(":")
        whole, part = f"GET /healthz HTTP/1.1\r\nhost: {console.address}\r\n\r\n", "GET /healthz HTTP/1.1\r\nh"
        for sent in ("", part, whole, whole + part, whole + whole):
            reader, writer = await asyncio.open_connection(host, int(port))
            with contextlib.closing(writer):
                writer.write(sent.encode())
                answer = await reader.read()
                assert answer.count(b"200 OK") == sent.count(whole)


async def test_the_metrics_count_requests_by_page(tmp_path: Path) -> None:
    """An address that a browser invents is not a label, so that browsers make no series."""
    metrics = free_address()
    chosen = ConsoleSettings(listen_address="127.0.0.1:0", snode_address="127.0.0.1:1", metrics_address=metrics)
    async with asyncio.timeout(60), open_console(chosen) as console:
        visitor = Visitor(console.address)
        for path in ("/invented-1", "/invented-2"):
            assert (await visitor.request("GET", path))[0] == 404
        assert (await visitor.request("POST", "/topics/orders/send", body="x"))[0] == 403
        series = await scraped(metrics)
    assert series["ortoo_console_requests_total"] == {
        (("page", "/"), ("status", "404")): 2.0,
        (("page", "/topics/{name}/send"), ("status", "403")): 1.0,
    }
    assert series["ortoo_console_request_seconds_count"][(("page", "/topics/{name}/send"),)] == 1.0
    assert series["ortoo_console_sessions"] == {(): 1.0}


async def test_looking_at_messages_takes_no_lease_and_moves_no_offset(tmp_path: Path) -> None:
    """A group gets its message at once, and for the first time, although every page about it was shown before."""
    async with asyncio.timeout(120), open_cluster(tmp_path) as cluster, connect(cluster.address) as mq:
        await cluster.create_topic("orders", queues=1)
        async with mq.producer("orders") as producer, mq.pop_consumer("readers", "orders") as consumer:
            receipts = [await producer.send(body) for body in (b"first", b"second")]
            [first] = await consumer.pop(1)
            await first.ack()
            before = await mq.admin.describe_lag("readers", "orders")
            place = urlencode({"topic": "orders", "enode": "enode-0", "queue": 0, "offset": receipts[1].offset})
            chosen = ConsoleSettings(listen_address="127.0.0.1:0", snode_address=cluster.address)
            async with open_console(chosen) as console:
                visitor = Visitor(console.address)
                for path in ("/topics/orders", "/groups/readers", f"/message?{place}"):
                    assert (await visitor.request("GET", path))[0] == 200, path
                assert await visitor.request("GET", f"/message/body?{place}") == (200, "second")
            assert (await mq.admin.describe_lag("readers", "orders")).lag_messages == before.lag_messages == 1
            [second] = await consumer.pop(1)
            assert (second.body, second.attempt) == (b"second", 1)
