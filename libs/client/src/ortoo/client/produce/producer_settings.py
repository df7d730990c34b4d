"""What an application sets about a producer."""

from dataclasses import dataclass

from ortoo.common.records.compression import Codec
from ortoo.common.records.sealed_batch import RECORDS_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """How a producer trades delay for larger batches, and how long and how much it keeps."""

    linger_ms: float = 5.0
    """How long a batch waits for company at most, while several others are under way; with few it goes at once."""
    batch_bytes_max: int = RECORDS_BYTES_MAX
    codec: Codec = Codec.NONE
    """How bodies are compressed."""
    memory_bytes_max: int = 64 << 20
    """How much may wait for an answer before `send` waits and `send_nowait` refuses."""
    delivery_timeout_ms: float = 120_000.0
    """How long one message is tried before its outcome is given up as unknown."""
    route_interval_ms: float = 30_000.0
