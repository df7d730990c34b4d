"""The life of a connection: when it is pinged, retired or broken. Decisions without I/O; all times are in seconds."""

import enum
from typing import Final

from ortoo.common.grpc.h2.limits import WireLimits

EMPTY_RESETS_PER_S_MAX: Final = 200.0
"""Streams that a peer may reset per second before it has sent a request on them, which no client does."""
EMPTY_RESETS_TOGETHER_MAX: Final = 1_000.0
LOOK_S_MIN: Final = 0.01
LOOK_S_MAX: Final = 60.0
"""Minimum and maximum time between two looks at a connection."""
AGE_SPREAD: Final = 0.1
"""The part by which ages of connections differ, so that they do not end together."""


class Step(enum.Enum):
    """The next action for a connection."""

    NOTHING = enum.auto()
    PING = enum.auto()
    RETIRE = enum.auto()
    """Let the peer use another connection, and close this one after its last call."""
    BREAK = enum.auto()


class Lifetime:
    """The times of one connection."""

    __slots__ = (
        "_age_s",
        "_begun_s",
        "_empty_reset_s",
        "_empty_resets",
        "_idle_since_s",
        "_is_retired",
        "_is_set_up",
        "_last_ping_s",
        "_limits",
        "_pinged_s",
        "_strikes",
        "are_settings_known",
        "heard_s",
    )

    def __init__(self, limits: WireLimits, now_s: float, spread: float) -> None:
        """The connection begins now. `spread`, from -1 to 1, makes its age differ from that of others."""
        self._limits = limits
        self._begun_s = now_s
        self._age_s = limits.age_max_s * (1 + AGE_SPREAD * spread)
        self.heard_s = now_s
        """When bytes of the peer last arrived."""
        self._pinged_s: float | None = None
        self._idle_since_s: float | None = now_s
        self._is_set_up = self._is_retired = False
        self.are_settings_known = False
        """Whether the peer has acknowledged our settings."""
        self._strikes = 0
        self._last_ping_s = float("-inf")
        self._empty_resets = 0.0
        self._empty_reset_s = now_s

    def next_look_s(self, now_s: float) -> float:
        """When to ask for `next_step` again, although the peer may be heard earlier."""
        limits, due_s = self._limits, now_s + LOOK_S_MAX
        if self._pinged_s is not None:
            due_s = min(due_s, self._pinged_s + limits.keepalive_timeout_s)
        elif limits.keepalive_s:
            due_s = min(due_s, self.heard_s + limits.keepalive_s)
        if not self._is_retired:
            if limits.idle_max_s:
                due_s = min(due_s, (now_s if self._idle_since_s is None else self._idle_since_s) + limits.idle_max_s)
            if self._age_s:
                due_s = min(due_s, self._begun_s + self._age_s)
        return max(due_s, now_s + LOOK_S_MIN)

    def next_step(self, now_s: float) -> Step:
        """The action that is due."""
        limits = self._limits
        if self._pinged_s is not None:
            if self.heard_s >= self._pinged_s:
                self._pinged_s = None
            elif now_s - self._pinged_s >= limits.keepalive_timeout_s:
                return Step.BREAK
        if not self._is_retired:
            is_old = self._age_s and now_s - self._begun_s >= self._age_s
            is_idle = limits.idle_max_s and self._idle_since_s is not None
            if is_old or (is_idle and now_s - (self._idle_since_s or 0.0) >= limits.idle_max_s):
                self._is_retired = True
                return Step.RETIRE
        if limits.keepalive_s and self._pinged_s is None and now_s - self.heard_s >= limits.keepalive_s:
            self._pinged_s = now_s
            return Step.PING
        return Step.NOTHING

    def is_set_up_late(self, now_s: float) -> bool:
        """Whether the peer has not sent its settings, or not acknowledged ours, in time."""
        elapsed_s = now_s - self._begun_s
        if not self._is_set_up and elapsed_s >= self._limits.set_up_max_s:
            return True
        return not self.are_settings_known and elapsed_s >= self._limits.settings_max_s

    def on_settings(self) -> None:
        """The peer has sent its settings."""
        self._is_set_up = True

    def on_settings_acknowledged(self) -> None:
        """The peer has acknowledged our settings."""
        self.are_settings_known = True

    def on_calls(self, count: int, now_s: float) -> None:
        """The number of open calls has changed to `count`, from or to 0."""
        self._idle_since_s = None if count else now_s

    def on_data(self) -> None:
        """The peer has sent a call or data, or gets an answer, after which it may ping again.

        The core of gRPC pings after data it has received, to measure how much the way to it can carry.
        """
        self._strikes = 0

    def on_ping(self, now_s: float) -> bool:
        """The peer has pinged; whether it pings too often."""
        if now_s - self._last_ping_s < self._limits.ping_interval_s:
            self._strikes += 1
        self._last_ping_s = now_s
        return self._strikes > self._limits.pings_max > 0

    def on_empty_reset(self, now_s: float) -> bool:
        """The peer has reset a stream without a request; whether it does that too often."""
        earlier = self._empty_resets - EMPTY_RESETS_PER_S_MAX * (now_s - self._empty_reset_s)
        self._empty_resets, self._empty_reset_s = max(0.0, earlier) + 1, now_s
        return self._empty_resets > EMPTY_RESETS_TOGETHER_MAX
