"""Range queries to a Prometheus server, for history that the processes of a cluster do not keep.

Prometheus knows no users. A page asks the cluster first, so that it shows nothing that the user may not see.
"""

import asyncio
import base64
import json
import math
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import SplitResult, unquote, urlencode, urlsplit

from ortoo.common.errors import Unavailable
from ortoo.common.process.masked_url import mask_url

TIMEOUT_S = 3.0
"""Limit of a query, so that a page appears soon although Prometheus does not answer."""
ANSWER_BYTES_MAX = 4 << 20
READ_BYTES = 1 << 16
ERROR_LENGTH_MAX = 300
CALLS_MAX = 8
"""Maximum number of queries at once. Others wait, within their limit of time."""
Values = dict[int, float]
"""Values by time, milliseconds since 1970-01-01 UTC."""


class Prometheus:
    """A Prometheus server, and the labels that the series of one cluster have there."""

    def __init__(self, url: str, labels: Mapping[str, str]) -> None:
        """`url` may contain a user and a password."""
        self._shown = mask_url(url)
        parts = urlsplit(url)
        self._headers = {"content-type": "application/x-www-form-urlencoded"} | _authorization(parts)
        host = parts.netloc.rpartition("@")[2]
        self._address = f"{parts.scheme}://{host}{parts.path.rstrip('/')}/api/v1/query_range"
        self._labels = labels
        self._threads = ThreadPoolExecutor(CALLS_MAX, "prometheus")

    def close(self) -> None:
        """Start no further query."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def select(self, metric: str, *, topics: Sequence[str] = (), **labels: str) -> str:
        """The selector of the cluster's series of a metric that have these labels and one of these topics."""
        matchers = [f"{name}={_quoted(value)}" for name, value in {**self._labels, **labels}.items()]
        if topics:
            matchers.append(f"topic=~{_quoted('|'.join(map(re.escape, topics)))}")
        return f"{metric}{{{','.join(matchers)}}}"

    async def values(self, query: str, *, end_ms: int, span_ms: int, step_ms: int) -> Values:
        """The values of the first series of a query, without those that are no number.

        Errors: Unavailable, with the address and the reason, also for a refused query.
        """
        fields = {
            "query": query,
            "start": (end_ms - span_ms) / 1000,
            "end": end_ms / 1000,
            "step": step_ms / 1000,
            "timeout": f"{TIMEOUT_S * 1000:.0f}ms",
        }
        loop, is_over = asyncio.get_running_loop(), threading.Event()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                answer = await loop.run_in_executor(self._threads, self._post, urlencode(fields).encode(), is_over)
            found = _first_series(answer)
        except TimeoutError:
            raise self._unavailable(f"no answer within {TIMEOUT_S:.0f} s") from None
        except Exception as error:  # of any kind, because the answer may contain anything
            raise self._unavailable(_reason_of(error)) from error
        finally:
            is_over.set()
        return {at_ms: value for at_ms, value in found.items() if end_ms - span_ms <= at_ms <= end_ms}

    def _post(self, body: bytes, is_over: threading.Event) -> bytes:
        """The answer to a form; errors of the API are answers too. It ends early if the caller has stopped waiting.

        Errors: OSError, HTTPException, ValueError for a long answer.
        """
        request, text = urllib.request.Request(self._address, body, self._headers), b""
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                while len(text) <= ANSWER_BYTES_MAX and not is_over.is_set() and (part := answer.read1(READ_BYTES)):
                    text += part
        except urllib.error.HTTPError as error:
            text = error.read(ERROR_LENGTH_MAX * 4)
            if not text.startswith(b"{"):
                raise
        if len(text) > ANSWER_BYTES_MAX:
            raise ValueError(f"an answer of more than {ANSWER_BYTES_MAX:,} bytes")
        return text

    def _unavailable(self, reason: str) -> Unavailable:
        return Unavailable(f"Prometheus at {self._shown}: {reason[:ERROR_LENGTH_MAX]}")


def _reason_of(error: Exception) -> str:
    """The text of an error; urllib's own text for an error of a connection is `<urlopen error [Errno ...] ...>`."""
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, OSError):
        return error.reason.strerror or str(error.reason)
    return str(error) or type(error).__name__


def _quoted(text: str) -> str:
    """A text of PromQL, whose escapes are those of JSON."""
    return json.dumps(text, ensure_ascii=False)


def _authorization(parts: SplitResult) -> dict[str, str]:
    if parts.username is None:
        return {}
    user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"authorization": f"Basic {base64.b64encode(user.encode()).decode()}"}


def _first_series(answer: bytes) -> Values:
    """Errors: ValueError for an error of the API, and others for an answer of another form."""
    found = json.loads(answer)
    if found["status"] != "success":
        raise ValueError(str(found.get("error", "error without a text")))
    result = found["data"]["result"]
    pairs = [(round(at_s * 1000), float(text)) for at_s, text in result[0]["values"]] if result else []
    return {at_ms: value for at_ms, value in pairs if math.isfinite(value)}
