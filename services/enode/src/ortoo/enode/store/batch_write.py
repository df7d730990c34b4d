"""Parameters of a batch that is stored invisibly, or together with others, and of the state changes in its frame."""

from collections.abc import Callable
from dataclasses import dataclass

from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.enode.changes.kinds import StateChange, encode_changes

ChangesAt = Callable[[int, int], tuple[StateChange, ...]]
"""Makes state changes from the first message's offset and the time of storing; their size depends on neither."""


@dataclass(frozen=True, slots=True)
class Deferral:
    """How to store a batch invisibly: in the queue of a system topic, with state changes that describe its delivery."""

    system_topic_id: int
    changes: ChangesAt
    """Gets the first message's place in that queue."""
    min_deliver_at_ms: int = 0
    max_deliver_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class BatchWrite:
    """One of several batches that are stored together or not at all; its fields are parameters of `Store.append`."""

    topic_id: int
    queue_id: int
    batch: SealedBatch
    consumes: tuple[StateChange, ...] = ()
    deferral: Deferral | None = None
    consumes_at: ChangesAt | None = None

    def changes_at(self, first_offset: int, stored_at_ms: int) -> tuple[StateChange, ...]:
        """The state changes to store in the batch's frame, if the batch gets this first offset and store time."""
        make_changes = self.deferral.changes if self.deferral is not None else self.consumes_at
        return make_changes(first_offset, stored_at_ms) if make_changes is not None else self.consumes

    def length_bytes(self) -> int:
        """Bytes of the batch and the changes before it; they do not depend on its offset."""
        changes = self.changes_at(0, 0)
        before = len(encode_changes([change.encoded() for change in changes])) if changes else 0
        return before + len(self.batch.records)
