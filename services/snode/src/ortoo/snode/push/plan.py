"""A client's request for a push session, checked."""

from collections.abc import Mapping
from dataclasses import dataclass

from ortoo.common.filters.message_filter import MessageFilter
from ortoo.snode.pull.offsets import SessionStart


@dataclass(frozen=True, slots=True)
class PushPlan:
    """A client's request for a push session."""

    group: str
    client_id: str
    """Empty = the id of the session."""
    filters: Mapping[str, MessageFilter | None]
    """The filter of each topic; None = all messages."""
    start: SessionStart = SessionStart()
    broadcast: bool = False
    """Whether the session receives all messages of the topics."""
    member_session_id: str = ""
    """The client session that this push session belongs to; empty = none."""
    heartbeat_interval_ms: int = 30_000
    expiry_ms: int = 120_000
    """Timeout of a silent session."""
    owner: str = ""
    """The user or the host whose share of the sessions it takes."""
