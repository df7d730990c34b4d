"""Answers of Prometheus, or of another server at its address: each becomes values or an error with the reason."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from ortoo.common.errors import Unavailable
from ortoo.common.process.clock import SystemClock
from ortoo.console.cluster.prometheus import ANSWER_BYTES_MAX, Prometheus, Values

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]
END_MS = 10_000_000
TIMEOUT = "ortoo.console.cluster.prometheus.TIMEOUT_S"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers may take its time, as on a busy machine."""
    monkeypatch.setattr(TIMEOUT, 60.0)


@asynccontextmanager
async def answering(answer: Answer) -> AsyncIterator[Prometheus]:
    """A server that answers each request by writing to its connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await answer(writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1") as server:
        host, port = server.sockets[0].getsockname()
        prometheus = Prometheus(f"http://ann:secret@{host}:{port}", {})
        try:
            yield prometheus
        finally:
            prometheus.close()


def sends(body: bytes, head: bytes = b"HTTP/1.1 200 OK\r\n") -> Answer:
    """Writes an answer."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()

    return answer


async def values(prometheus: Prometheus) -> Values:
    """The values of a query."""
    return await prometheus.values("up", end_ms=END_MS, span_ms=1_000_000, step_ms=1_000)


def series(*pairs: tuple[float, str]) -> bytes:
    """An answer with one series."""
    return json.dumps({"status": "success", "data": {"result": [{"values": pairs}]}}).encode()


@pytest.mark.parametrize(
    "answer",
    [
        sends(b"", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n"),
        sends(b"{}", b"SSH-2.0-OpenSSH_9.6\r\n"),
        sends(b"[" * 100_000),
        sends(b"{}"),
        sends(b"\xff"),
        sends(b'{"status": "success", "data": {"result": [{"values": [[Infinity, "1"]]}]}}'),
        sends(b'{"status": "success", "data": {"result": [{"values": [["9", "1"]]}]}}'),
        sends(b" " * (ANSWER_BYTES_MAX + 1)),
        sends(b"<html>", b"HTTP/1.1 502 Bad Gateway\r\n"),
    ],
    ids=["no chunk", "no HTTP", "deep", "empty", "no text", "endless time", "time as text", "long", "gateway"],
)
async def test_other_answers_are_errors_with_the_address(answer: Answer) -> None:
    """The page names the reason, and not the password."""
    async with answering(answer) as prometheus:
        with pytest.raises(Unavailable, match=r"Prometheus at http://.*127.0.0.1") as caught:
            await values(prometheus)
        assert "secret" not in str(caught.value)


async def test_values_outside_of_the_requested_time_are_left_out() -> None:
    """No page can show the time of some of them."""
    body = series((1e300, "1"), (-5, "2"), (9_500, "3"), (9_501, "NaN"), (10_001, "4"))
    async with answering(sends(body)) as prometheus:
        assert await values(prometheus) == {9_500_000: 3.0}


async def test_an_answer_that_does_not_end_holds_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection is closed soon after the page has stopped waiting, also while bytes arrive."""
    monkeypatch.setattr(TIMEOUT, 3.0)
    is_closed = asyncio.Event()

    async def trickle(writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                writer.write(b" ")
                await writer.drain()
                await SystemClock().sleep(0.05)
        finally:
            is_closed.set()

    async with answering(trickle) as prometheus:
        with pytest.raises(Unavailable, match="no answer within 3 s"):
            await values(prometheus)
        async with asyncio.timeout(60):
            await is_closed.wait()
