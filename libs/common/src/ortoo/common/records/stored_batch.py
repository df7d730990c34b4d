"""A batch as stored in the log, for readers of the log and for their callers."""

from dataclasses import dataclass

from ortoo.common.records.sealed_batch import SealedBatch


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch as stored in the log; the same bytes each time it is read."""

    first_offset: int
    stored_at_ms: int
    """Milliseconds since 1970-01-01 UTC."""
    batch: SealedBatch

    @property
    def next_offset(self) -> int:
        """The offset after its last message."""
        return self.first_offset + self.batch.count
