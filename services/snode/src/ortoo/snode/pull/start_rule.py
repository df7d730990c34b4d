"""Where a queue starts for which a group has no offset."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from ortoo.snode.cluster.routes import Queue

RETRY_PREFIX = "%RETRY%"


class StartFrom(enum.IntEnum):
    """The numbers are those on the wire."""

    LAST = 1
    FIRST = 2
    TIME = 3


@dataclass(frozen=True, slots=True)
class StartRule:
    """What a session asked for."""

    start_from: StartFrom = StartFrom.LAST
    time_ms: int = 0
    """With StartFrom.TIME."""
    offsets: Mapping[Queue, int] = field(default_factory=dict)
    """Of a broadcast session: what the client keeps."""

    def of(self, queue: Queue) -> StartFrom:
        """The rule for one queue: a retry topic starts at its first message, for they are all meant for the group."""
        if self.start_from is StartFrom.LAST and queue.topic.startswith(RETRY_PREFIX):
            return StartFrom.FIRST
        return self.start_from
