"""Queries of the console to Prometheus: names are escaped, and each failure has its address and its reason."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from urllib.parse import parse_qs

import pytest

from ortoo.common.errors import Unavailable
from ortoo.console.cluster import prometheus
from ortoo.console.cluster.prometheus import Prometheus

HOUR_MS = 3_600_000
OK = "HTTP/1.1 200 OK"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers may take its time, as on a busy machine."""
    monkeypatch.setattr(prometheus, "TIMEOUT_S", 60.0)


@contextlib.asynccontextmanager
async def server(status: str, body: str | None, seen: list[str]) -> AsyncIterator[str]:
    """A server with one answer; without a body it never answers. The requests are added to `seen`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next(
                int(one.partition(":")[2]) for one in head.split("\r\n") if one.lower().startswith("content-l")
            )
            seen.append(head + (await reader.readexactly(length)).decode())
            if body is None:
                await reader.read()
            else:
                writer.write(f"{status}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode())
                await writer.drain()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        listening.close_clients() if hasattr(listening, "close_clients") else None


async def ask(url: str) -> prometheus.Values:
    """The values of one query."""
    with contextlib.closing(Prometheus(url, {})) as asked:
        return await asked.values("up", end_ms=2 * HOUR_MS, span_ms=HOUR_MS, step_ms=60_000)


async def test_the_values_are_those_of_the_first_series() -> None:
    """Values that are no number are left out. User and password are a header, and the form has the times."""
    answer = {
        "status": "success",
        "data": {"result": [{"values": [[3600, "1.5"], [3660.5, "NaN"], [3720, "+Inf"], [3780, "2"]]}]},
    }
    seen: list[str] = []
    async with server(OK, json.dumps(answer), seen) as address:
        assert await ask(f"http://ann:p%40ss@{address}/prom/") == {3_600_000: 1.5, 3_780_000: 2.0}
    [request] = seen
    head, _, form = request.partition("\r\n\r\n")
    assert head.startswith("POST /prom/api/v1/query_range ")
    assert "authorization: basic yw5uonbac3m=" in head.lower()
    assert parse_qs(form) == {
        "query": ["up"],
        "start": ["3600.0"],
        "end": ["7200.0"],
        "step": ["60.0"],
        "timeout": ["60000ms"],
    }


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        ("HTTP/1.1 400 Bad Request", '{"status":"error","error":"parse error: <b>"}', "parse error: <b>"),
        ("HTTP/1.1 503 Service Unavailable", "no healthy upstream", "503"),
        (OK, "<html>", "Expecting value"),
        (OK, '{"status":"success","data":{"result":[{}]}}', "values"),
        (OK, "[]", "list"),
        (OK, '{"status":"success"}' + " " * (prometheus.ANSWER_BYTES_MAX + 1), "an answer of more than"),
    ],
)
async def test_a_failure_names_the_address_and_the_reason(status: str, body: str, reason: str) -> None:
    """The password of the URL is masked, and a long error is cut."""
    async with server(status, body, []) as address:
        with pytest.raises(Unavailable) as caught:
            await ask(f"http://ann:secret@{address}")
    assert caught.value.message.startswith(f"Prometheus at http://ann:***@{address}: ")
    assert reason in caught.value.message
    assert "secret" not in str(caught.value)


async def test_a_server_that_does_not_answer_costs_the_limit_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """So does one to which no connection can be made."""
    async with server(OK, None, []) as address:
        monkeypatch.setattr(prometheus, "TIMEOUT_S", 0.2)
        with pytest.raises(Unavailable, match=r"no answer within 0 s|timed out"):
            await ask(f"http://{address}")
    monkeypatch.setattr(prometheus, "TIMEOUT_S", 60.0)
    with pytest.raises(Unavailable, match=r"^Prometheus at http://127\.0\.0\.1:1: Connection refused$"):
        await ask("http://127.0.0.1:1")


def test_names_are_escaped() -> None:
    """A name is a text, and never a part of the query or of its pattern."""
    found = Prometheus("http://p", {"cluster": 'a"b'}).select(
        "m", topics=("a|b", "x.y", '"}) or vector(1) #'), consumer_group='g"\\\n'
    )
    labels = r'cluster="a\"b",consumer_group="g\"\\\n"'
    assert found == "m{" + labels + r',topic=~"a\\|b|x\\.y|\"\\}\\)\\ or\\ vector\\(1\\)\\ \\#"}'
