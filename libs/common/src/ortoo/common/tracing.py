"""Spans of messages that carry a W3C trace context, sent to an OpenTelemetry collector. Off unless it has an endpoint.

The producer decides which messages are traced: those whose `trace_context` has the sampled flag. Every process that
such a message passes adds its spans to the same trace. Nothing here runs, or is imported, while tracing is off.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ortoo.common.errors import Invalid, Unsupported
from ortoo.common.record_reader import buffer
from ortoo.common.record_wire import read_fields

if TYPE_CHECKING:
    from opentelemetry.trace import Span

CONTEXT_BYTES: Final = 55
SPANS_MAX: Final = 8
"""A batch with more sampled messages than this has its first one traced, and no other: a span costs 0.1 ms."""
COLUMN: Final = 18
"""The number of `trace_context` in a RecordBatch."""
DATA: Final = 3
_SAMPLED = re.compile(rb"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
Attributes = Mapping[str, str | int]


def sampled_contexts(records: bytes | memoryview) -> list[tuple[int, int]]:
    """(trace id, span id) of the sampled messages of a batch; malformed contexts are passed over.

    Of more than SPANS_MAX only the first: every process that the batch passes chooses the same. A batch without trace
    contexts costs a look at its fields and no more.
    """
    try:
        column = buffer(read_fields(memoryview(records), "batch"), COLUMN, "batch")
        data = bytes(buffer(read_fields(column, "batch"), DATA, "batch")) if column else b""
    except Invalid:
        return []
    found: list[tuple[int, int]] = []
    for match in _SAMPLED.finditer(data):
        if int(match[3], 16) & 1:
            found.append((int(match[1], 16), int(match[2], 16)))
            if len(found) > SPANS_MAX:
                return found[:1]
    return found


class Tracing:
    """Makes the spans of one process."""

    def __init__(self, provider: Any) -> None:
        """Use `open_tracing`."""
        self._provider = provider
        self._tracer = provider.get_tracer("ortoo")

    def begin(
        self, what: str, records: bytes | memoryview, attributes: Attributes, earlier: "Sequence[Span]" = ()
    ) -> "Sequence[Span]":
        """Begin one span for each sampled message of a batch; none is the usual answer.

        Each is linked to those of `earlier` in its trace: what was tried before with the same message.
        """
        contexts = sampled_contexts(records)
        if not contexts:
            return ()
        from opentelemetry import trace

        flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
        parents = [trace.SpanContext(one, span, is_remote=True, trace_flags=flags) for one, span in contexts]
        return [
            self._tracer.start_span(
                what,
                context=trace.set_span_in_context(trace.NonRecordingSpan(parent)),
                attributes={"messaging.system": "ortoo", **attributes},
                links=[
                    trace.Link(one) for span in earlier if (one := span.get_span_context()).trace_id == parent.trace_id
                ],
            )
            for parent in parents
        ]

    def end(self, spans: "Sequence[Span]", error: BaseException | None = None) -> None:
        """End spans, with what went wrong."""
        for span in spans:
            if error is not None:
                from opentelemetry.trace import Status, StatusCode

                span.set_status(Status(StatusCode.ERROR, str(error)))
            span.end()


@contextlib.asynccontextmanager
async def open_tracing(role: str, name: str, endpoint: str) -> AsyncIterator[Tracing | None]:
    """Send spans to `endpoint` (http://host:port of an OTLP/gRPC receiver) while the block is entered; empty = None.

    Errors: Unsupported when OpenTelemetry is not installed.
    """
    if not endpoint:
        yield None
        return
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        raise Unsupported(
            "tracing needs OpenTelemetry; install ortoo-common[tracing]", field="trace_endpoint"
        ) from error
    resource = Resource.create({"service.name": f"ortoo-{role}", "service.instance.id": name})
    provider = TracerProvider(resource=resource)
    exporter = OTLPSpanExporter(endpoint=endpoint, insecure=endpoint.startswith("http://"), timeout=5)
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=500))
    try:
        yield Tracing(provider)
    finally:
        await asyncio.to_thread(provider.shutdown)
