"""The event loop of roles: libuv's, changed so that timers are never early."""

import math
from collections.abc import Callable
from contextvars import Context
from typing import Any

import uvloop

TIMER_TICK_S = 0.001
"""The resolution of libuv's timers. A timer counts from the start of the current tick, not from now."""


class RoleLoop(uvloop.Loop):
    """An event loop whose wake-ups cost half as much as in asyncio's loop; wake-ups are the main cost of a message.

    Timers are never early. Otherwise a task that waits until a time would sleep again dozens of times in the last tick.
    """

    def call_later(  # type: ignore[override]  # uvloop passes the arguments unchanged
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Any:
        """Like `loop.call_later`, but the call is never early; `delay` is in seconds.

        The delay is rounded up to whole ticks, because uvloop rounds to the nearest one. One tick is added, because
        libuv counts from the start of the current tick.
        """
        if delay > 0:
            delay = (math.ceil(delay / TIMER_TICK_S) + 1) * TIMER_TICK_S
        return super().call_later(delay, callback, *args, context=context)
