"""Metrics of the calls of each method: count, status and duration. Log lines of a call get its request id."""

from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any

import grpc
import structlog

from ortoo.common.grpc.errors import Context
from ortoo.common.grpc.layers.arrival import headers_of
from ortoo.common.grpc.layers.layer import Layer, Method, ServedCall
from ortoo.common.process.clock import Clock
from ortoo.common.telemetry.histogram import Histogram
from ortoo.common.telemetry.metrics import Metrics

REQUEST_ID_KEY = "x-request-id"
"""Metadata that identifies a request in the logs of every process it passes."""
REQUEST_ID_LENGTH_MAX = 128
OK = (None, 0, grpc.StatusCode.OK)
"""The codes of a call that no layer has refused: not set, or success."""
STATUS_NAMES = {code: code.name for code in grpc.StatusCode}


_REPORTED: ContextVar[str] = ContextVar("reported_status", default="")


def report_status(status: str) -> None:
    """Count the current call with this status. For protocols whose answers contain the error of a call."""
    _REPORTED.set(status)


class CallMetrics(Layer):
    """Counts and times every call. It takes two microseconds for a unary call, and no time for a stream's messages."""

    always_repeats = True

    def __init__(self, clock: Clock) -> None:
        """Begin without calls."""
        self.calls: dict[tuple[str, str], Histogram] = {}
        """The latencies in milliseconds by (method, status name). The latency of a stream is the time for which it was
        open."""
        self.open_streams: dict[str, int] = {}
        self.unary_in_flight = 0
        self._clock = clock
        self._on_poll_end = self._end_poll
        """Kept once, because thousands of polls may wait."""

    def register(self, metrics: Metrics) -> None:
        """Register the metrics of calls."""
        metrics.histogram(
            "rocketmq_rpc_latency",
            "Milliseconds from the first byte of a request to its status, by method and status.",
            lambda: {("grpc", method, status): h for (method, status), h in list(self.calls.items())},
            labels=("protocol_type", "request_code", "response_code"),
        )
        metrics.gauge(
            "ortoo_open_streams",
            "Open streams, by method.",
            lambda: {(method,): count for method, count in list(self.open_streams.items())},
            labels=("method",),
        )
        metrics.gauge("ortoo_unary_calls_in_flight", "Unary calls being served.", lambda: self.unary_in_flight)

    def enter(self, call: ServedCall) -> None:
        """Begin to time the call, and add its request id to its log lines."""
        _bind_request_id(call.context)
        self._count_open(call.method, 1)
        call.kept[self] = self._clock.monotonic_s()

    def leave(self, call: ServedCall) -> None:
        """Count the call with its status."""
        method = call.method.path[1:]
        self._count_open(call.method, -1)
        is_refused = call.error is not None or (call.method.is_response_stream and call.context.code() not in OK)
        status = _status(call.context) if is_refused else _REPORTED.get() or "OK"
        self._count(method, status, (self._clock.monotonic_s() - call.kept[self]) * 1000)

    def on_poll(self, method: Method) -> Callable[[str], None]:
        """Count a call that waits as open. A call that is made later is counted when it is made."""
        self._count_open(method, 1)
        return partial(self._on_poll_end, method, self._clock.monotonic_s())

    def _end_poll(self, method: Method, began_s: float, status: str) -> None:
        self._count_open(method, -1)
        if status:
            self._count(method.path[1:], status, (self._clock.monotonic_s() - began_s) * 1000)

    def on_repeated(self, method: Method) -> None:
        """Count a call that was answered at once. Idle clients make thousands of them in a second."""
        latencies = self.calls.get((method.path[1:], "OK"))
        if latencies is None:
            self._count(method.path[1:], "OK", 0.0)
        else:
            latencies.counts[0] += 1  # 0 ms, without the steps of `_count`

    def _count_open(self, method: Method, change: int) -> None:
        if method.is_response_stream:
            self.open_streams[method.path[1:]] = self.open_streams.get(method.path[1:], 0) + change
        else:
            self.unary_in_flight += change

    def _count(self, method: str, status: str, elapsed_ms: float) -> None:
        latencies = self.calls.get((method, status))
        if latencies is None:
            latencies = self.calls[method, status] = Histogram()
        latencies.observe(elapsed_ms)


def _bind_request_id(context: Context) -> None:
    if request_id := headers_of(context).get(REQUEST_ID_KEY):
        structlog.contextvars.bind_contextvars(request_id=request_id[:REQUEST_ID_LENGTH_MAX])


def _status(context: Context) -> str:
    code: Any = context.code()
    if isinstance(code, int):
        code = next((known for known in grpc.StatusCode if known.value[0] == code), None)
    return STATUS_NAMES.get(code, "CANCELLED") if code is not None else "CANCELLED"
