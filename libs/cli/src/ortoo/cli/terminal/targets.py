"""Positions in a topic as users write them: begin, end, an offset, or a time."""

import contextlib
from datetime import UTC, datetime
from typing import Any

from ortoo.common.errors import Invalid


def target_of(text: str, field: str) -> dict[str, Any]:
    """`offset` or `time_ms` (-1 = the end) for begin, end, an offset, or a time since 1970. Errors: Invalid."""
    if text == "begin":
        return {"offset": 0}
    if text == "end":
        return {"time_ms": -1}
    if text.isdecimal():
        return {"offset": int(text)}
    with contextlib.suppress(Invalid):
        return {"time_ms": time_of(text, field)}
    raise Invalid(
        f"{text!r}; expected begin, end, an offset, or a time since 1970 such as 2026-01-31T12:00:00Z", field=field
    )


def time_of(text: str, field: str) -> int:
    """Milliseconds since 1970 of a time, which is in UTC unless it names a zone. Errors: Invalid."""
    with contextlib.suppress(ValueError):
        at = datetime.fromisoformat(text)
        if (time_ms := int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)) >= 0:
            return time_ms
    raise Invalid(f"{text!r}; expected a time since 1970 such as 2026-01-31T12:00:00Z", field=field)
