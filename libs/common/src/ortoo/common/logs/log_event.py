"""A log event: a stable name that operators search for, with its level, its meaning and its remedy.

Each distribution defines its events in one module `log_events`. A logger accepts only these events, so every line of a
log is described on the page docs/operations/log-events.md.
"""

from dataclasses import dataclass
from typing import Literal

Level = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One kind of log line."""

    name: str
    """In snake_case; the same in all releases."""
    level: Level
    meaning: str
    """The cause or the effect, for an operator."""
    action: str
    """The remedy; "None." where no action is needed."""


@dataclass(frozen=True, slots=True)
class RetryLogEvent:
    """The event of a failed attempt that is retried until it succeeds. Only `RetryLog` writes it."""

    event: LogEvent


def debug(name: str, meaning: str, action: str) -> LogEvent:
    """An event that helps to find a defect."""
    return LogEvent(name, "debug", meaning, action)


def info(name: str, meaning: str, action: str) -> LogEvent:
    """An event of normal operation."""
    return LogEvent(name, "info", meaning, action)


def warning(name: str, meaning: str, action: str) -> LogEvent:
    """An event that an operator may have to look at."""
    return LogEvent(name, "warning", meaning, action)


def retry_warning(name: str, meaning: str, action: str) -> RetryLogEvent:
    """A warning about a failed attempt that is retried."""
    return RetryLogEvent(warning(name, meaning, action))


def error(name: str, meaning: str, action: str) -> LogEvent:
    """An event that an operator has to look at."""
    return LogEvent(name, "error", meaning, action)
