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
from dataclasses import dataclass, field
from typing import Any

from ortoo.common.errors import OrtooError
from ortoo.common.groups.pop import Finish, LeasePart, Stale, Verdict
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock
from ortoo.common.records.message import Message
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.common.telemetry.metrics import Metrics
from ortoo.snode import log_events
from ortoo.snode.cluster.directory import Directory
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.enodes.grpc_link import GrpcEnodeLink
from ortoo.snode.enodes.link import Appended, Fetched, FetchWish, FlushMode, OffsetRow

WAITING_MAX = 10_000
"""How many records may wait for their flush; more are dropped, and counted."""
FLUSH_MESSAGES_MAX = 1_000
PROGRESS_MAX = 100_000
_log = get_logger("trace topic")
Publish = Callable[[str, Sequence[Message]], Awaitable[object]]


@dataclass(slots=True, eq=False)
class TraceTopic:
    """Collects records, and publishes them without anybody waiting for it."""

    topic: str
    """Where records go; what happens in it is not recorded."""
    snode: str
    directory: Directory
    clock: Clock
    written: int = field(default=0, init=False)
    """How many records are stored."""
    dropped: int = field(default=0, init=False)
    """How many are lost because there were too many or nobody took them."""
    _waiting: deque[Message] = field(default_factory=deque, init=False)
    _progress: OrderedDict[tuple[str, Queue], int] = field(default_factory=OrderedDict, init=False)
    _names: dict[int, str] = field(default_factory=dict, init=False)

    def register(self, metrics: Metrics) -> None:
        """Name what is read."""
        metrics.counter("ortoo_trace_records_total", "Records stored in the trace topic.", lambda: self.written)
        metrics.counter(
            "ortoo_trace_records_dropped_total", "Records of the trace topic that were lost.", lambda: self.dropped
        )

    def queue(self, topic_id: int, enode: str, queue_id: int) -> Queue:
        """A queue by its topic's name; ids are never used again, so what was once found stays true."""
        name = self._names.get(topic_id)
        if name is None and (name := self.directory.topic_name(topic_id)):
            self._names[topic_id] = name
        return Queue(name or "", enode, queue_id)

    def sent(self, queue: Queue, first_offset: int, count: int, began_ms: int) -> None:
        """A batch is stored."""
        self._put("send", queue, first_offset, count, duration_ms=self.clock.now_ms() - began_ms)

    def known(self, group: str, queue: Queue, offset: int) -> None:
        """How far a group is, as somebody has read it."""
        self._progress.setdefault((group, queue), offset)
        if len(self._progress) > PROGRESS_MAX:
            self._progress.popitem(last=False)

    def acknowledged(self, group: str, queue: Queue, offset: int) -> None:
        """A group is done with everything before an offset; the first one heard of only says where it begins."""
        before = self._progress.pop((group, queue), offset)
        self.known(group, queue, offset)
        if offset > before:
            self.consumed(group, queue, before, offset - before)

    def consumed(self, group: str, queue: Queue, first_offset: int, count: int) -> None:
        """A group is done with these messages."""
        self._put("consume", queue, first_offset, count, group=group)

    async def flush(self, publish: Publish) -> None:
        """Publish what waits; what cannot be stored is dropped, for records must not pile up behind an outage."""
        while self._waiting:
            part = [self._waiting.popleft() for _ in range(min(FLUSH_MESSAGES_MAX, len(self._waiting)))]
            try:
                await publish(self.topic, part)
                self.written += len(part)
            except OrtooError as error:
                self.dropped += len(part)
                _log.emit(log_events.TRACE_RECORDS_DROPPED, records=len(part), reason=str(error))
                return

    def _put(self, kind: str, queue: Queue, first_offset: int, count: int, **more: Any) -> None:
        if queue.topic in (self.topic, ""):
            return
        if len(self._waiting) >= WAITING_MAX:
            self.dropped += 1
            return
        record = {
            "kind": kind,
            "topic": queue.topic,
            "enode": queue.enode,
            "queue_id": queue.queue_id,
            "first_offset": first_offset,
            "message_count": count,
            "snode": self.snode,
            "at_ms": self.clock.now_ms(),
        }
        self._waiting.append(Message(json.dumps(record | more).encode(), kind, (queue.topic,)))


@dataclass(slots=True)
class RecordedLink:
    """One enode's link; what it does not record it passes on."""

    trace: TraceTopic
    enode: str
    link: GrpcEnodeLink

    def __getattr__(self, name: str) -> Any:
        return getattr(self.link, name)

    def append(
        self, topic_id: int, queue_id: int, batch: SealedBatch, flush_mode: FlushMode = FlushMode.DEFAULT
    ) -> asyncio.Future[Appended]:
        """Send one batch, and record it when it is stored."""
        began_ms = self.trace.clock.now_ms()

        def record(done: asyncio.Future[Appended]) -> None:
            if not done.cancelled() and done.exception() is None:
                queue = self.trace.queue(topic_id, self.enode, queue_id)
                self.trace.sent(queue, done.result().first_offset, batch.count, began_ms)

        answer = self.link.append(topic_id, queue_id, batch, flush_mode)
        answer.add_done_callback(record)
        return answer

    async def fetch(self, wish: FetchWish) -> Fetched:
        """Read; where a group reads first is where its consuming begins."""
        if wish.group:
            self.trace.known(wish.group, self.trace.queue(wish.topic_id, self.enode, wish.queue_id), wish.from_offset)
        return await self.link.fetch(wish)

    async def query_offsets(self, topic_id: int, group: str, queue_ids: Iterable[int] = ()) -> dict[int, int]:
        """A group's offsets, which tell where its consuming goes on."""
        found = await self.link.query_offsets(topic_id, group, queue_ids)
        for queue_id, offset in found.items():
            self.trace.known(group, self.trace.queue(topic_id, self.enode, queue_id), offset)
        return found

    async def commit_rows(
        self, topic_id: int, group: str, rows: Sequence[OffsetRow], *, reset: bool = False
    ) -> list[int]:
        """Store a group's offsets, and record those that were taken."""
        fenced = await self.link.commit_rows(topic_id, group, rows, reset=reset)
        for queue_id, offset, _ in rows if not reset else ():
            if queue_id not in fenced:
                self.trace.acknowledged(group, self.trace.queue(topic_id, self.enode, queue_id), offset)
        return fenced

    async def settle(self, topic_id: int, group: str, parts: Sequence[LeasePart], verdict: Verdict) -> list[Stale]:
        """Settle leased messages, and record those that the group is done with."""
        stale = await self.link.settle(topic_id, group, parts, verdict)
        if isinstance(verdict, Finish) and not verdict.filtered:
            gone = {(one.queue_id, one.offset) for one in stale}
            for part in parts:
                queue = self.trace.queue(topic_id, self.enode, part.queue_id)
                for first, count in part.ranges:
                    if (part.queue_id, first) not in gone:
                        self.trace.consumed(group, queue, first, count)
        return stale
