"""The event loop of roles: libuv's, whose timers are never early."""

import math
from collections.abc import Callable
from contextvars import Context
from typing import Any

import uvloop

TICK_S = 0.001
"""libuv's timers count so long steps, and the one that has begun as a whole one."""


class RoleLoop(uvloop.Loop):
    """A message that travels alone costs its wake-ups, and libuv's cost half of asyncio's own.

    A timer that is up to a tick too early has who waits until a time sleep again for nothing, dozens of times.
    """

    def call_later(  # type: ignore[override]  # uvloop gives the arguments on as they are
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Any:
        """As any loop's, to the next tick and one later: libuv is given whole ones, the nearest."""
        if delay > 0:
            delay = (math.ceil(delay / TICK_S) + 1) * TICK_S
        return super().call_later(delay, callback, *args, context=context)
