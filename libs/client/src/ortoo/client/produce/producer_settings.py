"""Settings of a producer."""

from dataclasses import dataclass

from ortoo.common.records.compression import Codec
from ortoo.common.records.sealed_batch import RECORDS_BYTES_MAX

CHUNK_MESSAGES = 1024
"""Number of messages that `send_many` takes before it lets other tasks run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """Settings of a producer for batching, memory and time limits."""

    linger_ms: float = 5.0
    """Longest wait of an open batch for more messages; with few batches in flight it is sent immediately."""
    batch_bytes_max: int = RECORDS_BYTES_MAX
    codec: Codec = Codec.NONE
    """Compression of bodies."""
    memory_bytes_max: int = 64 << 20
    """Unanswered bytes above which `send` waits and `enqueue_nowait` raises Overloaded."""
    delivery_timeout_ms: float = 120_000.0
    """Time limit for retries of a message; after it the outcome is unknown.

    A producer that is opened while no enode accepts messages of its topic waits for the same time, up to 10 s.
    """
    close_timeout_ms: float = 30_000.0
    """Time limit of the flush at the end of the producer's block. A timeout raises Unavailable."""
    route_interval_ms: float = 30_000.0

    @property
    def delivery_timeout_s(self) -> float:
        """`delivery_timeout_ms` in seconds."""
        return self.delivery_timeout_ms / 1000
