"""Texts of durations and properties, in options and in files."""

import re
from collections.abc import Sequence

from ortoo.common.errors import Invalid

_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}


def milliseconds_of(duration: str, field: str = "delay") -> int:
    """Convert a duration such as 500ms, 90s, 15m, 2h or 30d to milliseconds. Errors: Invalid, naming `field`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", duration.strip())
    if match is None:
        raise Invalid(f"{duration!r}; expected a number and a unit, such as 500ms, 90s, 15m, 2h or 30d", field=field)
    return round(float(match[1]) * _UNITS_MS[match[2]])


def text_of_period(period_ms: int) -> str:
    """A period in the largest unit that divides it, such as 90s; empty = none."""
    if not period_ms:
        return ""
    unit = next(one for one, ms in _UNITS_MS.items() if period_ms % ms == 0)
    return f"{period_ms // _UNITS_MS[unit]}{unit}"


def properties_of(pairs: Sequence[str]) -> dict[str, str]:
    """The properties of a message from texts NAME=VALUE. Errors: Invalid."""
    properties = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise Invalid(f"{pair!r}; expected NAME=VALUE", field="property")
        properties[name] = value
    return properties
