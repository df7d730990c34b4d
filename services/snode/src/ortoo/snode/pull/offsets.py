"""Committed offsets: the enode has them, this is a copy of what was read and written through this snode."""

import enum
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ortoo.snode.cluster.routes import Queue
from ortoo.snode.enodes.link import OffsetRow
from ortoo.snode.enodes.pool import EnodeLinks

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


KEYS_MAX = 50_000


class Offsets:
    """Offsets by (enode, topic id, group), then by queue id. Writes go to the enode first, reads always."""

    def __init__(self, links: EnodeLinks) -> None:
        self._links = links
        self._known: OrderedDict[tuple[str, int, str], dict[int, int]] = OrderedDict()

    async def commit(self, enode: str, topic_id: int, group: str, offsets: Mapping[int, int]) -> None:
        """Store offsets (queue id to next offset) under no lock; returns when they are durable.

        Errors: as the enode says.
        """
        await self.commit_rows(enode, topic_id, group, [(queue_id, offset, 0) for queue_id, offset in offsets.items()])

    async def commit_rows(self, enode: str, topic_id: int, group: str, rows: Sequence[OffsetRow]) -> list[int]:
        """Store offsets, each under its lock; returns when they are durable.

        The answer names the queues whose lock has a newer generation. Errors: as the enode says.
        """
        fenced = await self._links.to(enode).commit_rows(topic_id, group, rows)
        stored = {queue_id: offset for queue_id, offset, _ in rows if queue_id not in fenced}
        self._note(enode, topic_id, group, stored)
        return fenced

    async def query(self, queue: Queue, topic_id: int, group: str) -> int | None:
        """The group's offset in one queue; None if it has none."""
        offsets = await self._links.to(queue.enode).query_offsets(topic_id, group, (queue.queue_id,))
        self._note(queue.enode, topic_id, group, offsets)
        return offsets.get(queue.queue_id)

    def known(self, queue: Queue, topic_id: int, group: str) -> int | None:
        """The newest offset that passed through here; None if none did."""
        return self._known.get((queue.enode, topic_id, group), {}).get(queue.queue_id)

    def _note(self, enode: str, topic_id: int, group: str, offsets: Mapping[int, int]) -> None:
        key = (enode, topic_id, group)
        self._known.setdefault(key, {}).update(offsets)
        self._known.move_to_end(key)
        if len(self._known) > KEYS_MAX:
            self._known.popitem(last=False)
