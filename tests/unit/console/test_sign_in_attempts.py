"""The limit on attempts to sign in: pauses that grow, by address and by user, in bounded memory."""

import ipaddress

import pytest

from ortoo.console.web import sign_in_attempts
from ortoo.console.web.sign_in_attempts import (
    FORGOTTEN_S,
    FREE_OF_ADDRESS,
    FREE_OF_USER,
    PAUSE_MAX_S,
    SignInAttempts,
    browser_address,
)
from ortoo.verification.time.stepped_clock import SetClock


def fail_until_paused(attempts: SignInAttempts, number: int) -> float:
    """Attempts for one user, each from another address; the pause after the last of them."""
    for one in range(number):
        assert attempts.begin(f"10.0.{one}.1", "ann") == 0
    return attempts.begin("10.1.0.1", "ann")


def test_the_pause_of_a_user_grows_up_to_its_limit() -> None:
    """From many addresses. An attempt during the pause is refused and does not make it longer."""
    clock = SetClock()
    attempts = SignInAttempts(clock)
    pauses = [fail_until_paused(attempts, FREE_OF_USER + 1)]
    while pauses[-1] < PAUSE_MAX_S:
        assert attempts.begin("10.1.0.1", "ann") == pauses[-1]
        clock.now_s += pauses[-1]
        assert attempts.begin("10.1.0.1", "ann") == 0
        pauses.append(attempts.begin("10.1.0.1", "ann"))
    assert pauses == [1, 2, 4, 8, 16, 32, PAUSE_MAX_S]
    assert attempts.begin("10.1.0.1", "bob") == 0, "other users are not concerned"
    for _ in range(50):
        clock.now_s += PAUSE_MAX_S
        attempts.begin("10.1.0.1", "ann")
    assert attempts.begin("10.2.0.1", "ann") == PAUSE_MAX_S


def test_an_address_pauses_whatever_users_it_tries() -> None:
    """Also one that signs in as its own user meanwhile, and one that changes its address within its network."""
    clock = SetClock()
    attempts = SignInAttempts(clock)
    for number in range(FREE_OF_ADDRESS + 1):
        assert attempts.begin(f"2001:db8::{number:x}", f"user-{number}") == 0
        clock.now_s += 2
        if number < FREE_OF_ADDRESS:
            assert attempts.begin("2001:db8::1", "mallory") == 0
            attempts.succeed("2001:db8::1", "mallory")
    attempts.begin("2001:db8::1", "one-more")
    assert attempts.begin("2001:db8::77", "victim") > 0
    assert attempts.begin("2001:db8:0:1::1", "victim") == 0


def test_addresses_of_version_4_pause_apart_from_each_other() -> None:
    """Also in the form of version 6, which a listener for both versions reports."""
    attempts = SignInAttempts(SetClock())
    for number in range(FREE_OF_ADDRESS + 1):
        assert attempts.begin("::ffff:10.0.0.1", f"user-{number}") == 0
    assert attempts.begin("10.0.0.1", "one-more") > 0
    assert attempts.begin("::ffff:10.0.0.2", "victim") == 0


def test_a_success_and_time_forget_failures() -> None:
    """A user with some failures starts again."""
    clock = SetClock()
    attempts = SignInAttempts(clock)
    assert fail_until_paused(attempts, FREE_OF_USER - 1) == 0
    attempts.succeed("10.1.0.1", "ann")
    assert fail_until_paused(attempts, FREE_OF_USER + 1) > 0
    clock.now_s += FORGOTTEN_S
    assert attempts.begin("10.1.0.1", "ann") == 0


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that a browser invents do not grow the table."""
    monkeypatch.setattr(sign_in_attempts, "KEYS_MAX", 50)
    attempts = SignInAttempts(SetClock())
    for number in range(500):
        attempts.begin(f"10.0.{number // 250}.{number % 250}", f"user-{number}")
    assert len(attempts) == 50


@pytest.mark.parametrize(
    ("peer", "forwarded", "expected"),
    [
        ("1.2.3.4", ["9.9.9.9"], "1.2.3.4"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["9.9.9.9"], "9.9.9.9"),
        ("10.0.0.1", ["8.8.8.8, 9.9.9.9"], "9.9.9.9"),
        ("10.0.0.1", ["8.8.8.8, 9.9.9.9, 10.0.0.2"], "9.9.9.9"),
        ("10.0.0.1", ["8.8.8.8, forged"], "10.0.0.1"),
        ("10.0.0.1", ["8.8.8.8", "9.9.9.9"], "9.9.9.9"),
        ("10.0.0.1", ["forged", "8.8.8.8", "9.9.9.9", "10.0.0.2"], "9.9.9.9"),
        ("::ffff:10.0.0.1", ["9.9.9.9"], "9.9.9.9"),
        ("::ffff:1.2.3.4", ["9.9.9.9"], "1.2.3.4"),
        ("", ["9.9.9.9"], ""),
    ],
)
def test_only_a_trusted_proxy_names_the_browser(peer: str, forwarded: list[str], expected: str) -> None:
    """The header of anybody else is not believed, and neither are the addresses before the first trusted one.

    A proxy may add a line of the header instead of extending that of the browser.
    """
    assert browser_address(peer, forwarded, [ipaddress.ip_network("10.0.0.0/8")]) == expected
