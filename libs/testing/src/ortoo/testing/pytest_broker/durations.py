"""Durations as people write them."""

import re
from datetime import timedelta

Duration = str | float | timedelta
"""`"1h30m"`, `timedelta(minutes=90)` or seconds."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*")


def seconds_of(duration: Duration) -> float:
    """The duration in seconds. Errors: ValueError for an invalid or negative duration."""
    if isinstance(duration, timedelta):
        seconds = duration.total_seconds()
    elif isinstance(duration, str):
        parts = list(_PART.finditer(duration))
        if not parts or "".join(part.group() for part in parts) != duration.lstrip():
            raise ValueError(f'{duration!r} is not a duration; expected "30m", "1h30m", "2d" or "500ms"')
        seconds = sum(float(number) * _UNITS[unit] for number, unit in (part.groups() for part in parts))
    else:
        seconds = float(duration)
    if seconds < 0:
        raise ValueError(f"time does not run backwards: {duration!r}")
    return seconds


def format_duration(seconds: float) -> str:
    """A duration as text: 5400 s is `1h30m`."""
    if seconds < 60:
        return f"{seconds:.3g}s"
    words, rest = "", round(seconds)
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        words += f"{count}{unit}" if count else ""
    return words
