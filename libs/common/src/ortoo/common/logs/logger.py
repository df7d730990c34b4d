"""Structured logs: events with key-value pairs, for people on a terminal and JSON elsewhere.

Writing a log line never raises and never waits. A `LineWriter` writes the lines of a process to standard error. Lines
that the reader does not take in time are dropped and counted.
"""

import contextlib
import functools
import logging
import os
import sys
from collections.abc import Iterator
from typing import Any

from ortoo.common.logs import log_events
from ortoo.common.logs.log_event import LogEvent
from ortoo.common.machine import standard_files
from ortoo.common.machine.line_writer import LineWriter


class Logger:
    """Writes lines with a component's name. A line that cannot be formatted is dropped and counted, never raised."""

    def __init__(self, component: str) -> None:
        self._component = component

    def emit(self, event: LogEvent, /, **values: object) -> None:
        """Write one line: the event at its level with key-value fields. `exc_info=True` adds a traceback."""
        write = getattr(self._output(), event.level)
        try:
            write(event.name, **values)
        except Exception as error:  # a value's `__str__`, or a handler of the application
            with contextlib.suppress(Exception):
                write(event.name, log_error=type(error).__name__)
                return
            _writer().drop()

    def _output(self) -> Any:
        structlog = _configured_structlog()
        if structlog is None:
            return _StandardLogger(f"ortoo.{self._component}")
        return structlog.get_logger(f"ortoo.{self._component}", component=self._component)


def _configured_structlog() -> Any:
    """The library structlog, if this process or its application has imported and configured it; None otherwise.

    Processes without a configuration do not use it, and its import takes as long as that of the whole client.
    """
    structlog = sys.modules.get("structlog")
    is_configured = getattr(structlog, "is_configured", None)  # None while another thread imports the library
    return structlog if is_configured is not None and is_configured() else None


def configure(*, level: str = "info", json: bool | None = None) -> None:
    """Set up logging for a process. `json` None means lines for people on a terminal, and JSON elsewhere."""
    import structlog

    as_json = not os.isatty(standard_files.STANDARD_ERROR) if json is None else json
    plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    rendering: list[Any] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()] if as_json else [plain]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *rendering,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=_QueuedLogger,
        cache_logger_on_first_use=False,
    )


def log_standard_error() -> None:
    """Write all output of this process to standard error through the queue of its log lines."""
    standard_files.capture_standard_error(_writer())


def dropped_line_count() -> int:
    """The number of lines that this process could not write."""
    return _writer().dropped


def get_logger(component: str) -> Logger:
    """A logger whose lines carry the component's name."""
    return Logger(component)


@contextlib.contextmanager
def restored_configuration() -> Iterator[None]:
    """Restore the configuration of logs at the end of the block."""
    structlog = _configured_structlog()
    before = None if structlog is None else structlog.get_config()
    try:
        yield
    finally:
        if (structlog := _configured_structlog()) is not None:
            structlog.reset_defaults() if before is None else structlog.configure(**before)


class _StandardLogger:
    """The output while structlog is not configured: the loggers `ortoo.*` of Python's `logging`."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def _log(self, level: int, text: str, /, exc_info: Any = None, **values: object) -> None:
        if self._logger.isEnabledFor(level):
            said = " ".join(f"{name}={value!r}" for name, value in values.items())
            self._logger.log(level, "%s", f"{text} {said}".rstrip(), exc_info=exc_info, extra={"ortoo": values})

    debug = functools.partialmethod(_log, logging.DEBUG)
    info = functools.partialmethod(_log, logging.INFO)
    warning = functools.partialmethod(_log, logging.WARNING)
    error = functools.partialmethod(_log, logging.ERROR)
    critical = functools.partialmethod(_log, logging.CRITICAL)


class _QueuedLogger:
    """The output of structlog: puts lines into the queue of this process's `LineWriter`."""

    def __init__(self, *_: object) -> None:
        self._write = _writer().write

    def msg(self, text: str) -> None:
        self._write(text)

    debug = info = warning = error = critical = msg


@functools.cache
def _writer() -> LineWriter:
    """The writer of this process."""
    return LineWriter(standard_files.STANDARD_ERROR, on_gap=_report_dropped)


def _report_dropped(lines: int) -> None:
    _log.emit(log_events.LOG_LINES_DROPPED, dropped=lines, dropped_total=dropped_line_count())


_log = get_logger("logs")
