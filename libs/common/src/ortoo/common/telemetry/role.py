"""A role's telemetry in one line of its app: metrics of the process and of its calls, and where they are served."""

import contextlib
import socket
from collections.abc import AsyncIterator, Callable

from ortoo.common.cluster.service_settings import ServiceSettings
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.common.telemetry.call_metrics import CallMetrics
from ortoo.common.telemetry.endpoint import MetricsEndpoint
from ortoo.common.telemetry.export import MetricsExport
from ortoo.common.telemetry.metrics import Metrics
from ortoo.common.telemetry.process_metrics import ProcessMetrics


class Telemetry:
    """What a process counts. Made before its server, whose interceptor is `calls`; opened when the parts are there."""

    def __init__(self, role: str, settings: ServiceSettings, clock: Clock) -> None:
        """Count for one process; serve and send when opened, as `settings` say."""
        self.metrics = Metrics()
        self.calls = CallMetrics(clock)
        self.address = settings.metrics_address
        """Where metrics are served: the real port once it is open."""
        self._role = role
        self._settings = settings
        self._clock = clock
        self._process = ProcessMetrics(role, settings.name, clock)
        self.findings = self._process.findings
        """Whether the event loop keeps up, where metrics are served or sent."""
        self._process.register(self.metrics)
        self.calls.register(self.metrics)

    @contextlib.asynccontextmanager
    async def open(self, *, ready: Callable[[], bool], listener: socket.socket | None = None) -> AsyncIterator[None]:
        """Serve while the block is entered, on a bound `listener` if there is one; `ready`: requests are welcome.

        Errors: Conflict, Unsupported.
        """
        self.metrics.gauge("ortoo_ready", "1 while requests are welcome.", lambda: int(ready()))
        if not self.address and listener is None and not self._settings.metrics_endpoint:
            yield
            return
        endpoint = MetricsEndpoint(
            self.address,
            self.metrics,
            ready=ready,
            clock=self._clock,
            on_scrape=self._process.scraped,
            listener=listener,
        )
        async with contextlib.AsyncExitStack() as parts:
            export = None
            if self._settings.metrics_endpoint:
                export = MetricsExport(self._role, self._settings, self.metrics, self._clock)
                parts.push_async_callback(export.close)
            background = await parts.enter_async_context(Background("telemetry"))
            await parts.enter_async_context(endpoint)
            background.spawn("loop", self._process.probe_loop())
            if export is not None:
                background.spawn("export", export.run())
            self.address = endpoint.address
            yield
