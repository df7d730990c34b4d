"""Links to enodes that tell the trace topic what was stored and acknowledged over them."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from ortoo.common.groups.pop import Finish, LeasePart, Stale, Verdict
from ortoo.common.process.clock import Clock
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.snode.cluster.directory import Directory
from ortoo.snode.enodes.link import Appended, EnodeLink, Fetched, FlushMode, Links, OffsetRow
from ortoo.snode.observe.trace_topic import TraceTopic


class RecordedLinks:
    """Links whose appends and acknowledgements are recorded."""

    def __init__(self, links: Links, trace: TraceTopic, directory: Directory, clock: Clock) -> None:
        self._links = links
        self._trace = trace
        self._directory = directory
        self._clock = clock
        self._names: dict[int, str] = {}

    def to(self, enode: str, address: str) -> EnodeLink:
        """The link to an enode, recorded."""
        link: Any = RecordedLink(enode, self._links.to(enode, address), self._trace, self._name_of, self._clock)
        recorded: EnodeLink = link
        return recorded

    def _name_of(self, topic_id: int) -> str:
        """A topic's name; ids are never used again, so what was once found stays true."""
        name = self._names.get(topic_id)
        if name is None and (name := self._directory.topic_name(topic_id)):
            self._names[topic_id] = name
        return name or ""


class RecordedLink:
    """One enode's link; what it does not record it passes on."""

    def __init__(self, enode: str, link: EnodeLink, trace: TraceTopic, name_of: Any, clock: Clock) -> None:
        self._enode = enode
        self._link = link
        self._trace = trace
        self._name_of = name_of
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)

    def append(
        self, topic_id: int, queue_id: int, batch: SealedBatch, flush_mode: FlushMode = FlushMode.DEFAULT
    ) -> asyncio.Future[Appended]:
        """Send one batch, and record it when it is stored."""
        began_ms = self._clock.now_ms()

        def record(done: asyncio.Future[Appended]) -> None:
            if not done.cancelled() and done.exception() is None:
                first_offset = done.result().first_offset
                name = self._name_of(topic_id)
                self._trace.sent(name, self._enode, queue_id, first_offset, batch.count, began_ms)

        answer = self._link.append(topic_id, queue_id, batch, flush_mode)
        answer.add_done_callback(record)
        return answer

    async def fetch(self, topic_id: int, queue_id: int, from_offset: int, **how: Any) -> Fetched:
        """Read; where a group reads first is where its consuming begins."""
        if group := how.get("group", ""):
            self._trace.known(group, self._name_of(topic_id), self._enode, queue_id, from_offset)
        return await self._link.fetch(topic_id, queue_id, from_offset, **how)

    async def query_offsets(self, topic_id: int, group: str, queue_ids: Iterable[int] = ()) -> dict[int, int]:
        """A group's offsets, which tell where its consuming goes on."""
        found = await self._link.query_offsets(topic_id, group, queue_ids)
        for queue_id, offset in found.items():
            self._trace.known(group, self._name_of(topic_id), self._enode, queue_id, offset)
        return found

    async def commit_rows(
        self, topic_id: int, group: str, rows: Sequence[OffsetRow], *, reset: bool = False
    ) -> list[int]:
        """Store a group's offsets, and record those that were taken."""
        fenced = await self._link.commit_rows(topic_id, group, rows, reset=reset)
        for queue_id, offset, _ in rows if not reset else ():
            if queue_id not in fenced:
                self._trace.acknowledged(group, self._name_of(topic_id), self._enode, queue_id, offset)
        return fenced

    async def settle(self, topic_id: int, group: str, parts: Sequence[LeasePart], verdict: Verdict) -> list[Stale]:
        """Settle leased messages, and record those that the group is done with."""
        stale = await self._link.settle(topic_id, group, parts, verdict)
        if isinstance(verdict, Finish) and not verdict.filtered:
            gone = {(one.queue_id, one.offset) for one in stale}
            for part in parts:
                for first, count in part.ranges:
                    if (part.queue_id, first) not in gone:
                        self._trace.consumed(group, self._name_of(topic_id), self._enode, part.queue_id, first, count)
        return stale
