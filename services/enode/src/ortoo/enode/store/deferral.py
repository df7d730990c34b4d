"""How a batch is stored that nobody may see yet, and what else happens with it."""

from collections.abc import Callable
from dataclasses import dataclass

from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.enode.changes.all import Change, encode_changes

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


@dataclass(frozen=True, slots=True)
class Write:
    """One batch of several that are stored together, all or none: as the parameters of `Store.append`."""

    topic_id: int
    queue_id: int
    batch: SealedBatch
    consumes: tuple[Change, ...] = ()
    deferral: Deferral | None = None
    consumes_at: ChangesAt | None = None

    def changes_at(self, first_offset: int, stored_at_ms: int) -> tuple[Change, ...]:
        """The state changes in the same frame, when the first message lies there and it is stored then."""
        told = self.deferral.changes if self.deferral is not None else self.consumes_at
        return told(first_offset, stored_at_ms) if told is not None else self.consumes

    def length(self) -> int:
        """How many bytes the batch takes, and those changes before it, wherever it lies."""
        changes = self.changes_at(0, 0)
        before = len(encode_changes([change.encoded() for change in changes])) if changes else 0
        return before + len(self.batch.records)
