"""A record batch as it is sent and stored: opaque bytes, and the data that a server needs without opening them."""

from dataclasses import dataclass

from fastcrc import crc32

from ortoo.common.errors import Invalid

RECORDS_BYTES_MAX = 1 << 20
"""Maximum stored size of a batch of several messages."""
SINGLE_RECORD_BYTES_MAX = (4 << 20) + (64 << 10)
"""Maximum stored size of a batch of one message: a body of 4 MiB and its properties."""
COPY_RECORD_BYTES_MAX = SINGLE_RECORD_BYTES_MAX + (32 << 10)
"""The same for a copy that a server makes, which has additional properties."""
BODY_INFLATED_BYTES_MAX = 4 << 20
"""Maximum size of the bodies of one batch after decompression."""
MESSAGES_MAX = 4096
"""Maximum number of messages of one batch."""


@dataclass(frozen=True, slots=True)
class SealedBatch:
    """A serialised RecordBatch with its checksum; the mirror of the proto message of this name."""

    records: bytes
    records_crc32c: int
    count: int
    body_inflated_bytes: int
    producer_id: int = 0
    first_sequence: int = 0
    delayed: bool = False
    """Only in appends: whether its messages have a deliver-at time."""

    def check(self, *, single_bytes_max: int = SINGLE_RECORD_BYTES_MAX) -> None:
        """Refuse a batch that is too large, is empty, or has other bytes than the producer sealed.

        The columns are not checked; the snode does that. Readers of stored batches pass a larger `single_bytes_max`,
        because the copies that servers make have additional properties.
        """
        if not 1 <= self.count <= MESSAGES_MAX:
            raise Invalid(f"{self.count} messages; a batch holds 1 to {MESSAGES_MAX}", field="batch.count")
        limit = RECORDS_BYTES_MAX if self.count > 1 else single_bytes_max
        if not 0 < len(self.records) <= limit:
            raise Invalid(
                f"{len(self.records)} bytes; a batch of {self.count} messages may have 1 to {limit}: "
                "send fewer messages at once",
                field="batch.records",
            )
        if self.body_inflated_bytes > BODY_INFLATED_BYTES_MAX:
            raise Invalid(
                f"{self.body_inflated_bytes} bytes after decompression; a batch may have {BODY_INFLATED_BYTES_MAX}",
                field="batch.body_inflated_bytes",
            )
        actual = crc32c(self.records)
        if actual != self.records_crc32c:
            raise Invalid(
                f"the CRC-32C of the bytes is {actual:#010x}, but the batch declares {self.records_crc32c:#010x}: "
                "the bytes changed in transit; send the batch again",
                field="batch.records_crc32c",
            )


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch as it is stored in the log; every read returns the same bytes."""

    first_offset: int
    stored_at_ms: int
    """Milliseconds since 1970-01-01 UTC."""
    batch: SealedBatch

    @property
    def next_offset(self) -> int:
        """The offset after its last message."""
        return self.first_offset + self.batch.count


def crc32c(data: bytes | memoryview) -> int:
    """The CRC-32C (Castagnoli) of `data`."""
    return crc32.iscsi(data)
