"""The sessions of browsers, in memory: a restart of the console ends them."""

import hmac
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from ortoo.client.core.credentials import Credentials
from ortoo.common.process.clock import Clock
from ortoo.common.process.randomness import Randomness

COOKIE = "ortoo_console"


@dataclass(eq=False, slots=True)
class BrowserSession:
    """One browser: its secret tokens, and its user if it has signed in."""

    token: str
    csrf_token: str
    credentials: Credentials | None
    used_at_s: float
    ends_at_s: float
    is_ended: bool = False
    """Whether the user has signed out, or the session was idle or lived for too long. Endless answers end then."""

    @property
    def user(self) -> str:
        """The access key of the user; empty = not signed in."""
        return self.credentials.access_key if self.credentials is not None else ""

    def is_csrf_token(self, text: str) -> bool:
        """Whether a form carries the token of this session."""
        return hmac.compare_digest(text.encode(), self.csrf_token.encode())


def cookie_name(host: str, cluster: str = "") -> str:
    """The name of the cookie for requests with this header `Host` to the pages of a cluster.

    Browsers send the cookies of a host name to all its ports, so that consoles at two ports need two names.
    """
    port = host.rpartition(":")[2]
    name = f"{COOKIE}_{port}" if port.isascii() and port.isdecimal() else COOKIE
    return f"{name}.{cluster}" if cluster else name


class BrowserSessions:
    """All sessions, the one that was unused longest first."""

    def __init__(
        self,
        sessions_max: int,
        idle_s: float,
        lifetime_s: float,
        clock: Clock,
        randomness: Randomness,
        on_last: Callable[[Credentials | None], None],
    ) -> None:
        """`on_last` is called when the last session with these credentials has ended."""
        self._max = sessions_max
        self._idle_s = idle_s
        self._lifetime_s = lifetime_s
        self._clock = clock
        self._randomness = randomness
        self._on_last = on_last
        self._sessions: OrderedDict[str, BrowserSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, token: str) -> BrowserSession | None:
        """The session with this token, which counts as used now; None if there is none, or it has ended."""
        self._end_idle()
        session = self._sessions.get(token)
        if session is None or self.is_over(session):
            return None
        session.used_at_s = self._clock.monotonic_s()
        self._sessions.move_to_end(token)
        return session

    def is_over(self, session: BrowserSession) -> bool:
        """Whether a session has ended. At the end of its lifetime it ends here."""
        if not session.is_ended and self._clock.monotonic_s() >= session.ends_at_s:
            self.end(session.token)
        return session.is_ended

    def begin(self, credentials: Credentials | None = None) -> BrowserSession:
        """A session with tokens of its own. A sign-in begins another session, so that no earlier token gets rights.

        At the limit, a session without a user ends first.
        """
        self._end_idle()
        if len(self._sessions) >= self._max:
            oldest = next(iter(self._sessions))
            self.end(next((token for token, one in self._sessions.items() if one.credentials is None), oldest))
        token, csrf_token = self._randomness.key_bytes().hex(), self._randomness.key_bytes().hex()
        now_s = self._clock.monotonic_s()
        session = BrowserSession(token, csrf_token, credentials, now_s, now_s + self._lifetime_s)
        self._sessions[token] = session
        return session

    def end(self, token: str) -> None:
        """End a session; unknown tokens are ignored."""
        session = self._sessions.pop(token, None)
        if session is not None:
            session.is_ended = True
            self.release(session.credentials)

    def release(self, credentials: Credentials | None) -> None:
        """Close the connection of these credentials unless a session uses them."""
        if not any(one.credentials == credentials for one in self._sessions.values()):
            self._on_last(credentials)

    def _end_idle(self) -> None:
        earliest_s = self._clock.monotonic_s() - self._idle_s
        while self._sessions and (oldest := next(iter(self._sessions.values()))).used_at_s < earliest_s:
            self.end(oldest.token)
