"""Opens the console: connections to the cluster, sessions, pages, and the HTTP server."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
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
from ortoo.console.cluster.endpoints import ClusterEndpoint, cluster_endpoints
from ortoo.console.cluster.prometheus import Prometheus
from ortoo.console.pages import ALL_PAGES, error_page
from ortoo.console.settings import ConsoleSettings
from ortoo.console.web.console import Console, ProcessParts
from ortoo.console.web.protection import Protection
from ortoo.console.web.server import open_server
from ortoo.console.web.sessions import BrowserSessions
from ortoo.console.web.sign_in_attempts import SignInAttempts


@asynccontextmanager
async def open_console(
    settings: ConsoleSettings, *, clock: Clock | None = None, randomness: Randomness | None = None
) -> AsyncIterator[Running]:
    """Serve the console until the end of the block. Errors: Conflict if the port is taken."""
    clock, randomness = clock or SystemClock(), randomness or Randomness()
    clusters = cluster_endpoints(settings)
    shared = ProcessParts(settings, clusters, clock)
    async with Background("console") as background:
        consoles = [_console(shared, one, randomness, background) for one in clusters]
        for console in consoles:
            await console.clients.client(None)  # files that cannot be read prevent the start
        async with (
            open_server(_application(consoles), settings, shared.stopping) as address,
            _telemetry(consoles),
        ):
            try:
                yield Running(settings.name, address)
            finally:
                for console in consoles:
                    if console.prometheus is not None:
                        console.prometheus.close()


def _console(shared: ProcessParts, cluster: ClusterEndpoint, randomness: Randomness, background: Background) -> Console:
    """The pages of one cluster, with sessions and connections of its own."""
    settings, clock = shared.settings, shared.clock
    clients = Clients(cluster, clock, randomness, background)
    sessions = BrowserSessions(
        settings.sessions_max,
        settings.session_idle_s,
        settings.session_lifetime_s,
        clock,
        randomness,
        on_last=clients.close,
    )
    prometheus = None
    if settings.prometheus_url:
        prometheus = Prometheus(settings.prometheus_url_of(cluster.name), settings.prometheus_labels_of(cluster.name))
    return Console(shared, cluster, sessions, clients, SignInAttempts(clock), prometheus)


@asynccontextmanager
async def _telemetry(consoles: Sequence[Console]) -> AsyncIterator[None]:
    """Serve the metrics of the console until the end of the block. Errors: Conflict if the port is taken."""
    shared = consoles[0].shared
    metrics, process = Metrics(), ProcessMetrics("console", shared.settings.name, shared.clock)
    process.register(metrics)
    shared.requests.register(metrics)
    metrics.gauge("ortoo_console_live_pages", "Open pages that follow a topic.", lambda: shared.live_pages)
    metrics.gauge("ortoo_console_sessions", "Sessions of browsers.", lambda: sum(len(one.sessions) for one in consoles))
    address = shared.settings.metrics_address
    endpoint = MetricsEndpoint(
        address, metrics, ready=lambda: True, clock=shared.clock, on_scrape=process.record_scrape
    )
    async with endpoint, Background("telemetry") as background:
        if address:
            background.spawn("loop", process.probe_loop())
        yield


def _application(consoles: Sequence[Console]) -> ASGIApp:
    """The ASGI application: all pages, the static files, and the answers for health checks."""
    first = consoles[0]
    pages = [Mount(one.cluster.root, routes=_pages(one)) for one in consoles] if first.cluster.root else _pages(first)
    routes = [
        Mount("/static", _StaticFiles(packages=[("ortoo.console", "static")])),
        Route("/healthz", _healthy),
        Route("/readyz", _healthy),
        *pages,
    ]
    if first.cluster.root:
        routes.append(Route("/", lambda _: RedirectResponse(first.cluster.root + "/", 303)))
    serve_error = {one.cluster.root: one.endpoint(error_page) for one in consoles}

    async def serve_missing(request: Request, error: Exception) -> Response:
        root = next((one for one in serve_error if request.url.path.startswith(f"{one}/")), None)
        if root is None:
            return PlainTextResponse("There is no page at this address.\n", 404)
        return await serve_error[root](request)

    settings = first.settings
    application = Starlette(routes=routes, exception_handlers={404: serve_missing})
    return Protection(application, settings.hosts, is_https=bool(settings.https_certificate_file))


def _pages(console: Console) -> list[BaseRoute]:
    """The pages of one cluster."""
    return [page.route(console.endpoint(page)) for page in ALL_PAGES]


class _StaticFiles(StaticFiles):
    def file_response(self, *arguments: object, **options: object) -> Response:
        response: Response = super().file_response(*arguments, **options)  # type: ignore[arg-type]
        response.headers["cache-control"] = "max-age=3600"
        return response


async def _healthy(request: Request) -> Response:
    """The process serves requests. It is also ready while the cluster is not: its pages say what is wrong."""
    return PlainTextResponse("ok\n")
