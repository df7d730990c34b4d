"""Accounts of exactly-once sinks: the newest committed batch of one query in one topic.

An account is the offset of a group in queue 0 of the topic. The group has no consumers.
"""

import hashlib
from dataclasses import dataclass, replace
from typing import Final

from ortoo.common.errors import Conflict, Invalid

SINK_GROUP_PREFIX: Final = "%SINK%"
SINK_ID_BYTES_MAX: Final = 1_024
"""The largest length of the id of a sink or of its query."""
_BATCH_BITS: Final = 36
_MARK_BITS: Final = 24
_RESET: Final = 1 << _BATCH_BITS + _MARK_BITS


def is_sink_group(group: str) -> bool:
    """Whether a group is the account of a sink."""
    return group.startswith(SINK_GROUP_PREFIX)


def sink_group(sink_id: str) -> str:
    """The group of a sink's account. The name of such a group stands for itself. Errors: Invalid for an empty id."""
    if not sink_id:
        raise Invalid("is missing; give the sinkId of the sink, or the id of its query or job", field="sink_id")
    if is_sink_group(sink_id):
        return sink_id
    return SINK_GROUP_PREFIX + hashlib.blake2b(sink_id.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class SinkIdentity:
    """The names of a sink and of the query that writes to it. Servers show them to operators."""

    sink_id: str = ""
    query_id: str = ""

    def check(self) -> None:
        """Refuse ids that are too long. Errors: Invalid."""
        for name, text in (("sink_id", self.sink_id), ("query_id", self.query_id)):
            if len(text.encode()) > SINK_ID_BYTES_MAX:
                raise Invalid(f"{len(text.encode())} bytes; give at most {SINK_ID_BYTES_MAX:,}", field=name)


@dataclass(frozen=True, slots=True)
class SinkAccount:
    """The content of an account, stored as the offset of its group."""

    query_mark: int
    """24 bits of a hash of the query's id."""
    batch_id: int
    """The newest committed batch; -1 = none."""
    is_reset: bool = False
    """An operator reset the account: its query is refused, and another query may begin."""

    @classmethod
    def of_query(cls, query_id: str, batch_id: int) -> "SinkAccount":
        """The account of a query after this batch."""
        mark = int.from_bytes(hashlib.blake2b(query_id.encode(), digest_size=_MARK_BITS // 8).digest(), "little")
        return cls(mark, batch_id)

    @classmethod
    def from_offset(cls, offset: int) -> "SinkAccount":
        """The account that is stored as this offset."""
        mark = offset >> _BATCH_BITS & (1 << _MARK_BITS) - 1
        return cls(mark, (offset & (1 << _BATCH_BITS) - 1) - 1, bool(offset & _RESET))

    @property
    def offset(self) -> int:
        """The offset as which the account is stored."""
        return self.is_reset * _RESET | self.query_mark << _BATCH_BITS | self.batch_id + 1

    def successor(self, following: "SinkAccount") -> "SinkAccount":
        """The account after a commit or a reset that finds this account stored.

        Errors: Conflict for a query that was reset, for another query, and for a batch before the newest one.
        """
        if self.query_mark != following.query_mark:
            if not self.is_reset or following.is_reset:
                raise Conflict(
                    "the sink belongs to another query, or to this query with a former checkpoint; writing would "
                    "duplicate messages. Use a new sinkId, or reset the sink (ortoo sink reset)",
                    field="sinkId",
                )
            return following
        if following.is_reset:
            return replace(self, is_reset=True)
        if self.is_reset:
            after = f"after batch {self.batch_id}" if self.batch_id >= 0 else "before the first batch"
            raise Conflict(
                f"an operator reset the sink {after} of this query, so the query cannot continue. "
                "Start a query with a new checkpoint, or a job with a new jobId",
                field="sinkId",
            )
        if following.batch_id < self.batch_id:
            raise Conflict(
                f"the sink has committed batch {self.batch_id}, and this is batch {following.batch_id}. The "
                "checkpoint was restored from an old copy, whose batches may have other rows. Use a new checkpoint "
                "and sinkId, and start where the sink ended",
                field="checkpointLocation",
            )
        return following
