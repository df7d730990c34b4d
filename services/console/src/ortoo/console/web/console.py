"""Serves pages: finds the session, checks the token of forms, calls the page, and turns errors into pages."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from ortoo.client.core.connection import call_explainer
from ortoo.client.core.credentials import Credentials
from ortoo.common.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    OrtooError,
    OutOfRange,
    Overloaded,
    Unavailable,
)
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock
from ortoo.console import log_events
from ortoo.console.cluster.authentication import check_authenticated
from ortoo.console.cluster.clients import Clients
from ortoo.console.cluster.endpoints import ClusterEndpoint
from ortoo.console.cluster.partial import AUTHORIZATION
from ortoo.console.cluster.prometheus import Prometheus
from ortoo.console.settings import ConsoleSettings
from ortoo.console.web.forms import read_form
from ortoo.console.web.rendering import Rendering
from ortoo.console.web.sessions import BrowserSession, BrowserSessions, cookie_name
from ortoo.console.web.sign_in_attempts import SignInAttempts
from ortoo.console.web.telemetry import RequestMetrics
from ortoo.console.web.visit import Page, Visit

STATUS: Mapping[type[OrtooError], tuple[int, str]] = {
    Invalid: (400, "The request is not valid"),
    Forbidden: (403, "You may not do this"),
    NotFound: (404, "Not found"),
    AlreadyExists: (409, "This name exists already"),
    Conflict: (409, "The present state forbids this"),
    OutOfRange: (410, "This message is no longer stored"),
    Overloaded: (503, "The cluster is busy"),
    Unavailable: (503, "The cluster does not answer"),
}
"""The HTTP status and the heading of each kind of error."""
SIGN_IN_PATH = "/sign-in"
_log = get_logger("console")


@dataclass(eq=False, slots=True)
class ProcessParts:
    """The parts of the process that the pages of all clusters share."""

    settings: ConsoleSettings
    clusters: Sequence[ClusterEndpoint]
    clock: Clock
    rendering: Rendering = field(default_factory=Rendering)
    requests: RequestMetrics = field(default_factory=RequestMetrics)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the console begins to stop, so that endless answers end."""
    live_pages: int = 0
    """Number of pages that follow a topic now."""

    @contextmanager
    def live_page(self) -> Iterator[None]:
        """Count a page that follows a topic."""
        self.live_pages += 1
        try:
            yield
        finally:
            self.live_pages -= 1


@dataclass(eq=False, slots=True)
class Console:
    """The pages of one cluster. Sessions, connections and the limit on attempts to sign in belong to this cluster."""

    shared: ProcessParts
    cluster: ClusterEndpoint
    sessions: BrowserSessions
    clients: Clients
    attempts: SignInAttempts
    prometheus: Prometheus | None
    """The source of history of more than an hour."""

    @property
    def settings(self) -> ConsoleSettings:
        """The settings of the console."""
        return self.shared.settings

    @property
    def clock(self) -> Clock:
        """The clock of the console."""
        return self.shared.clock

    def endpoint(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        """The function that serves a page."""

        async def serve(request: Request) -> Response:
            begun_s = self.clock.monotonic_s()
            session = self.sessions.find(request.cookies.get(self._cookie_name(request), ""))
            is_new = session is None
            session = session or self.sessions.begin()
            response = await self._answer(page, request, session, is_new)
            if is_new and "set-cookie" not in response.headers:
                self.set_cookie(request, response, session)
            self.shared.requests.observe(page.path, response.status_code, self.clock.monotonic_s() - begun_s)
            return response

        return serve

    def set_cookie(self, request: Request, response: Response, session: BrowserSession) -> None:
        """Give the browser the token of its session."""
        # Some browsers send no secure cookie to a loopback address, whose traffic does not leave the machine.
        is_secure = bool(self.settings.https_certificate_file) or not self.settings.is_local
        name, path = self._cookie_name(request), f"{self.cluster.root}/"
        response.set_cookie(name, session.token, httponly=True, secure=is_secure, samesite="lax", path=path)

    def delete_cookie(self, request: Request, response: Response) -> None:
        """Let the browser forget its session."""
        response.delete_cookie(self._cookie_name(request), path=f"{self.cluster.root}/")

    def _cookie_name(self, request: Request) -> str:
        return cookie_name(request.headers.get("host", ""), self.cluster.name)

    async def check_credentials(self, credentials: Credentials) -> None:
        """Make a signed call that needs no permission. Errors: Forbidden, Unavailable."""
        try:
            await check_authenticated((await self.clients.client(credentials)).admin)
        except BaseException:
            self.sessions.release(credentials)
            raise

    async def _answer(self, page: Page, request: Request, session: BrowserSession, is_new: bool) -> Response:
        visit = Visit(request, session, await self.clients.client(session.credentials), self)
        explainer = call_explainer.set(visit.grpcurl.append)
        try:
            if page.is_action:
                visit.form = {} if is_new else await read_form(request)
                self._check_action(page, visit, is_new)
            visit.rights = await visit.rights_on(str(request.path_params.get("name", "")))
            visit.grpcurl.clear()
            response = await page.show(visit)
            if page.is_action and page.changes_cluster:
                _log.emit(log_events.CONSOLE_ACTION, user=session.user, action=visit.path, **_logged(visit))
        except OrtooError as error:
            return self._refused(visit, page, error)
        except Exception as error:
            _log.emit(log_events.PAGE_FAILED, path=request.url.path, exc_info=error)
            text = "This is a defect of the console. Its log has the details."
            return visit.page("error.html", title="The page failed", status=500, message=text, remedy="")
        finally:
            call_explainer.reset(explainer)
        return response

    def _check_action(self, page: Page, visit: Visit, is_new: bool) -> None:
        if is_new or not visit.session.is_csrf_token(visit.form.get("csrf_token", "")):
            _log.emit(log_events.REQUEST_REFUSED, reason="token", host="")
            raise Forbidden("the form is from another session; open its page again and repeat the action", field="form")
        if self.settings.read_only and page.changes_cluster:
            raise Forbidden("this console is read-only (its setting read_only); use the ortoo command")

    def _refused(self, visit: Visit, page: Page, error: OrtooError) -> Response:
        if page.is_action:
            _log.emit(
                log_events.CONSOLE_ACTION_REFUSED,
                user=visit.session.user,
                action=visit.path,
                reason=str(error),
                **_logged(visit),
            )
        if isinstance(error, Forbidden) and error.field == AUTHORIZATION:
            target = visit.link(visit.path if not page.is_action else "/")
            return visit.redirect(f"{SIGN_IN_PATH}?next={quote(target, safe='/')}")
        status, title = next(
            (found for kind, found in STATUS.items() if isinstance(error, kind)), (500, "The request failed")
        )
        return visit.page("error.html", title=title, status=status, message=str(error), remedy=_remedy(error))


def _remedy(error: OrtooError) -> str:
    if isinstance(error, Forbidden):
        return "An admin can give you the permission in the access file of the snodes."
    if isinstance(error, Unavailable | Overloaded):
        return "Wait a moment and load the page again. `ortoo doctor` shows what is wrong."
    return ""


def _logged(visit: Visit) -> dict[str, str]:
    """The object of an action, without bodies and secrets."""
    named = {key: str(value) for key, value in visit.request.path_params.items()}
    named |= visit.console.cluster.log_fields
    return named | {key: visit.form[key] for key in ("topic", "group", "enode") if visit.form.get(key)}
