"""Our metrics, histograms and spans beside the libraries that could replace them: prometheus_client, OpenTelemetry."""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client import Histogram as LibraryHistogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from bench.report import Figures, main, ratio
from ortoo.client import Message
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.common.records.batch import encode
from ortoo.common.telemetry.histogram import LATENCY_MS, Histogram
from ortoo.common.telemetry.metrics import Metrics
from ortoo.common.telemetry.span_exporter import span_to
from ortoo.common.telemetry.text import chunks
from ortoo.common.telemetry.tracing import Tracing, sampled_contexts

METHOD = (
    "each of ours and its baseline in turn, in one process, on the same values; processor time of one item, the median "
    "over the rounds. A series has two labels, a span three attributes"
)
SERIES = [(f"topic-{topic}", f"group-{group}") for topic in range(50) for group in range(50)]
VALUES = [float(1 + number * number % 211) for number in range(2_000)]
ATTRIBUTES: dict[str, str | int] = {"ortoo.enode": "enode-0", "ortoo.topic_id": "1", "ortoo.queue_id": 3}
PARENTS = [(number, 7) for number in range(1, 9)]
CONTEXT = f"00-{1:032x}-{7:016x}-00"
BATCHES = 50
Work = Callable[[], object]


class Families(Collector):
    """The families of our metrics as prometheus_client's."""

    def __init__(self, metrics: Metrics) -> None:
        """Read `metrics`."""
        self._metrics = metrics

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Each family of gauges."""
        found: dict[str, GaugeMetricFamily] = {}
        for family, samples in self._metrics.slices():
            if family is not None and family.name not in found:
                found[family.name] = GaugeMetricFamily(family.name, family.help, labels=family.labels)
            for values, value in samples:
                assert family is not None
                assert not isinstance(value, Histogram)
                found[family.name].add_metric(values, value)
        yield from found.values()


class Kept(SpanProcessor):
    """Keeps the ended spans of OpenTelemetry's tracer."""

    def __init__(self) -> None:
        """Start without spans."""
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        """Keep a span."""
        self.spans.append(span)


def metric_pairs() -> Iterator[tuple[str, int, Work, Work]]:
    """Name, items, ours and the baseline: of a scrape, and of one observed value."""
    metrics = Metrics()
    metrics.gauge("lag", "Lag.", lambda: [(pair, 7) for pair in SERIES], labels=("topic", "consumer_group"))
    families = Families(metrics)
    yield "series rendered", len(SERIES), lambda: "".join(chunks(metrics)).encode(), lambda: generate_latest(families)
    ours = {("Send", "OK"): Histogram()}
    library = LibraryHistogram("a", "A.", ["method", "status"], buckets=LATENCY_MS, registry=CollectorRegistry())

    def observe() -> None:
        for value in VALUES:
            ours["Send", "OK"].observe(value)

    def library_observe() -> None:
        for value in VALUES:
            library.labels("Send", "OK").observe(value)

    yield "value observed", len(VALUES), observe, library_observe


def span_pairs() -> Iterator[tuple[str, int, Work, Work]]:
    """Name, items, ours and the baseline: of spans and of trace contexts."""
    tracing, kept, provider = Tracing(clock=SystemClock(), randomness=Randomness()), Kept(), TracerProvider()
    provider.add_span_processor(kept)
    tracer = provider.get_tracer("bench")

    def ours() -> None:
        tracing.ended = []
        for _ in range(BATCHES):
            tracing.finish_spans(tracing.start_spans("ortoo publish", PARENTS, ATTRIBUTES))

    def library() -> None:
        kept.spans = []
        for _ in range(BATCHES):
            contexts = [SpanContext(trace, span, True, TraceFlags(TraceFlags.SAMPLED)) for trace, span in PARENTS]
            parents = [set_span_in_context(NonRecordingSpan(context)) for context in contexts]
            for span in [tracer.start_span("a", parent, SpanKind.PRODUCER, ATTRIBUTES) for parent in parents]:
                span.end()

    spans = BATCHES * len(PARENTS)
    yield "span begun and ended", spans, ours, library
    yield "span encoded", spans, lambda: list(map(span_to, tracing.ended)), lambda: encode_spans(kept.spans)
    batch = encode([Message(b"x", trace_context=CONTEXT)] * spans, now_ms=1)
    propagator = TraceContextTextMapPropagator()
    yield (
        "trace context read, not sampled",
        spans,
        lambda: sampled_contexts(batch.records),
        lambda: [propagator.extract({"traceparent": CONTEXT}) for _ in range(spans)],
    )


def _us(work: Work, items: int) -> float:
    begun_s = time.process_time()
    work()
    return (time.process_time() - begun_s) / items * 1e6


async def measure(options: argparse.Namespace) -> Figures:
    """Measure every pair."""
    found: Figures = {"rounds": options.rounds}
    for name, items, ours, library in [*metric_pairs(), *span_pairs()]:
        rounds = [(_us(ours, items), _us(library, items)) for _ in range(options.rounds)]
        ours_us, library_us = (statistics.median(column) for column in zip(*rounds, strict=True))
        found[name] = {
            "ours_us": round(ours_us, 3),
            "library_us": round(library_us, 3),
            "library_to_ours": ratio(library_us, ours_us),
        }
    return found


if __name__ == "__main__":
    main("telemetry", METHOD, measure, rounds=15)
