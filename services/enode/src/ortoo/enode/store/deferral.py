"""How a batch is stored that nobody may see yet."""

from collections.abc import Callable
from dataclasses import dataclass

from ortoo.enode.changes.all import Change

ChangesAt = Callable[[int, int], tuple[Change, ...]]
"""State changes from where a batch's first message lies and the time it is stored; their size depends on neither."""


@dataclass(frozen=True, slots=True)
class Deferral:
    """The batch lies in the queue of a system topic, and state changes in the same frame say what it waits for."""

    system_topic_id: int
    changes: ChangesAt
    """From the first message's place in that queue."""
    min_deliver_at_ms: int = 0
    max_deliver_at_ms: int = 0
