"""Metrics as Prometheus gets them: one HTTP request, and the text read into values."""

import asyncio
import re
from dataclasses import dataclass

TIMEOUT_S = 20.0
_LINE = re.compile(r"(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The answer to one GET."""

    status: int
    headers: str
    body: bytes


async def get(address: str, path: str, *headers: str) -> HttpAnswer:
    """GET `path` at host:port. Errors: OSError, TimeoutError."""
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(TIMEOUT_S):
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            lines = (f"GET {path} HTTP/1.1", f"Host: {address}", "Connection: close", *headers, "", "")
            writer.write("\r\n".join(lines).encode())
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
    return HttpAnswer(int(head.split(b" ", 2)[1]), head.decode("latin-1"), body)


Series = dict[tuple[tuple[str, str], ...], float]


def families(text: str) -> dict[str, Series]:
    """Metric name to its series; a series is the sorted tuple of its (label, value) pairs."""
    found: dict[str, Series] = {}
    for line in text.splitlines():
        if not line.startswith("#") and (match := _LINE.match(line)) is not None:
            labels = tuple(sorted(_LABEL.findall(match["labels"] or "")))
            found.setdefault(match["name"], {})[labels] = float(match["value"])
    return found


async def scraped(address: str, path: str = "/metrics") -> dict[str, Series]:
    """The metrics of a process."""
    answer = await get(address, path)
    assert answer.status == 200, answer
    return families(answer.body.decode())
