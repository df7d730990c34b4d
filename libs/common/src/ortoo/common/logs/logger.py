"""Structured logs: events with key-value pairs, for people on a terminal and JSON elsewhere.

Writing a log line never raises and never waits. A `LineWriter` writes the lines of a process to standard error. Lines
that the reader does not take in time are dropped and counted.
"""

import contextlib
import functools
import logging
import os
from typing import Any

import structlog

from ortoo.common.logs import log_events
from ortoo.common.logs.log_event import LogEvent
from ortoo.common.machine import standard_files
from ortoo.common.machine.line_writer import LineWriter


class Logger:
    """Writes lines with a component's name. A line that cannot be formatted is dropped and counted, never raised."""

    def __init__(self, component: str) -> None:
        self._logger: Any = structlog.get_logger(f"ortoo.{component}", component=component)

    def emit(self, event: LogEvent, /, **values: object) -> None:
        """Write one line: the event at its level with key-value fields. `exc_info=True` adds a traceback."""
        write = getattr(self._logger, event.level)
        try:
            write(event.name, **values)
        except Exception as error:  # a value's `__str__`, or a handler of the application
            with contextlib.suppress(Exception):
                write(event.name, log_error=type(error).__name__)
                return
            _writer().drop()


def configure(*, level: str = "info", json: bool | None = None) -> None:
    """Set up logging for a process. `json` None means lines for people on a terminal, and JSON elsewhere."""
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


def use_standard_logging() -> None:
    """Pass all lines to the loggers `ortoo.*` of Python's `logging`, so that an application can configure them."""
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, structlog.contextvars.merge_contextvars, _as_record],
        wrapper_class=structlog.make_filtering_bound_logger(logging.NOTSET),
        logger_factory=lambda name="ortoo": logging.getLogger(name),
        cache_logger_on_first_use=False,
    )


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


def _as_record(_: Any, __: str, event: structlog.typing.EventDict) -> tuple[tuple[str], dict[str, Any]]:
    exc_info = event.pop("exc_info", None)
    text, _ = event.pop("event"), event.pop("component", None)
    values = " ".join(f"{name}={value!r}" for name, value in event.items())
    return (f"{text} {values}".rstrip(),), {"exc_info": exc_info, "extra": {"ortoo": dict(event)}}


if not structlog.is_configured():
    use_standard_logging()
_log = get_logger("logs")
