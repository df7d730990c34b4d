"""A span: what one process did for one sampled message."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Attributes = Mapping[str, str | int]
Context = tuple[int, int]
"""(trace id, span id) of a sampled message."""


@dataclass(slots=True)
class Span:
    """A few plain values until it is sent. It lies below the span `parent_id`; `links` are spans of earlier tries."""

    what: str
    trace_id: int
    parent_id: int
    id: int
    attributes: Attributes
    links: Sequence[Context]
    begun_ns: int
    ended_ns: int = 0
    error: str = ""
