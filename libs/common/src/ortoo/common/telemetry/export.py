"""Export of metrics to an OpenTelemetry collector, beside or instead of scraping. Off without an endpoint.

Cumulative sums, gauges and histograms have the same names and labels as for Prometheus. A receiver that does not answer
causes a warning and a gap, and never affects messages.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ortoo.common.cluster.service_settings import ServiceSettings
from ortoo.common.errors import Unsupported
from ortoo.common.logs import log_events
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock
from ortoo.common.process.long_work import wait_uncancelled
from ortoo.common.telemetry.histogram import Histogram
from ortoo.common.telemetry.metrics import Family, Metrics, Number, Sample

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import Metric, MetricExporter

EXPORT_TIMEOUT_S = 2.0
"""Timeout of an export. A receiver that does not answer can delay a stop by this time."""
_log = get_logger("metrics")
Reading = tuple[Family, list[Sample]]


class MetricsExport:
    """Sends the `metrics` to the receiver in the settings."""

    def __init__(self, role: str, settings: ServiceSettings, metrics: Metrics, clock: Clock) -> None:
        """Send for a process. Errors: Unsupported when OpenTelemetry is not installed."""
        endpoint = settings.metrics_endpoint
        try:
            from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
            from opentelemetry.sdk.resources import Resource
        except ModuleNotFoundError as error:
            raise Unsupported(
                "sending metrics needs OpenTelemetry: pip install 'ortoo[tracing]'", field="metrics_endpoint"
            ) from error
        self._exporter: MetricExporter = OTLPMetricExporter(
            endpoint=endpoint, insecure=endpoint.startswith("http://"), timeout=EXPORT_TIMEOUT_S
        )
        self._resource = Resource.create({"service.name": f"ortoo-{role}", "service.instance.id": settings.name})
        self._metrics = metrics
        self._interval_s = settings.metrics_interval_s
        self._clock = clock
        self._started_ns = clock.now_ms() * 1_000_000
        self._is_away = False

    async def run(self) -> None:
        """Send the metrics until cancelled. The receiver's errors are logged; other failures end the process."""
        while True:
            await self._clock.sleep(self._interval_s)
            await self.send()

    async def send(self) -> None:
        """Send the metrics once. They are read on the event loop, and encoded and sent in a thread."""
        readings: dict[str, Reading] = {}
        for family, samples in self._metrics.slices():
            if family is not None:
                _, read = readings.setdefault(family.name, (family, []))
                read += [(values, _fixed(value)) for values, value in samples]
            await self._clock.sleep(0)  # messages go first
        now_ns = self._clock.now_ms() * 1_000_000
        # Only one thread at a time may use the exporter's connection, and a stop sends once more.
        exporting = asyncio.get_running_loop().run_in_executor(None, self._export, list(readings.values()), now_ns)
        sent = await wait_uncancelled(exporting)
        if sent == self._is_away:
            self._is_away = not sent
            _log.emit(log_events.METRICS_EXPORTED_AGAIN if sent else log_events.METRICS_EXPORT_FAILED_RETRYING)

    async def close(self) -> None:
        """Send the metrics a last time, and close the connection."""
        await self.send()
        await asyncio.to_thread(self._exporter.shutdown, 1_000)

    def _export(self, readings: Sequence[Reading], now_ns: int) -> bool:
        from opentelemetry.sdk.metrics.export import (
            MetricExportResult,
            MetricsData,
            ResourceMetrics,
            ScopeMetrics,
        )
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        found = [_metric(family, samples, self._started_ns, now_ns) for family, samples in readings if samples]
        scope = ScopeMetrics(InstrumentationScope("ortoo"), found, "")
        data = MetricsData([ResourceMetrics(self._resource, [scope], "")])
        return self._exporter.export(data, EXPORT_TIMEOUT_S * 1000) is MetricExportResult.SUCCESS


def _fixed(value: Number | Histogram) -> Number | Histogram:
    """The current value; a histogram is copied, because it continues to count."""
    if not isinstance(value, Histogram):
        return value
    copy = Histogram(value.bounds)
    copy.counts, copy.total = list(value.counts), value.total
    return copy


def _metric(family: Family, samples: Sequence[Sample], started_ns: int, now_ns: int) -> "Metric":
    from opentelemetry.sdk.metrics import export

    points: list[Any] = []
    for values, value in samples:
        labels = dict(zip(family.labels, values, strict=True))
        if isinstance(value, Histogram):
            points.append(
                export.HistogramDataPoint(
                    labels, started_ns, now_ns, value.count, value.total, value.counts, value.bounds, 0.0, 0.0
                )
            )
        else:
            points.append(export.NumberDataPoint(labels, started_ns, now_ns, value))
    cumulative = export.AggregationTemporality.CUMULATIVE
    data: Any
    if family.kind == "histogram":
        data = export.Histogram(points, cumulative)
    elif family.kind == "counter":
        data = export.Sum(points, cumulative, is_monotonic=True)
    else:
        data = export.Gauge(points)
    return export.Metric(family.name, family.help, "", data)
