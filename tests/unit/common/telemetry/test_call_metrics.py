"""Metrics of a server's calls: each kind of call, successful and failed, and open calls."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
import structlog

from ortoo.common.errors import NotFound
from ortoo.common.grpc.layers.error_translation import ErrorTranslation
from ortoo.common.grpc.layers.layer import Layers
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.telemetry.call_metrics import CallMetrics

FORMS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


class Context:
    """The part of a call's context that metrics and errors need."""

    def __init__(self, *metadata: tuple[str, str]) -> None:
        self.given: Any = None
        self._metadata = metadata

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._metadata

    def code(self) -> Any:
        return self.given

    async def abort(self, code: Any, details: str, trailing_metadata: Any) -> None:
        self.given = code
        raise grpc.aio.AbortError(details)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("fails", "status"), [(False, "OK"), (True, "NOT_FOUND")])
async def test_every_form_of_call_is_counted_with_its_status(form: str, fails: bool, status: str) -> None:
    """ReceiveMessage, which has many answers to one request, is counted like all others."""
    metrics = CallMetrics(SystemClock())
    seen: list[tuple[int, dict[str, int]]] = []

    async def one(request: Any, context: Any) -> bytes:
        seen.append((metrics.unary_in_flight, dict(metrics.open_streams)))
        if fails:
            raise NotFound("not here")
        return b""

    async def many(request: Any, context: Any) -> AsyncIterator[bytes]:
        yield await one(request, context)

    gives_many = form.endswith("stream")
    handler = getattr(grpc, f"{form}_rpc_method_handler")(many if gives_many else one)
    call = getattr(Layers([metrics, ErrorTranslation()]).wrap(handler, "/ortoo.v1.Test/Call"), form)
    try:
        answers = call(b"", Context())
        _ = [answer async for answer in answers] if gives_many else await answers
    except grpc.aio.AbortError:
        assert fails
    [(key, latencies)] = metrics.calls.items()
    assert (key, latencies.count) == (("ortoo.v1.Test/Call", status), 1)
    assert seen == [(0, {"ortoo.v1.Test/Call": 1}) if gives_many else (1, {})]
    assert (metrics.unary_in_flight, sum(metrics.open_streams.values())) == (0, 0)


async def test_the_id_of_a_request_is_in_its_log_lines() -> None:
    """Lines that the handler writes have it as `request_id`."""
    seen: list[object] = []

    async def one(request: Any, context: Any) -> bytes:
        seen.append(structlog.contextvars.get_contextvars().get("request_id"))
        return b""

    handler: Any = grpc.unary_unary_rpc_method_handler(one)
    call = Layers([CallMetrics(SystemClock())]).wrap(handler, "/ortoo.v1.Test/Call").unary_unary
    async with Background("calls") as background:
        await background.spawn("without", call(b"", Context()))
        await background.spawn("with", call(b"", Context(("x-request-id", "r-1"))))
    assert seen == [None, "r-1"]
