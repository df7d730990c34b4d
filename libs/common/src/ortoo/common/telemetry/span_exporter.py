"""Export of spans to an OTLP/gRPC receiver. Imported only while tracing is on.

The transport is OpenTelemetry's, with its retries, and its environment variables for headers and certificates. Its span
classes are not used: beginning and ending a span would cost ten times as much, and encoding it three times.
`python -m bench.telemetry` compares them.
"""

from collections.abc import Sequence
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2 as pb

from ortoo.common.telemetry.tracing import Attributes, Span

EXPORT_TIMEOUT_S: Final = 5
_SAMPLED: Final = 1
KINDS: Final = {"ortoo publish": pb.Span.SPAN_KIND_PRODUCER} | dict.fromkeys(
    ("ortoo push", "ortoo pull", "ortoo pop", "ortoo process"), pb.Span.SPAN_KIND_CONSUMER
)
"""The kinds of spans of producers and consumers; all others are internal to the cluster."""


class SpanExporter(OTLPSpanExporter):
    """OpenTelemetry's exporter for our own spans."""

    def __init__(self, role: str, name: str, endpoint: str) -> None:
        """Send to `endpoint`, http://host:port or https://host:port."""
        super().__init__(endpoint=endpoint, insecure=endpoint.startswith("http://"), timeout=EXPORT_TIMEOUT_S)
        self._about = Resource(attributes=_values({"service.name": f"ortoo-{role}", "service.instance.id": name}))

    def send(self, spans: Sequence[Span]) -> None:
        """Send spans, and wait until they are sent or the exporter has given up."""
        taken: Any = spans
        self.export(taken)

    def _translate_data(self, data: Sequence[Any]) -> ExportTraceServiceRequest:
        """The request to send. OpenTelemetry's exporter calls this with the argument of `export`."""
        spans = pb.ScopeSpans(scope=InstrumentationScope(name="ortoo"), spans=map(span_to, data))
        return ExportTraceServiceRequest(resource_spans=[pb.ResourceSpans(resource=self._about, scope_spans=[spans])])


def span_to(span: Span) -> pb.Span:
    """A span as OTLP's protobuf message."""
    return pb.Span(
        trace_id=span.trace_id.to_bytes(16, "big"),
        span_id=span.id.to_bytes(8, "big"),
        parent_span_id=span.parent_id.to_bytes(8, "big"),
        flags=_SAMPLED,
        name=span.name,
        kind=KINDS.get(span.name, pb.Span.SPAN_KIND_INTERNAL),
        start_time_unix_nano=span.started_ns,
        end_time_unix_nano=span.finished_ns,
        attributes=_values({"messaging.system": "ortoo", **span.attributes}),
        links=[
            pb.Span.Link(trace_id=trace_id.to_bytes(16, "big"), span_id=span_id.to_bytes(8, "big"))
            for trace_id, span_id in span.links
        ],
        status=pb.Status(code=pb.Status.STATUS_CODE_ERROR, message=span.error) if span.error else None,
    )


def _values(attributes: Attributes) -> list[KeyValue]:
    return [
        KeyValue(key=key, value=AnyValue(string_value=value) if isinstance(value, str) else AnyValue(int_value=value))
        for key, value in attributes.items()
    ]
