"""The metrics of the console: the number and the duration of requests by page."""

from collections import Counter, defaultdict

from ortoo.common.telemetry.histogram import DELAY_S, Histogram
from ortoo.common.telemetry.metrics import Metrics


class RequestMetrics:
    """The number and the duration of requests, by page. An address without a page counts as one page."""

    def __init__(self) -> None:
        self._totals: Counter[tuple[str, str]] = Counter()
        self._durations_s: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(DELAY_S))

    def observe(self, page: str, status: int, duration_s: float) -> None:
        """Count one request of the page with this path."""
        self._totals[page, str(status)] += 1
        self._durations_s[page].observe(duration_s)

    def register(self, metrics: Metrics) -> None:
        """Register the metrics of requests."""
        metrics.counter(
            "ortoo_console_requests_total",
            "Requests of browsers, by the path of the page and the HTTP status.",
            lambda: dict(self._totals),
            labels=("page", "status"),
        )
        metrics.histogram(
            "ortoo_console_request_seconds",
            "Time until the answer of a page began.",
            lambda: {(page,): one for page, one in self._durations_s.items()},
            labels=("page",),
        )
