"""Records of sends and consumption through this snode, as messages of the topic that `trace_topic` names.

Each record is a message with a JSON body. Its tag is `send` or `consume`; its key is the name of the topic.

  `{"kind": "send", "topic": "t", "enode": "enode-0", "queue_id": 3, "first_offset": 17, "message_count": 2,
   "snode": "snode-0", "at_ms": 1700000000000, "duration_ms": 4}`
  `{"kind": "consume", "group": "g", ...}`      # the group has acknowledged these messages

Each record is for one batch or one acknowledgement, so its cost does not grow with the number of messages.
"""

import asyncio
import json
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ortoo.common.errors import OrtooError
from ortoo.common.groups.pop import Finish, LeasePart, LeaseVerdict, StaleMessage
from ortoo.common.groups.sinks import SinkIdentity
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock
from ortoo.common.records.message import Message
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.common.telemetry.metrics import Metrics
from ortoo.snode import log_events
from ortoo.snode.cluster.directory import DirectoryCache
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.enodes.grpc_link import GrpcEnodeLink
from ortoo.snode.enodes.link import (
    AppendedBatch,
    FetchBatchesRequest,
    FetchedBatches,
    FlushMode,
    OffsetRow,
    StoredOffset,
)

WAITING_MAX = 10_000
"""Maximum of records that wait to be published. Further records are dropped and counted."""
FLUSH_MESSAGES_MAX = 1_000
PROGRESS_MAX = 100_000
_log = get_logger("trace topic")
Publish = Callable[[str, Sequence[Message]], Awaitable[object]]


@dataclass(slots=True, eq=False)
class TraceTopic:
    """Collects records about sent and consumed messages; `flush` publishes them to the trace topic."""

    topic: str
    """The topic of the records; sends to it are not recorded."""
    snode: str
    directory: DirectoryCache
    clock: Clock
    written: int = field(default=0, init=False)
    """Number of stored records."""
    dropped: int = field(default=0, init=False)
    """Number of records dropped because there were too many or they could not be stored."""
    _waiting: deque[Message] = field(default_factory=deque, init=False)
    _progress: OrderedDict[tuple[str, Queue], int] = field(default_factory=OrderedDict, init=False)
    _names: dict[int, str] = field(default_factory=dict, init=False)

    def register(self, metrics: Metrics) -> None:
        """Register the metrics of the trace records."""
        metrics.counter("ortoo_trace_records_total", "Records stored in the trace topic.", lambda: self.written)
        metrics.counter(
            "ortoo_trace_records_dropped_total", "Dropped records of the trace topic.", lambda: self.dropped
        )

    def queue(self, topic_id: int, enode: str, queue_id: int) -> Queue:
        """The queue of a topic id. The topic's name is cached, because topic ids are never reused."""
        name = self._names.get(topic_id)
        if name is None and (name := self.directory.topic_name(topic_id)):
            self._names[topic_id] = name
        return Queue(name or "", enode, queue_id)

    def on_sent(self, queue: Queue, first_offset: int, count: int, began_ms: int) -> None:
        """Record that a batch was stored; `began_ms` is the time at which its send began."""
        self._put("send", queue, first_offset, count, duration_ms=self.clock.now_ms() - began_ms)

    def set_progress(self, group: str, queue: Queue, offset: int) -> None:
        """Set the offset at which a group's next record for a queue begins, unless it is set already."""
        self._progress.setdefault((group, queue), offset)
        if len(self._progress) > PROGRESS_MAX:
            self._progress.popitem(last=False)

    def on_committed(self, group: str, queue: Queue, offset: int) -> None:
        """Record that a group has consumed a queue from its previous acknowledgement up to `offset`.

        The first call for a queue adds no record, because the previous acknowledgement is unknown.
        """
        before = self._progress.pop((group, queue), offset)
        self.set_progress(group, queue, offset)
        if offset > before:
            self.on_consumed(group, queue, before, offset - before)

    def on_consumed(self, group: str, queue: Queue, first_offset: int, count: int) -> None:
        """Record that a group has finished `count` messages from `first_offset` on."""
        self._put("consume", queue, first_offset, count, group=group)

    async def flush(self, publish: Publish) -> None:
        """Publish the waiting records. Records that cannot be published are dropped, so that they do not accumulate."""
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
    """The link to one enode, which adds records to the trace topic; other methods are passed through."""

    trace: TraceTopic
    enode: str
    link: GrpcEnodeLink

    def __getattr__(self, name: str) -> Any:
        return getattr(self.link, name)

    def append(
        self, topic_id: int, queue_id: int, batch: SealedBatch, flush_mode: FlushMode = FlushMode.DEFAULT
    ) -> asyncio.Future[AppendedBatch]:
        """Send one batch, and add a record when it is stored."""
        began_ms = self.trace.clock.now_ms()

        def record(done: asyncio.Future[AppendedBatch]) -> None:
            if not done.cancelled() and done.exception() is None:
                queue = self.trace.queue(topic_id, self.enode, queue_id)
                self.trace.on_sent(queue, done.result().first_offset, batch.count, began_ms)

        answer = self.link.append(topic_id, queue_id, batch, flush_mode)
        answer.add_done_callback(record)
        return answer

    async def fetch(self, request: FetchBatchesRequest) -> FetchedBatches:
        """Read a queue. A group's first record for the queue begins at the offset of its first read."""
        if request.group:
            self.trace.set_progress(
                request.group, self.trace.queue(request.topic_id, self.enode, request.queue_id), request.from_offset
            )
        return await self.link.fetch(request)

    async def query_offsets(self, topic_id: int, group: str, queue_ids: Iterable[int] = ()) -> dict[int, int]:
        """Query a group's offsets. The group's records begin at these offsets."""
        found = await self.link.query_offsets(topic_id, group, queue_ids)
        for queue_id, offset in found.items():
            self.trace.set_progress(group, self.trace.queue(topic_id, self.enode, queue_id), offset)
        return found

    async def query_starts(self, topic_id: int, group: str, queue_ids: Iterable[int] = ()) -> dict[int, StoredOffset]:
        """As `query_offsets`."""
        found = await self.link.query_starts(topic_id, group, queue_ids)
        for queue_id, one in found.items():
            self.trace.set_progress(group, self.trace.queue(topic_id, self.enode, queue_id), one.offset)
        return found

    async def commit_offsets(
        self,
        topic_id: int,
        group: str,
        rows: Sequence[OffsetRow],
        *,
        reset: bool = False,
        forward_only: bool = False,
        sink: SinkIdentity | None = None,
    ) -> list[int]:
        """Store a group's offsets, and add records of the messages before the accepted offsets."""
        fenced = await self.link.commit_offsets(
            topic_id, group, rows, reset=reset, forward_only=forward_only, sink=sink
        )
        for queue_id, offset, _ in rows if not reset else ():
            if queue_id not in fenced:
                self.trace.on_committed(group, self.trace.queue(topic_id, self.enode, queue_id), offset)
        return fenced

    async def settle(
        self, topic_id: int, group: str, parts: Sequence[LeasePart], verdict: LeaseVerdict
    ) -> list[StaleMessage]:
        """Settle leased messages, and add records of the messages that the group has finished."""
        stale = await self.link.settle(topic_id, group, parts, verdict)
        if isinstance(verdict, Finish) and not verdict.filtered:
            stale_places = {(one.queue_id, one.offset) for one in stale}
            for part in parts:
                queue = self.trace.queue(topic_id, self.enode, part.queue_id)
                for first, count in part.ranges:
                    if (part.queue_id, first) not in stale_places:
                        self.trace.on_consumed(group, queue, first, count)
        return stale
