"""Metrics as Prometheus gets them: one HTTP request, and the text as Prometheus' own client for Python parses it."""

import asyncio
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

TIMEOUT_S = 60.0


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
    """Metric name to its series; a series is the sorted tuple of its (label, value) pairs.

    Errors: ValueError for a text that is not in Prometheus' format, or that has a series twice.
    """
    found: dict[str, Series] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            series, labels = found.setdefault(sample.name, {}), tuple(sorted(sample.labels.items()))
            if labels in series:
                raise ValueError(f"metric {sample.name} has two series with the labels {labels}; expected one")
            series[labels] = sample.value
    return found


async def scraped(address: str, path: str = "/metrics") -> dict[str, Series]:
    """The metrics of a process."""
    answer = await get(address, path)
    assert answer.status == 200, answer
    return families(answer.body.decode())
