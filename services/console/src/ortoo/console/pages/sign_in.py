"""Sign-in with a user of the cluster, and sign-out."""

import math

from starlette.responses import RedirectResponse, Response

from ortoo.client.core.credentials import Credentials
from ortoo.common.errors import Forbidden, Invalid
from ortoo.common.logs.logger import get_logger
from ortoo.console import log_events
from ortoo.console.cluster.authentication import check_authenticated
from ortoo.console.web.sign_in_attempts import browser_address
from ortoo.console.web.visit import Page, Visit

KEY_LENGTH_MAX = 1_000
FORBIDDEN = frozenset(" ,/")
"""Characters that end an access key in a signature, so that the call would be made as another user."""
_log = get_logger("console")


async def show(visit: Visit) -> Response:
    """The form. For a cluster without access rules the page states that no sign-in is needed."""
    try:
        await check_authenticated(visit.admin)
        needs_sign_in = False
    except Forbidden:
        needs_sign_in = True
    return _form(visit, needs_sign_in=needs_sign_in)


async def sign_in(visit: Visit) -> Response:
    """Check the credentials by a signed call, and begin another session with them."""
    access_key, secret_key = visit.form.get("access_key", ""), visit.form.get("secret_key", "")
    if not 0 < len(access_key) <= KEY_LENGTH_MAX or not 0 < len(secret_key) <= KEY_LENGTH_MAX:
        raise Invalid("missing or too long; give the access key and the secret of a user", field="access_key")
    if not access_key.isascii() or not access_key.isprintable() or FORBIDDEN & set(access_key):
        raise Invalid("expected letters, digits and _ - . @; give the access key of a user", field="access_key")
    credentials = Credentials(access_key, secret_key)
    attempts, address = visit.console.attempts, _address(visit)
    log_fields = visit.console.cluster.log_fields
    wait_s = math.ceil(attempts.begin(address, access_key))
    if wait_s:
        _log.emit(log_events.SIGN_IN_PAUSED, user=access_key[:100], address=address, **log_fields)
        error_text = f"too many failed attempts; wait {wait_s} s, and try again"
        response = _form(visit, needs_sign_in=True, error=error_text, status=429)
        response.headers["retry-after"] = str(wait_s)
        return response
    try:
        await visit.console.check_credentials(credentials)
    except Forbidden as error:
        _log.emit(log_events.SIGN_IN_REFUSED, user=access_key[:100], address=address, **log_fields)
        return _form(visit, needs_sign_in=True, error=error.message, status=403)
    attempts.succeed(address, access_key)
    visit.console.sessions.end(visit.session.token)
    visit.session = visit.console.sessions.begin(credentials)
    _log.emit(log_events.USER_SIGNED_IN, user=access_key, address=address, **log_fields)
    response = RedirectResponse(local_path(visit.field("next"), visit.link("/")), 303)
    visit.console.set_cookie(visit.request, response, visit.session)
    return response


async def sign_out(visit: Visit) -> Response:
    """End the session."""
    _log.emit(log_events.USER_SIGNED_OUT, user=visit.session.user, **visit.console.cluster.log_fields)
    visit.console.sessions.end(visit.session.token)
    response = visit.redirect("/sign-in")
    visit.console.delete_cookie(visit.request, response)
    return response


def _address(visit: Visit) -> str:
    """The address of the browser, for the limit on attempts."""
    request = visit.request
    peer = request.client.host if request.client is not None else ""
    return browser_address(peer, request.headers.getlist("x-forwarded-for"), visit.settings.proxy_networks)


def local_path(text: str, first: str = "/") -> str:
    """The address to show after the sign-in; the page `first` unless it is a path of this console."""
    return text if text.startswith("/") and not text.startswith(("//", "/\\")) and "\n" not in text else first


def _form(visit: Visit, *, needs_sign_in: bool, error: str = "", status: int = 200) -> Response:
    return visit.page(
        "sign_in.html",
        title="Sign in",
        status=status,
        next=local_path(visit.query("next") or visit.field("next"), visit.link("/")),
        needs_sign_in=needs_sign_in,
        error=error,
    )


PAGES = (
    Page("/sign-in", show),
    Page("/sign-in", sign_in, is_action=True, changes_cluster=False),
    Page("/sign-out", sign_out, is_action=True, changes_cluster=False),
)
