"""A limit on attempts to sign in: after some failures, each address and each user has to pause between attempts."""

import ipaddress
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from ortoo.common.process.clock import Clock

FREE_OF_USER, FREE_OF_ADDRESS = 5, 20
"""Failures without a pause."""
PAUSE_FIRST_S, PAUSE_MAX_S = 1.0, 60.0
"""The pause after the next failure, which doubles with each further one, and its limit."""
FORGOTTEN_S = 900.0
"""Time without an attempt after which the failures of an address or a user are forgotten."""
KEYS_MAX = 10_000
"""Maximum number of addresses and users that are remembered."""
DOUBLINGS_MAX = 32
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(slots=True)
class _Failures:
    count: int = 0
    paused_until_s: float = 0.0
    last_at_s: float = 0.0


class SignInAttempts:
    """The failed attempts by address and by user. An attempt counts as failed until it has succeeded."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: OrderedDict[tuple[str, str], _Failures] = OrderedDict()

    def __len__(self) -> int:
        return len(self._failures)

    def begin(self, address: str, user: str) -> float:
        """Count an attempt; returns 0, or the number of seconds after which the attempt may be repeated."""
        now_s = self._clock.monotonic_s()
        limits = ((("address", _network_of(address)), FREE_OF_ADDRESS), (("user", user), FREE_OF_USER))
        wait_s = max(self._find(key, now_s).paused_until_s - now_s for key, _ in limits)
        if wait_s > 0:
            return wait_s
        for key, free in limits:
            found = self._find(key, now_s)
            found.count += 1
            found.last_at_s = now_s
            if found.count > free:
                doublings = min(found.count - free - 1, DOUBLINGS_MAX)
                found.paused_until_s = now_s + min(PAUSE_MAX_S, PAUSE_FIRST_S * 2**doublings)
            self._failures[key] = found
            self._failures.move_to_end(key)
        while len(self._failures) > KEYS_MAX:
            self._failures.popitem(last=False)
        return 0.0

    def succeed(self, address: str, user: str) -> None:
        """Forget the failures of the user, and this attempt of the address."""
        self._failures.pop(("user", user), None)
        found = self._failures.get(("address", _network_of(address)))
        if found is not None:
            found.count -= 1
            found.paused_until_s = 0.0

    def _find(self, key: tuple[str, str], now_s: float) -> _Failures:
        found = self._failures.get(key)
        return found if found is not None and now_s - found.last_at_s < FORGOTTEN_S else _Failures()


def _network_of(address: str) -> str:
    """The address, or the network of 64 bits that a single machine gets in version 6."""
    try:
        parsed = _parse(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False) if parsed.version == 6 else parsed)


def _parse(address: str) -> Address:
    """An address. A listener of version 6 reports peers of version 4 in a form of version 6. Errors: ValueError."""
    parsed = ipaddress.ip_address(address)
    return (parsed.ipv4_mapped or parsed) if parsed.version == 6 else parsed


def browser_address(peer: str, forwarded: Sequence[str], proxies: Sequence[Network]) -> str:
    """The address of a browser: the peer's or, behind trusted proxies, the one that the first of them reported.

    `forwarded` are the lines of the header X-Forwarded-For. Each proxy appends the address of its own peer to the last
    line, or adds a line. The browser may have sent the lines before.
    """
    for address in (peer, *(one.strip() for one in reversed(",".join(forwarded).split(",")))):
        try:
            parsed = _parse(address)
        except ValueError:
            break
        peer = str(parsed)
        if not any(parsed in network for network in proxies):
            break
    return peer
