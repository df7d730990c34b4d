"""How every role lives: opened part by part, ready as an event, closed in reverse order.

A role's app.py offers one async context manager that builds and joins the parts and yields a `Running`. Entering it
returns when the role is ready; leaving it drains and closes. `run` puts signals around that for `__main__`; tests and
`ortoo dev` enter the context managers themselves.
"""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from ortoo.common.errors import OrtooError
from ortoo.common.logs import get_logger

EXIT_FAILED = 1
EXIT_REFUSED = 78
"""EX_CONFIG of sysexits.h: the process did not start because of what it was told."""

_log = get_logger("service")


@dataclass(frozen=True, slots=True)
class Running:
    """A role that is up."""

    name: str
    address: str


def run(open_service: Callable[[], AbstractAsyncContextManager[Running]]) -> int:
    """Run one role until SIGTERM or SIGINT, then drain it; a second signal ends the process at once.

    Returns the process's exit code: 0 after a stop that was asked for, EXIT_REFUSED when the role could not start,
    EXIT_FAILED when a part of it failed later. When ready, one line `ready NAME ADDRESS` goes to standard output.
    """
    return asyncio.run(_run(open_service))


async def _run(open_service: Callable[[], AbstractAsyncContextManager[Running]]) -> int:
    stop = asyncio.Event()
    ready = False
    main = asyncio.current_task()
    assert main is not None

    def on_signal() -> None:
        if stop.is_set():
            os._exit(EXIT_FAILED)
        stop.set()
        if not ready:
            main.cancel()  # it may be waiting for another role, for ever

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    try:
        async with open_service() as running:
            ready = True
            print(f"ready {running.name} {running.address}", flush=True)
            await stop.wait()
            _log.info("stopping", name=running.name)
    except asyncio.CancelledError:
        if ready or not stop.is_set():
            raise
        _log.info("stopped before it was ready")
    except (OrtooError, OSError, ExceptionGroup) as error:
        _report(error)
        return EXIT_FAILED if ready else EXIT_REFUSED
    return 0


def _report(error: Exception) -> None:
    if isinstance(error, ExceptionGroup):
        for part in error.exceptions:
            _report(part)
    elif isinstance(error, OrtooError | OSError):
        _log.error("cannot go on", reason=str(error), kind=type(error).__name__)
    else:
        _log.error("a defect", exc_info=error)
