"""Opens the console: connections to the cluster, sessions, pages, and the HTTP server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock, SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.common.process.service import Running
from ortoo.common.telemetry.endpoint import MetricsEndpoint
from ortoo.common.telemetry.metrics import Metrics
from ortoo.common.telemetry.process_metrics import ProcessMetrics
from ortoo.console.cluster.clients import Clients
from ortoo.console.pages import ALL_PAGES, error_page
from ortoo.console.settings import ConsoleSettings
from ortoo.console.web.console import Console
from ortoo.console.web.protection import Protection
from ortoo.console.web.rendering import Rendering
from ortoo.console.web.server import open_server
from ortoo.console.web.sessions import BrowserSessions
from ortoo.console.web.sign_in_attempts import SignInAttempts
from ortoo.console.web.telemetry import RequestMetrics


@asynccontextmanager
async def open_console(
    settings: ConsoleSettings, *, clock: Clock | None = None, randomness: Randomness | None = None
) -> AsyncIterator[Running]:
    """Serve the console until the end of the block. Errors: Conflict if the port is taken."""
    clock, randomness = clock or SystemClock(), randomness or Randomness()
    async with Background("console") as background:
        clients = Clients(settings, clock, randomness, background)
        sessions = BrowserSessions(
            settings.sessions_max,
            settings.session_idle_s,
            settings.session_lifetime_s,
            clock,
            randomness,
            on_last=clients.close,
        )
        await clients.client(None)  # files that cannot be read prevent the start
        console = Console(
            settings, sessions, clients, Rendering(), clock, SignInAttempts(clock), RequestMetrics(), asyncio.Event()
        )
        async with (
            open_server(_application(console), settings, console.stopping) as address,
            _telemetry(console),
        ):
            yield Running(settings.name, address)


@asynccontextmanager
async def _telemetry(console: Console) -> AsyncIterator[None]:
    """Serve the metrics of the console until the end of the block. Errors: Conflict if the port is taken."""
    metrics, process = Metrics(), ProcessMetrics("console", console.settings.name, console.clock)
    process.register(metrics)
    console.register(metrics)
    address = console.settings.metrics_address
    endpoint = MetricsEndpoint(
        address, metrics, ready=lambda: True, clock=console.clock, on_scrape=process.record_scrape
    )
    async with endpoint, Background("telemetry") as background:
        if address:
            background.spawn("loop", process.probe_loop())
        yield


def _application(console: Console) -> ASGIApp:
    """The ASGI application: all pages, the static files, and the answers for health checks."""
    routes = [
        *(page.route(console.endpoint(page)) for page in ALL_PAGES),
        Mount("/static", _StaticFiles(packages=[("ortoo.console", "static")])),
        Route("/healthz", _healthy),
        Route("/readyz", _healthy),
    ]
    settings, serve_error = console.settings, console.endpoint(error_page)

    async def serve_missing(request: Request, error: Exception) -> Response:
        return await serve_error(request)

    pages = Starlette(routes=routes, exception_handlers={404: serve_missing})
    return Protection(pages, settings.hosts, is_https=bool(settings.https_certificate_file))


class _StaticFiles(StaticFiles):
    def file_response(self, *arguments: object, **options: object) -> Response:
        response: Response = super().file_response(*arguments, **options)  # type: ignore[arg-type]
        response.headers["cache-control"] = "max-age=3600"
        return response


async def _healthy(request: Request) -> Response:
    """The process serves requests. It is also ready while the cluster is not: its pages say what is wrong."""
    return PlainTextResponse("ok\n")
