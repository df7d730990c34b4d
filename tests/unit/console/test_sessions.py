"""Sessions of browsers: unknown tokens, idle ends, the limit, and the end of connections."""

import pytest

from ortoo.client.core.credentials import Credentials
from ortoo.common.process.randomness import Randomness
from ortoo.console.web.sessions import COOKIE, BrowserSessions, cookie_name
from ortoo.verification.time.stepped_clock import SetClock

ANN, BOB = Credentials("ann", "a"), Credentials("bob", "b")


class Scene:
    """Sessions on a virtual clock, and the credentials whose last session has ended."""

    def __init__(self, sessions_max: int = 3, idle_s: float = 100.0, lifetime_s: float = 1_000.0) -> None:
        self.clock = SetClock()
        self.ended: list[Credentials | None] = []
        self.sessions = BrowserSessions(sessions_max, idle_s, lifetime_s, self.clock, Randomness(1), self.ended.append)


def test_tokens_are_secret_and_differ() -> None:
    """Each session has tokens of 256 bits of its own; an unknown token finds nothing."""
    scene = Scene()
    first, second = scene.sessions.begin(ANN), scene.sessions.begin(ANN)
    assert len({first.token, first.csrf_token, second.token, second.csrf_token}) == 4
    assert len(first.token) == 64
    assert scene.sessions.find(first.token) is first
    assert scene.sessions.find("") is None
    assert first.is_csrf_token(first.csrf_token)
    assert not first.is_csrf_token(second.csrf_token)
    assert not first.is_csrf_token("é")


def test_an_idle_session_ends_and_a_used_one_stays() -> None:
    """The time counts from the last request."""
    scene = Scene(idle_s=100.0)
    used, idle = scene.sessions.begin(ANN), scene.sessions.begin(BOB)
    scene.clock.now_s += 60
    assert scene.sessions.find(used.token) is used
    scene.clock.now_s += 60
    assert scene.sessions.find(used.token) is used
    assert scene.sessions.find(idle.token) is None
    assert scene.ended == [BOB]


def test_at_the_limit_a_session_without_a_user_ends_first() -> None:
    """Browsers that do not sign in cannot end the sessions of users."""
    scene = Scene(sessions_max=3)
    ann = scene.sessions.begin(ANN)
    for _ in range(10):
        scene.sessions.begin()
    assert len(scene.sessions) == 3
    assert scene.sessions.find(ann.token) is ann


@pytest.mark.parametrize("ends", ["first", "second"])
def test_a_connection_ends_with_the_last_session_of_its_user(ends: str) -> None:
    """Two browsers of a user share a connection."""
    scene = Scene()
    sessions = [scene.sessions.begin(ANN), scene.sessions.begin(ANN)]
    if ends == "second":
        sessions.reverse()
    scene.sessions.end(sessions[0].token)
    assert scene.ended == []
    scene.sessions.end(sessions[1].token)
    scene.sessions.end(sessions[1].token)
    assert scene.ended == [ANN]


def test_consoles_at_two_ports_have_two_cookies() -> None:
    """Browsers send the cookies of a host to all its ports: each console would end the other's session."""
    assert cookie_name("127.0.0.1:8088") != cookie_name("127.0.0.1:8089")
    assert {cookie_name(host) for host in ("queues.example", "[::1]", "", "x:y", "x:²")} == {COOKIE}


def test_a_session_knows_that_it_has_ended() -> None:
    """Endless answers look at it."""
    scene = Scene()
    session = scene.sessions.begin(ANN)
    assert not session.is_ended
    scene.sessions.end(session.token)
    assert session.is_ended


def test_a_session_ends_with_its_lifetime_although_it_is_used() -> None:
    """A page that refreshes itself uses its session for ever. An endless answer asks whether its session has ended."""
    scene = Scene(idle_s=100.0, lifetime_s=250.0)
    session = scene.sessions.begin(ANN)
    for _ in range(3):
        scene.clock.now_s += 80
        assert scene.sessions.find(session.token) is session
    assert not scene.sessions.is_over(session)
    scene.clock.now_s += 10
    assert scene.sessions.is_over(session)
    assert scene.sessions.find(session.token) is None
    assert scene.ended == [ANN]
