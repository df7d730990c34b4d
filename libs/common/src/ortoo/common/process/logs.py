"""Structured logs: events with key-value pairs, for people on a terminal and JSON elsewhere."""

import logging
import sys
from typing import Any

import structlog

Logger = structlog.typing.FilteringBoundLogger


def configure(*, level: str = "info", json: bool | None = None) -> None:
    """Set up logging for a process; `json` None means JSON unless stderr is a terminal."""
    as_json = not sys.stderr.isatty() if json is None else json
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
        # Standard error is looked up at each line, so that a process that replaces or closes it keeps a working log.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )


def get_logger(component: str) -> Logger:
    """A logger whose lines carry the component's name."""
    logger: Logger = structlog.get_logger(component=component)
    return logger


if not structlog.is_configured():
    # An application that uses the client finds nothing of ours on its standard output, and warnings on standard error.
    configure(level="warning")
