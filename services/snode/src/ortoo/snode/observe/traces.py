"""Where the snode adds spans to the traces of messages: to an enode, and from delivery to acknowledgement."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.common.telemetry.span import Span
from ortoo.common.telemetry.tracing import Tracing, sampled_contexts
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.enodes.link import Appended, EnodeLink, FlushMode, Links
from ortoo.snode.push.outbox import Delivery

WAITING_MAX = 10_000
"""How many deliveries of one snode may wait for their acknowledgement with open spans."""


class TracedLinks:
    """Links whose appends are spans."""

    def __init__(self, links: Links, tracing: Tracing) -> None:
        self._links = links
        self._tracing = tracing

    def to(self, enode: str, address: str) -> EnodeLink:
        """The link to an enode, traced."""
        link: Any = TracedLink(enode, self._links.to(enode, address), self._tracing)
        traced: EnodeLink = link
        return traced


class TracedLink:
    """One enode's link; what it does not trace it passes on."""

    def __init__(self, enode: str, link: EnodeLink, tracing: Tracing) -> None:
        self._enode = enode
        self._link = link
        self._tracing = tracing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)

    def append(
        self, topic_id: int, queue_id: int, batch: SealedBatch, flush_mode: FlushMode = FlushMode.DEFAULT
    ) -> asyncio.Future[Appended]:
        """Send one batch, and span the time until it is stored."""
        contexts = sampled_contexts(batch.records)
        if not contexts:
            return self._link.append(topic_id, queue_id, batch, flush_mode)
        attributes: dict[str, str | int] = {
            "ortoo.enode": self._enode,
            "ortoo.topic_id": str(topic_id),
            "ortoo.queue_id": queue_id,
        }
        spans = self._tracing.begin("ortoo publish", contexts, attributes)
        answer = self._link.append(topic_id, queue_id, batch, flush_mode)
        answer.add_done_callback(lambda done: self._tracing.end(spans, None if done.cancelled() else done.exception()))
        return answer


@dataclass(slots=True)
class _Waiting:
    next_offset: int
    spans: Sequence[Span]


class PushTraces:
    """Spans from a delivery to its acknowledgement; what is never acknowledged ends with an error when pushed again."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._waiting: dict[tuple[str, Queue], deque[_Waiting]] = {}
        self._count = 0

    def pushed(self, group: str, delivery: Delivery) -> None:
        """A batch was handed to a member of a group."""
        if delivery.batch is None or self._count >= WAITING_MAX:
            return
        waiting = self._waiting.get((group, delivery.queue))
        earlier: list[Span] = []
        while waiting and waiting[-1].next_offset > delivery.first_offset:
            spans = waiting.pop().spans
            self._tracing.end(spans, TimeoutError("not acknowledged; delivered again"))
            earlier += spans
            self._count -= 1
        contexts = sampled_contexts(delivery.batch.records)
        if not contexts:
            return
        attributes: dict[str, str | int] = {
            "messaging.destination.name": delivery.queue.topic,
            "messaging.consumer.group.name": group,
            "ortoo.queue_id": delivery.queue.queue_id,
            "ortoo.offset": delivery.first_offset,
        }
        self._tracing.end(self._tracing.begin("ortoo push", contexts, attributes, earlier))
        spans = self._tracing.begin("ortoo process", contexts, attributes, earlier)
        self._count += 1
        self._waiting.setdefault((group, delivery.queue), deque()).append(_Waiting(delivery.next_offset, spans))

    def acknowledged(self, group: str, queue: Queue, offset: int) -> None:
        """A group has processed a queue up to `offset`."""
        waiting = self._waiting.get((group, queue))
        while waiting and waiting[0].next_offset <= offset:
            self._tracing.end(waiting.popleft().spans)
            self._count -= 1
        if waiting is not None and not waiting:
            del self._waiting[group, queue]
