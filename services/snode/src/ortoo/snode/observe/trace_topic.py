"""What was sent and consumed through this snode, as messages of a topic. Off unless a topic is named.

Each record is a message with a JSON body, tagged `send` or `consume`, found by the topic's name as its key:

    {"kind": "send", "topic": "t", "enode": "enode-0", "queue_id": 3, "first_offset": 17, "message_count": 2,
     "snode": "snode-0", "at_ms": 1700000000000, "duration_ms": 4}
    {"kind": "consume", "group": "g", ...}      # the group is done with these messages

One record stands for one batch, or for one acknowledgement: its cost does not grow with the number of messages.
"""

import asyncio
import json
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ortoo.common.errors import OrtooError
from ortoo.common.groups.pop import Finish, LeasePart, Stale, Verdict
from ortoo.common.process.clock import Clock
from ortoo.common.process.logs import get_logger
from ortoo.common.records.message import Message
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.common.telemetry.metrics import Metrics
from ortoo.snode.cluster.directory import Directory
from ortoo.snode.enodes.link import Appended, EnodeLink, Fetched, FetchWish, FlushMode, Links, OffsetRow

WAITING_MAX = 10_000
"""How many records may wait for their flush; more are dropped, and counted."""
FLUSH_MESSAGES_MAX = 1_000
PROGRESS_MAX = 100_000
_log = get_logger("trace topic")
Publish = Callable[[str, Sequence[Message]], Awaitable[object]]


class TraceTopic:
    """Collects records, and publishes them without anybody waiting for it."""

    def __init__(self, topic: str, snode: str, clock: Clock) -> None:
        """Records go to `topic`; what happens in it is not recorded."""
        self.topic = topic
        self.written = self.dropped = 0
        """How many records are stored, and how many are lost because there were too many or nobody took them."""
        self._snode = snode
        self._clock = clock
        self._waiting: deque[Message] = deque()
        self._progress: OrderedDict[tuple[str, str, str, int], int] = OrderedDict()

    def register(self, metrics: Metrics) -> None:
        """Name what is read."""
        metrics.counter("ortoo_trace_records_total", "Records stored in the trace topic.", lambda: self.written)
        metrics.counter(
            "ortoo_trace_records_dropped_total", "Records of the trace topic that were lost.", lambda: self.dropped
        )

    def sent(self, topic: str, enode: str, queue_id: int, first_offset: int, count: int, began_ms: int) -> None:
        """A batch is stored."""
        self._put("send", topic, enode, queue_id, first_offset, count, duration_ms=self._clock.now_ms() - began_ms)

    def known(self, group: str, topic: str, enode: str, queue_id: int, offset: int) -> None:
        """How far a group is, as somebody has read it."""
        self._progress.setdefault((group, topic, enode, queue_id), offset)
        if len(self._progress) > PROGRESS_MAX:
            self._progress.popitem(last=False)

    def acknowledged(self, group: str, topic: str, enode: str, queue_id: int, offset: int) -> None:
        """A group is done with everything before an offset; the first one heard of only says where it begins."""
        key = (group, topic, enode, queue_id)
        before = self._progress.pop(key, offset)
        self.known(*key, offset)
        if offset > before:
            self._put("consume", topic, enode, queue_id, before, offset - before, group=group)

    def consumed(self, group: str, topic: str, enode: str, queue_id: int, first_offset: int, count: int) -> None:
        """A group that pops is done with these messages."""
        self._put("consume", topic, enode, queue_id, first_offset, count, group=group)

    async def flush(self, publish: Publish) -> None:
        """Publish what waits; what cannot be stored is dropped, for records must not pile up behind an outage."""
        while self._waiting:
            part = [self._waiting.popleft() for _ in range(min(FLUSH_MESSAGES_MAX, len(self._waiting)))]
            try:
                await publish(self.topic, part)
                self.written += len(part)
            except OrtooError as error:
                self.dropped += len(part)
                _log.warning("records of the trace topic are lost", records=len(part), reason=str(error))
                return

    def _put(
        self, kind: str, topic: str, enode: str, queue_id: int, first_offset: int, count: int, **more: Any
    ) -> None:
        if topic == self.topic or not topic:
            return
        if len(self._waiting) >= WAITING_MAX:
            self.dropped += 1
            return
        record = {
            "kind": kind,
            "topic": topic,
            "enode": enode,
            "queue_id": queue_id,
            "first_offset": first_offset,
            "message_count": count,
            "snode": self._snode,
            "at_ms": self._clock.now_ms(),
        }
        self._waiting.append(Message(json.dumps(record | more).encode(), kind, (topic,)))


class RecordedLinks:
    """Links whose appends and acknowledgements are recorded."""

    def __init__(self, links: Links, trace: TraceTopic, directory: Directory, clock: Clock) -> None:
        self._links = links
        self._trace = trace
        self._directory = directory
        self._clock = clock
        self._names: dict[int, str] = {}

    def to(self, enode: str, address: str, epoch: int = 0) -> EnodeLink:
        """The link to an enode, recorded."""
        link: Any = RecordedLink(enode, self._links.to(enode, address, epoch), self._trace, self._name_of, self._clock)
        recorded: EnodeLink = link
        return recorded

    def _name_of(self, topic_id: int) -> str:
        """A topic's name; ids are never used again, so what was once found stays true."""
        name = self._names.get(topic_id)
        if name is None and (name := self._directory.topic_name(topic_id)):
            self._names[topic_id] = name
        return name or ""


@dataclass(slots=True)
class RecordedLink:
    """One enode's link; what it does not record it passes on."""

    enode: str
    link: EnodeLink
    trace: TraceTopic
    name_of: Callable[[int], str]
    clock: Clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self.link, name)

    def append(
        self, topic_id: int, queue_id: int, batch: SealedBatch, flush_mode: FlushMode = FlushMode.DEFAULT
    ) -> asyncio.Future[Appended]:
        """Send one batch, and record it when it is stored."""
        began_ms = self.clock.now_ms()

        def record(done: asyncio.Future[Appended]) -> None:
            if not done.cancelled() and done.exception() is None:
                first_offset = done.result().first_offset
                name = self.name_of(topic_id)
                self.trace.sent(name, self.enode, queue_id, first_offset, batch.count, began_ms)

        answer = self.link.append(topic_id, queue_id, batch, flush_mode)
        answer.add_done_callback(record)
        return answer

    async def fetch(self, wish: FetchWish) -> Fetched:
        """Read; where a group reads first is where its consuming begins."""
        if wish.group:
            self.trace.known(wish.group, self.name_of(wish.topic_id), self.enode, wish.queue_id, wish.from_offset)
        return await self.link.fetch(wish)

    async def query_offsets(self, topic_id: int, group: str, queue_ids: Iterable[int] = ()) -> dict[int, int]:
        """A group's offsets, which tell where its consuming goes on."""
        found = await self.link.query_offsets(topic_id, group, queue_ids)
        for queue_id, offset in found.items():
            self.trace.known(group, self.name_of(topic_id), self.enode, queue_id, offset)
        return found

    async def commit_rows(
        self, topic_id: int, group: str, rows: Sequence[OffsetRow], *, reset: bool = False
    ) -> list[int]:
        """Store a group's offsets, and record those that were taken."""
        fenced = await self.link.commit_rows(topic_id, group, rows, reset=reset)
        for queue_id, offset, _ in rows if not reset else ():
            if queue_id not in fenced:
                self.trace.acknowledged(group, self.name_of(topic_id), self.enode, queue_id, offset)
        return fenced

    async def settle(self, topic_id: int, group: str, parts: Sequence[LeasePart], verdict: Verdict) -> list[Stale]:
        """Settle leased messages, and record those that the group is done with."""
        stale = await self.link.settle(topic_id, group, parts, verdict)
        if isinstance(verdict, Finish) and not verdict.filtered:
            gone = {(one.queue_id, one.offset) for one in stale}
            for part in parts:
                for first, count in part.ranges:
                    if (part.queue_id, first) not in gone:
                        self.trace.consumed(group, self.name_of(topic_id), self.enode, part.queue_id, first, count)
        return stale
