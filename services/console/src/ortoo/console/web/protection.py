"""The checks that precede every request, and the headers that follow every answer."""

from collections.abc import Mapping, Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ortoo.common.logs.logger import get_logger
from ortoo.common.machine.printable import printable_line
from ortoo.console import log_events

HEADERS: Mapping[str, str] = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
UNPROTECTED = ("/healthz", "/readyz")
"""Paths that probes call by the address of the process."""
SHOWN_LENGTH_MAX = 100
_log = get_logger("console")


class Protection:
    """Refuses requests for other host names and from other origins, and adds security headers to every answer.

    The check of the host name keeps out pages of other sites whose name resolves to this address. The check of the
    origin keeps out forms of other sites, in addition to the tokens of forms.
    """

    def __init__(self, app: ASGIApp, hosts: Sequence[str], *, is_https: bool) -> None:
        """`hosts` are the host names without port that requests may use; empty = all."""
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._headers = dict(HEADERS)
        if is_https:
            self._headers["strict-transport-security"] = "max-age=31536000"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http" or scope["path"] in UNPROTECTED:
            await self._app(scope, receive, send)
            return

        async def send_protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refusal = self._refusal(scope["method"], Headers(scope=scope))
        app = self._app if refusal is None else PlainTextResponse(refusal, 403)
        await app(scope, receive, send_protected)

    def _refusal(self, method: str, headers: Headers) -> str | None:
        host = headers.get("host", "")
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        shown = printable_line(host[:SHOWN_LENGTH_MAX])
        if self._hosts and name.lower() not in self._hosts:
            _log.emit(log_events.REQUEST_REFUSED, reason="host", host=shown)
            return f"The host name {shown} is not one of this console. Its setting allowed_hosts lists the names.\n"
        if method in ("GET", "HEAD"):
            return None
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if (origin is not None and origin.partition("://")[2] != host) or site not in (None, "same-origin", "none"):
            _log.emit(log_events.REQUEST_REFUSED, reason="origin", host=shown)
            return "The request comes from a page of another site. Send the form of the console itself.\n"
        return None
