"""Start and stop of every role: components are opened in order, and closed in reverse order.

A role's app.py has one async context manager that builds and connects the components and yields a `Running`. Entering
it returns when the role is ready; leaving it drains and closes. `run` adds signals for `__main__`; tests and
`ortoo dev` enter the context managers themselves.
"""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from ortoo.common.errors import Conflict, Invalid, OrtooError
from ortoo.common.errors.findings import process_version
from ortoo.common.logs import log_events
from ortoo.common.logs.logger import get_logger
from ortoo.common.machine.allocator import freeze_startup_objects, retain_freed_buffers
from ortoo.common.machine.descriptors import FEW, raise_limit
from ortoo.common.machine.event_loop import RoleLoop
from ortoo.common.machine.line_writer import LineWriter
from ortoo.common.machine.standard_files import STANDARD_OUTPUT
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock, SystemClock
from ortoo.common.process.containment import waiting_place

EXIT_FAILED = 1
"""A component of the role failed while it ran."""
EXIT_INVALID_SETTINGS = 253
"""The role did not start because of its settings, or of the store or database that they name."""
EXIT_NO_HOME = 254
"""The data folder, or its home folder, cannot be used."""
EXIT_NOT_STARTED = 255
"""The command line is invalid, or the start failed: the port is taken, or a system call was refused."""

HOME_FIELDS = ("ORTOO_HOME", "data_dir")

LATE_STOP_S = 10.0
"""A stop that lasts this long is logged, and again at this interval. It is twice the default grace of calls."""
TASKS_MAX = 50
"""Maximum number of tasks in the log line of a late stop."""

_log = get_logger("service")


@dataclass(frozen=True, slots=True)
class Running:
    """A running role."""

    name: str
    address: str
    reload: Callable[[], object] = field(default=lambda: None, kw_only=True)
    """Reads the settings again, and applies the live ones."""
    tls_address: str = field(default="", kw_only=True)
    """The address of its TLS port for clients, if it has one."""
    health_address: str = field(default="", kw_only=True)
    """The address of its plaintext port for health checks, if that is another port."""


def exit_code_of(error: Exception) -> int:
    """The exit code of a process that could not start because of `error`."""
    if isinstance(error, ExceptionGroup):
        return exit_code_of(error.exceptions[0])
    if not isinstance(error, OrtooError):
        return EXIT_NOT_STARTED
    if isinstance(error, Invalid) and error.field in HOME_FIELDS:
        return EXIT_NO_HOME
    if isinstance(error, Conflict) and error.field.endswith("listen_address"):
        return EXIT_NOT_STARTED
    return EXIT_INVALID_SETTINGS


def run(open_service: Callable[[], AbstractAsyncContextManager[Running]]) -> int:
    """Run one role until SIGTERM or SIGINT, then drain it.

    While the role drains, another SIGTERM is ignored, and a SIGINT ends the process immediately. SIGHUP reads the
    settings again. Returns the process's exit code: 0 after a requested stop, EXIT_FAILED when a component failed, or
    the code of a failed start. When the role is ready, one line `ready NAME ADDRESS` is written to standard output.
    """
    retain_freed_buffers()
    allow_descriptors()
    with asyncio.Runner(loop_factory=RoleLoop) as runner:
        return runner.run(_run(open_service))


def allow_descriptors() -> None:
    """Raise the limit of descriptors to the hard limit, and write a log line if the hard limit is low."""
    descriptors = raise_limit()
    if descriptors.are_few:
        _log.emit(
            log_events.LOW_FILE_DESCRIPTOR_LIMIT,
            limit=descriptors.limit,
            recommended=FEW,
            connections=descriptors.connections,
        )


async def _run(open_service: Callable[[], AbstractAsyncContextManager[Running]]) -> int:
    stop = asyncio.Event()
    ready = False
    clock, stopping_s = SystemClock(), 0.0
    main = asyncio.current_task()
    assert main is not None

    def on_signal(number: int) -> None:
        nonlocal stopping_s
        if stop.is_set():
            if number == signal.SIGINT:
                os._exit(EXIT_FAILED)
            return
        stopping_s = clock.monotonic_s()
        stop.set()
        if not ready:
            main.cancel()  # it may wait for another role without end

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    loop.add_signal_handler(signal.SIGHUP, lambda: None)  # until reload is possible, it must not end the process
    try:
        async with Background("stop") as background, open_service() as running:
            background.spawn("late", log_late_stop(stop, clock))
            freeze_startup_objects()
            ready = True
            loop.add_signal_handler(signal.SIGHUP, running.reload)
            _log.emit(log_events.PROCESS_READY, name=running.name, address=running.address, version=process_version())
            LineWriter(STANDARD_OUTPUT).write(f"ready {running.name} {running.address}")
            await stop.wait()
            _log.emit(log_events.SHUTDOWN_STARTED, name=running.name)
    except asyncio.CancelledError:
        if ready or not stop.is_set():
            raise
        _log.emit(log_events.SHUTDOWN_BEFORE_READY)
    except (OrtooError, OSError, ExceptionGroup) as error:
        _report(error)
        return EXIT_FAILED if ready else exit_code_of(error)
    _log.emit(log_events.SHUTDOWN_COMPLETE, duration_ms=round((clock.monotonic_s() - stopping_s) * 1000))
    return 0


def _report(error: Exception) -> None:
    if isinstance(error, ExceptionGroup):
        for part in error.exceptions:
            _report(part)
    elif isinstance(error, OrtooError | OSError):
        _log.emit(log_events.FATAL_ERROR, reason=str(error), kind=type(error).__name__)
    else:
        _log.emit(log_events.FATAL_DEFECT, exc_info=error)


async def log_late_stop(stopping: asyncio.Event, clock: Clock) -> None:
    """After `stopping` is set, log the remaining tasks and the places where they wait, every LATE_STOP_S seconds."""
    await stopping.wait()
    began_s = clock.monotonic_s()
    while True:
        await clock.sleep(LATE_STOP_S)
        waiting = {task.get_name(): waiting_place(task) for task in asyncio.all_tasks() - {asyncio.current_task()}}
        _log.emit(
            log_events.SHUTDOWN_SLOW,
            since_s=round(clock.monotonic_s() - began_s),
            tasks=len(waiting),
            waiting=dict(sorted(waiting.items())[:TASKS_MAX]),
        )
