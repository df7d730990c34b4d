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
    logger: Logger = structlog.get_logger(f"ortoo.{component}", component=component)
    return logger


def use_standard_logging() -> None:
    """Give all lines to `logging`, by the loggers `ortoo.*`: in an application the application says what is shown."""
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, structlog.contextvars.merge_contextvars, _as_record],
        wrapper_class=structlog.make_filtering_bound_logger(logging.NOTSET),
        logger_factory=lambda name="ortoo": logging.getLogger(name),
        cache_logger_on_first_use=False,
    )


def _as_record(_: Any, __: str, event: structlog.typing.EventDict) -> tuple[tuple[str], dict[str, Any]]:
    exc_info = event.pop("exc_info", None)
    text, _ = event.pop("event"), event.pop("component", None)
    values = " ".join(f"{name}={value!r}" for name, value in event.items())
    return (f"{text} {values}".rstrip(),), {"exc_info": exc_info, "extra": {"ortoo": dict(event)}}


if not structlog.is_configured():
    use_standard_logging()
