"""The telemetry of a role: metrics of the process and of its calls, and their endpoint and export."""

import contextlib
import socket
from collections.abc import AsyncIterator, Callable

from ortoo.common.cluster.service_settings import ServiceSettings
from ortoo.common.machine.certificates import certificate_files
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.common.telemetry.call_metrics import CallMetrics
from ortoo.common.telemetry.endpoint import MetricsEndpoint
from ortoo.common.telemetry.export import MetricsExport
from ortoo.common.telemetry.metrics import Metrics
from ortoo.common.telemetry.process_metrics import ProcessMetrics


class RoleTelemetry:
    """The metrics of a process. Make it before the server, whose layers include `calls`; open it after all parts."""

    def __init__(self, role: str, settings: ServiceSettings, clock: Clock) -> None:
        """Register the metrics of one process. `open` serves and sends them as `settings` say."""
        self.metrics = Metrics()
        self.calls = CallMetrics(clock)
        self.address = settings.metrics_address
        """The address of the metrics endpoint, with the real port once it is open."""
        self._role = role
        self._settings = settings
        self._clock = clock
        self._process = ProcessMetrics(role, settings.name, clock, certificate_files(settings))
        self.findings = self._process.findings
        """Findings about the process. The event loop is only measured where metrics are served or sent."""
        self._process.register(self.metrics)
        self.calls.register(self.metrics)

    @contextlib.asynccontextmanager
    async def open(self, *, ready: Callable[[], bool], listener: socket.socket | None = None) -> AsyncIterator[None]:
        """Serve and send the metrics until the end of the block. `listener` is a bound socket; None = bind the address.

        `ready` returns whether requests are accepted. Errors: Conflict, Unsupported.
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
            on_scrape=self._process.record_scrape,
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
