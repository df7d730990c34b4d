"""The W3C trace context of a message: a column, and the property in which some clients send it."""

import re
from collections.abc import Mapping
from typing import Final

TRACEPARENT: Final = "traceparent"
"""The property in which OpenTelemetry's agents send and read the trace context."""
_TRACEPARENT = re.compile("[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.{0,200})?")


def trace_context_of(own: str | None, properties: Mapping[str, str]) -> str | None:
    """The trace context of a message: its `own`, or that in its properties; None if it has none."""
    if own or TRACEPARENT not in properties:
        return own
    carried = properties[TRACEPARENT]
    return carried if is_traceparent(carried) else own


def is_traceparent(text: str) -> bool:
    """Whether a text has the form of a W3C trace context."""
    return _TRACEPARENT.fullmatch(text) is not None
