"""The latency of all sends, by every method: batches of streams, and single calls of both protocols."""

from typing import Final

from ortoo.common.telemetry.call_metrics import CallMetrics
from ortoo.common.telemetry.histogram import Histogram
from ortoo.common.telemetry.metrics import Metrics

PRODUCE: Final = "ortoo.v1.ProducerService/Produce"
"""The stream of native producers. Each of its batches is one send."""
CALLS: Final = (
    "ortoo.v1.ProducerService/Publish",
    "ortoo.v1.ProducerService/BeginTransaction",
    "apache.rocketmq.v2.MessagingService/SendMessage",
)
"""The methods whose calls are one send each."""


class SendLatency:
    """The latencies of batches on streams. Those of single calls are taken from the metrics of calls at each scrape."""

    def __init__(self, calls: CallMetrics) -> None:
        """Begin without batches; `calls` measures the other sends."""
        self._calls = calls
        self._batches: dict[str, Histogram] = {}

    def observe_batch(self, status: str, latency_s: float) -> None:
        """Count a batch that was answered with a gRPC status."""
        latencies = self._batches.get(status)
        if latencies is None:
            latencies = self._batches[status] = Histogram()
        latencies.observe(latency_s * 1000)

    def register(self, metrics: Metrics) -> None:
        """Register the metric."""
        metrics.histogram(
            "ortoo_send_latency",
            "Milliseconds from the arrival of a send to its answer, by method and status. A send is a batch of a "
            "native producer, or a call with single messages.",
            self._read,
            labels=("request_code", "response_code"),
        )

    def _read(self) -> dict[tuple[str, ...], Histogram]:
        found: dict[tuple[str, ...], Histogram] = {(PRODUCE, status): one for status, one in self._batches.items()}
        found.update((key, latencies) for key, latencies in list(self._calls.calls.items()) if key[0] in CALLS)
        return found
