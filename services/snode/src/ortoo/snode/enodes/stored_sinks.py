"""The accounts of exactly-once sinks as an enode keeps them."""

from dataclasses import dataclass

from ortoo.common.groups.sinks import SinkIdentity


@dataclass(frozen=True, slots=True)
class StoredSink:
    """The account of a sink in a topic."""

    topic_id: int
    group: str
    offset: int
    """The content of the account; see `ortoo.common.groups.sinks`."""
    changed_at_ms: int
    """The last commit or reset; 0 = unknown."""
    sink: SinkIdentity = SinkIdentity()
    """Empty if only older versions have written the account."""
