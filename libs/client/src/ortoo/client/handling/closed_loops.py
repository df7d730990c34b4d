"""The client's own event loops, in a process where other event loops were closed before."""

import asyncio
from typing import Any


def ignore_closed_loops(loop: asyncio.AbstractEventLoop) -> None:
    """Let `loop` report no events of gRPC that belong to closed event loops.

    All event loops of a process share gRPC's queue of events. The last event of a cancelled stream may arrive after its
    loop was closed. The loop that takes the event from the queue would log an error with a traceback. The stream has
    ended by then, and no other event is lost.
    """

    def report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        is_late = isinstance(error, RuntimeError) and str(error) == "Event loop is closed"
        if not (is_late and "PollerCompletionQueue" in context.get("message", "")):
            loop.default_exception_handler(context)

    loop.set_exception_handler(report)
