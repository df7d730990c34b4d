"""Spans and metrics of a client, through OpenTelemetry's API and by its conventions for messaging.

Only for a process whose application has set up OpenTelemetry before `connect`. Other processes do not import it.
"""

import asyncio
import contextvars
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from ortoo.common.errors.findings import process_version
from ortoo.common.process.clock import Clock
from ortoo.common.records.message import Message, message_of
from ortoo.common.records.text_rules import TRACEPARENT

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import Histogram
    from opentelemetry.trace import Span

SCOPE = "ortoo.client"
SCHEMA_URL = "https://opentelemetry.io/schemas/1.27.0"
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""The bounds of durations that OpenTelemetry's conventions name."""


class TracedMessage(Protocol):
    """The fields of a received message that its span needs."""

    @property
    def topic(self) -> str: ...  # noqa: D102

    @property
    def message_id(self) -> str: ...  # noqa: D102

    @property
    def properties(self) -> Mapping[str, str]: ...  # noqa: D102

    @property
    def trace_context(self) -> str | None: ...  # noqa: D102


def telemetry_of_process(clock: Clock) -> "Telemetry | None":
    """The telemetry of a new client; None unless the application has set up OpenTelemetry.

    An import of OpenTelemetry alone sets up nothing: libraries such as redis import it with its SDK.
    """
    trace = sys.modules.get("opentelemetry.trace")
    has_tracer = trace is not None and not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    metrics = sys.modules.get("opentelemetry.metrics")
    # The API's own providers measure nothing. The one that stands for a missing provider has no public name.
    has_meter = metrics is not None and not type(metrics.get_meter_provider()).__module__.startswith(metrics.__name__)
    return Telemetry(clock) if has_tracer or has_meter else None


class Telemetry:
    """Makes the spans and metrics of one client."""

    def __init__(self, clock: Clock) -> None:
        """Use the providers of the process."""
        from opentelemetry import context, metrics, propagate, trace

        self._context, self._propagate, self._trace = context, propagate, trace
        self.clock = clock
        version = process_version("ortoo-client")
        self._tracer = trace.get_tracer(SCOPE, version, schema_url=SCHEMA_URL)
        meter = metrics.get_meter(SCOPE, version, schema_url=SCHEMA_URL)

        def durations(name: str, description: str) -> "Histogram":
            return meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=BUCKETS_S)

        self.sent = meter.create_counter("messaging.client.sent.messages", "{message}", "Messages sent")
        self.consumed = meter.create_counter("messaging.client.consumed.messages", "{message}", "Messages delivered")
        self.send_s = durations("messaging.client.operation.duration", "Duration of sends")
        self.process_s = durations("messaging.process.duration", "Duration of the processing of messages")

    def start_send(self, topic: str, operation: str = "send") -> "SendSpan":
        """Begin the span of a send, below the current span of the caller."""
        attributes = _attributes(topic, operation, "send")
        span = self._tracer.start_span(f"{operation} {topic}", None, self._trace.SpanKind.PRODUCER, attributes)
        carrier: dict[str, str] = {}
        self._propagate.inject(carrier, self._trace.set_span_in_context(span))
        return SendSpan(self, span, carrier, attributes)

    @contextmanager
    def sending(self, topic: str, operation: str = "send") -> Iterator["SendSpan"]:
        """The span of a send that the block awaits."""
        sending = self.start_send(topic, operation)
        try:
            yield sending
        except BaseException as error:
            sending.end(error)
            raise
        sending.end()

    def start_process(self, messages: Sequence[TracedMessage], group: str) -> "ProcessSpan":
        """Begin the span of the processing of messages of one topic.

        It is below the span of the producer of a single message. For several messages it has links to the producers.
        """
        contexts = [self._context_of(message) for message in messages]
        topic = messages[0].topic
        attributes = _attributes(topic, "process", "process")
        if group:
            attributes["messaging.consumer.group.name"] = group
        details: dict[str, Any] = {}
        parent, links = contexts[0], []
        if len(messages) == 1:
            details["messaging.message.id"] = messages[0].message_id
        else:
            details["messaging.batch.message_count"] = len(messages)
            parent = self._context.Context()
            producers = [self._trace.get_current_span(one).get_span_context() for one in contexts]
            links = [self._trace.Link(one) for one in producers if one.is_valid]
        span = self._tracer.start_span(
            f"process {topic}", parent, self._trace.SpanKind.CONSUMER, attributes | details, links
        )
        self.consumed.add(len(messages), attributes)
        return ProcessSpan(self, span, self._trace.set_span_in_context(span, parent), attributes)

    @contextmanager
    def processing(self, messages: Sequence[TracedMessage], group: str) -> Iterator[None]:
        """The span of the processing of messages in the block, as the current span."""
        process = self.start_process(messages, group)
        token = self._context.attach(process.context)
        try:
            yield
        except BaseException as error:
            process.end(error)
            raise
        else:
            process.end()
        finally:
            self._context.detach(token)

    def run_context(self, process: "ProcessSpan") -> contextvars.Context:
        """A copy of the current context variables in which `process` is the current span."""
        variables = contextvars.copy_context()
        variables.run(self._context.attach, process.context)
        return variables

    def end(self, span: "Span", error: BaseException | None) -> str | None:
        """End a span; returns the type of the error."""
        kind = None
        if error is not None:
            kind = type(error).__qualname__
            span.set_attribute("error.type", kind)
            if not isinstance(error, asyncio.CancelledError):
                span.record_exception(error)
            span.set_status(self._trace.StatusCode.ERROR, str(error))
        span.end()
        return kind

    def link(self, span: "Span", message: Message) -> None:
        """Link a send to the trace of a message that has one."""
        carrier = {**message.properties}
        if message.trace_context:
            carrier[TRACEPARENT] = message.trace_context
        own = self._trace.get_current_span(self._propagate.extract(carrier, self._context.Context()))
        if own.get_span_context().is_valid:
            span.add_link(own.get_span_context())

    def _context_of(self, message: TracedMessage) -> "Context":
        """The context that the producer has sent, or an empty context."""
        carrier = {**message.properties}
        if trace_context := message.trace_context:
            carrier[TRACEPARENT] = trace_context
        return self._propagate.extract(carrier, self._context.Context())


class SendSpan:
    """The span of one send. Messages get its context, unless they have a context of their own."""

    def __init__(self, telemetry: Telemetry, span: "Span", carrier: dict[str, str], attributes: dict[str, Any]) -> None:
        """Made by `Telemetry.start_send`. `carrier` has the fields of the process's propagators."""
        self._telemetry = telemetry
        self._span = span
        self._carrier = carrier
        self._attributes = attributes
        self._message_count = 0
        self._started_s = telemetry.clock.monotonic_s()

    def stamp(self, message: Message | bytes) -> Message:
        """The message with the context of this span."""
        self._message_count += 1
        plain = message_of(message)
        if plain.trace_context or TRACEPARENT in plain.properties:
            self._telemetry.link(self._span, plain)
            return plain
        if not self._carrier:
            return plain
        properties = {**plain.properties, **self._carrier}
        return plain.replace(properties=properties, trace_context=self._carrier.get(TRACEPARENT))

    def end(self, error: BaseException | None = None) -> None:
        """End the span, with the error of the send."""
        if self._message_count != 1:
            self._span.set_attribute("messaging.batch.message_count", self._message_count)
        kind = self._telemetry.end(self._span, error)
        attributes = self._attributes if kind is None else {**self._attributes, "error.type": kind}
        self._telemetry.sent.add(self._message_count, attributes)
        self._telemetry.send_s.record(self._telemetry.clock.monotonic_s() - self._started_s, attributes)


class ProcessSpan:
    """The span of the processing of one or several messages."""

    def __init__(self, telemetry: Telemetry, span: "Span", context: "Context", attributes: dict[str, Any]) -> None:
        """Made by `Telemetry.start_process`. In `context` this span is the current one."""
        self._telemetry = telemetry
        self._span = span
        self.context = context
        self._attributes = attributes
        self._started_s = telemetry.clock.monotonic_s()

    def end(self, error: BaseException | None = None) -> None:
        """End the span, with the exception of the handler."""
        kind = self._telemetry.end(self._span, error)
        attributes = self._attributes if kind is None else {**self._attributes, "error.type": kind}
        self._telemetry.process_s.record(self._telemetry.clock.monotonic_s() - self._started_s, attributes)


def _attributes(topic: str, name: str, kind: str) -> dict[str, Any]:
    return {
        "messaging.system": "ortoo",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": topic,
    }
