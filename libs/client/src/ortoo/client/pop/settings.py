"""Settings of pop consumers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PopSettings:
    """How a consumer pops. Order, attempts and limits belong to the group: all members must set equal values."""

    invisible_ms: float = 30_000.0
    """Lease time of popped messages; an open consumer renews it automatically."""
    renew_max_ms: float = 10_800_000.0
    """After this time a message is no longer renewed, because its handler counts as stuck. 0 = never renew."""
    messages_max: int = 32
    """Largest number of messages of one pop."""
    wait_ms: float = 20_000.0
    """Longest wait of one pop for the first message."""
    in_order: bool = False
    """Messages of a message group one after another; the next follows when the last is acknowledged or parked."""
    by_priority: bool = False
    """Messages with a larger priority first."""
    from_last: bool = False
    """Start of the group in a queue without an offset: the end instead of the first message."""
    attempts_max: int = 0
    """Deliveries of a message before it is parked; 0 = the group's limit."""
    in_flight_max: int = 0
    """Largest number of messages of the group in flight on each enode; 0 = no limit by this consumer."""
    client_id: str = ""
    """The consumer's name in reports; empty = the connection's."""
