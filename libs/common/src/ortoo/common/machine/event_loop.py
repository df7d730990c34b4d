"""The event loop of roles: libuv's, changed so that timers are never early."""

import math
from collections.abc import Callable
from contextvars import Context
from typing import Any

import uvloop

TIMER_TICK_S = 0.001
"""The resolution of libuv's timers, which count a step that has begun as a whole one."""


class RoleLoop(uvloop.Loop):
    """An event loop whose wake-ups, the main cost of a single message, cost half of asyncio's own.

    A task that waits until a time would sleep again dozens of times if its timer were up to a tick too early.
    """

    def call_later(  # type: ignore[override]  # uvloop passes the arguments unchanged
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Any:
        """As of any loop, but rounded up to the next tick plus one, because libuv rounds to the nearest tick."""
        if delay > 0:
            delay = (math.ceil(delay / TIMER_TICK_S) + 1) * TIMER_TICK_S
        return super().call_later(delay, callback, *args, context=context)
