"""A batch as it lies in the log, for those who read it there and for those who ask for it."""

from dataclasses import dataclass

from ortoo.common.records.sealed_batch import SealedBatch


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch as it lies in the log; the same bytes each time it is read."""

    first_offset: int
    stored_at_ms: int
    """Milliseconds since 1970-01-01 UTC."""
    batch: SealedBatch

    @property
    def next_offset(self) -> int:
        """The offset behind its last message."""
        return self.first_offset + self.batch.count
