"""What was sent and consumed through this snode, as messages of a topic. Off unless a topic is named.

Each record is a message with a JSON body, tagged `send` or `consume`, found by the topic's name as its key:

    {"kind": "send", "topic": "t", "enode": "enode-0", "queue_id": 3, "first_offset": 17, "message_count": 2,
     "snode": "snode-0", "at_ms": 1700000000000, "duration_ms": 4}
    {"kind": "consume", "group": "g", ...}      # the group is done with these messages

One record stands for one batch, or for one acknowledgement: its cost does not grow with the number of messages.
"""

import json
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ortoo.common.errors import OrtooError
from ortoo.common.process.clock import Clock
from ortoo.common.process.logs import get_logger
from ortoo.common.records.message import Message
from ortoo.common.telemetry.metrics import Metrics

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
