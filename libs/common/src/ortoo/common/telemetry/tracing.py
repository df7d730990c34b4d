"""Spans of messages that carry a W3C trace context, sent to an OpenTelemetry collector. Off without an endpoint.

The producer decides which messages are traced: those whose `trace_context` has the sampled flag. Every process that
such a message passes adds its spans to the same trace. None of this runs, or is imported, while tracing is off.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ortoo.common.errors import Invalid, Unsupported
from ortoo.common.logs import log_events
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.common.process.long_work import wait_uncancelled
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.columns import NUMBERS
from ortoo.common.records.reader import buffer
from ortoo.common.records.wire import read_fields

Attributes = Mapping[str, str | int]
Context = tuple[int, int]
"""(trace id, span id) of a sampled message."""
CONTEXT_BYTES: Final = 55
SPANS_MAX: Final = 8
"""If a batch has more sampled messages than this, only the first of them is traced."""
SEND_INTERVAL_S: Final = 0.5
UNSENT_MAX: Final = 16_384
"""Maximum number of spans that wait to be sent; further ones are dropped and logged."""
_SAMPLED = re.compile(rb"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f][13579bdf]")
_EVEN: Final = b"02468ace"
_log = get_logger("tracing")


@dataclass(slots=True)
class Span:
    """The plain values of a span. `parent_id` is the id of its parent span; `links` are spans of earlier attempts."""

    name: str
    trace_id: int
    parent_id: int
    id: int
    attributes: Attributes
    links: Sequence[Context]
    started_ns: int
    finished_ns: int = 0
    error: str = ""


def sampled_contexts(records: bytes | memoryview) -> list[Context]:
    """The trace contexts of the sampled messages of a batch; malformed contexts are skipped.

    If a batch has more than SPANS_MAX sampled messages, only the first context is returned: every process must choose
    the same context. For a batch without trace contexts, only its fields are read. A batch without sampled messages
    costs hardly more, because all contexts have the same length. OpenTelemetry's propagator would read one context at a
    time, at forty times the cost.
    """
    try:
        column = buffer(read_fields(memoryview(records), "batch"), NUMBERS["trace_context"], "batch")
        data = bytes(buffer(read_fields(column, "batch"), 3, "batch")) if column else b""
    except Invalid:
        return []
    if len(data) % CONTEXT_BYTES == 0 and not data[CONTEXT_BYTES - 1 :: CONTEXT_BYTES].translate(None, _EVEN):
        return []  # no context has the sampled flag in its last digit
    found: list[Context] = []
    for match in _SAMPLED.finditer(data):
        found.append((int(match[1], 16), int(match[2], 16)))
        if len(found) > SPANS_MAX:
            return found[:1]
    return found


class Tracing:
    """Makes the spans of one process."""

    def __init__(self, *, clock: Clock, randomness: Randomness) -> None:
        """Call `open_tracing` instead, which also sends the spans."""
        self.ended: list[Span] = []
        """The spans that wait to be sent."""
        self.dropped = 0
        self._clock = clock
        self._randomness = randomness
        self._epoch_ns = 0
        self.set_clock()

    def set_clock(self) -> None:
        """Set the wall-clock time of spans again, because the wall clock may have jumped."""
        self._epoch_ns = self._clock.now_ms() * 1_000_000 - int(self._clock.monotonic_s() * 1e9)

    def start_spans(
        self, what: str, contexts: Sequence[Context], attributes: Attributes, earlier: Sequence[Span] = ()
    ) -> Sequence[Span]:
        """Begin one span for each of a batch's `sampled_contexts`.

        Each span is linked to the spans of `earlier` in its trace, which are earlier attempts with the same message.
        """
        now_ns = self._now_ns()
        return [
            Span(
                what,
                trace_id,
                parent_id,
                self._randomness.id64(),
                attributes,
                [(one.trace_id, one.id) for one in earlier if one.trace_id == trace_id],
                now_ns,
            )
            for trace_id, parent_id in contexts
        ]

    def finish_spans(self, spans: Sequence[Span], error: BaseException | None = None) -> None:
        """End spans, with the error if there is one."""
        if not spans:
            return
        now_ns = self._now_ns()
        for span in spans:
            span.finished_ns = now_ns
            if error is not None:
                span.error = str(error) or type(error).__name__
        if len(self.ended) + len(spans) > UNSENT_MAX:
            self.dropped += len(spans)
        else:
            self.ended += spans

    def _now_ns(self) -> int:
        return self._epoch_ns + int(self._clock.monotonic_s() * 1e9)


@contextlib.asynccontextmanager
async def open_tracing(
    role: str, name: str, endpoint: str, *, clock: Clock, randomness: Randomness
) -> AsyncIterator[Tracing | None]:
    """Send spans to `endpoint` (http://host:port of an OTLP/gRPC receiver) in the block. Yields None if it is empty.

    Errors: Unsupported when OpenTelemetry is not installed.
    """
    if not endpoint:
        yield None
        return
    try:
        from ortoo.common.telemetry.span_exporter import SpanExporter
    except ModuleNotFoundError as error:
        raise Unsupported(
            "tracing needs OpenTelemetry: pip install 'ortoo[tracing]'", field="trace_endpoint"
        ) from error
    tracing, exporter = Tracing(clock=clock, randomness=randomness), SpanExporter(role, name, endpoint)

    async def send() -> None:
        """Send the ended spans; if the receiver does not answer, the spans are dropped and the loss is logged."""
        tracing.set_clock()
        spans, tracing.ended = tracing.ended, []
        if tracing.dropped:
            _log.emit(log_events.SPANS_DROPPED, count=tracing.dropped)
            tracing.dropped = 0
        if spans:
            # Only one thread at a time may use the exporter, and a stop sends once more.
            await wait_uncancelled(asyncio.get_running_loop().run_in_executor(None, exporter.send, spans))

    try:
        async with Background("tracing") as background:
            background.every("send", SEND_INTERVAL_S, send, clock=clock)
            yield tracing
    finally:
        await send()
        await asyncio.to_thread(exporter.shutdown)
