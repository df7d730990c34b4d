"""Metrics of a server's calls: each kind of call, successful and failed, and open calls."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from ortoo.common.errors import NotFound
from ortoo.common.grpc.layers.error_translation import ErrorTranslation
from ortoo.common.grpc.layers.layer import Layers
from ortoo.common.process.clock import SystemClock
from ortoo.common.telemetry.call_metrics import CallMetrics

FORMS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


class Context:
    """The part of a call's context that metrics and errors need."""

    def __init__(self) -> None:
        self.given: Any = None

    def invocation_metadata(self) -> tuple[()]:
        return ()

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
