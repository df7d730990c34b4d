"""A list of name servers served over HTTP (E-252)."""

import asyncio
import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from ortoo.common.cluster import address_server
from ortoo.common.cluster.address_server import check_name_servers, resolve_name_servers
from ortoo.common.errors import Invalid
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock


@dataclass
class ListServer:
    """The answer of the server, and its address."""

    answer: bytes
    url: str = ""


@pytest.fixture
def served() -> Iterator[ListServer]:
    """A real HTTP server with one answer."""
    served = ListServer(b"")

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if served.answer else 503)
            self.end_headers()
            self.wfile.write(served.answer)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's name
            """Log nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    served.url = f"http://127.0.0.1:{server.server_address[1]}/list"
    yield served
    server.shutdown()
    server.server_close()
    thread.join()


async def test_list_is_waited_for_and_followed(served: ListServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that comes late is picked up, a change is applied, and an invalid list changes nothing (E-252)."""
    monkeypatch.setattr(address_server, "REFRESH_S", 0.05)
    monkeypatch.setattr(address_server, "RETRY_S", 0.05)
    clock = SystemClock()
    async with asyncio.timeout(60), Background("test") as background:
        finding = background.spawn("find", resolve_name_servers(served.url, background=background, clock=clock))
        await clock.sleep(0.2)
        assert not finding.done()
        served.answer = b"a:1;b:2\n"
        servers = await finding
        assert servers.addresses == ("a:1", "b:2")
        served.answer = b"b:2;c:3"
        while servers.addresses != ("b:2", "c:3"):
            await clock.sleep(0.02)
        assert servers.current == "b:2"
        served.answer = b"<html>maintenance</html>"
        await clock.sleep(0.2)
        assert servers.addresses == ("b:2", "c:3")


def test_setting_takes_lists_and_urls() -> None:
    """Both forms are accepted; anything else is refused (E-006)."""
    check_name_servers("a:1;b:2")
    check_name_servers("http://addresses.internal/ortoo")
    with pytest.raises(Invalid, match="host:port"):
        check_name_servers("ftp://x")
