"""Counts of the traffic through this snode, by topic and group, and spans of traced messages."""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ortoo.common.groups.pop import Popped, PopRequest
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.common.telemetry.metrics import Metrics
from ortoo.common.telemetry.tracing import Span, Tracing, sampled_contexts
from ortoo.snode.cluster.directory import DirectoryCache
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.enodes.grpc_link import GrpcEnodeLink
from ortoo.snode.enodes.link import AppendedBatch, FlushMode

OPEN_SPANS_MAX = 10_000
"""Maximum of deliveries with open spans that wait for their acknowledgement."""


@dataclass(slots=True)
class TracedLink:
    """The link to one enode, which makes spans for appends and pops; other methods are passed through."""

    tracing: Tracing
    enode: str
    link: GrpcEnodeLink

    def __getattr__(self, name: str) -> Any:
        return getattr(self.link, name)

    def append(
        self, topic_id: int, queue_id: int, batch: SealedBatch, flush_mode: FlushMode = FlushMode.DEFAULT
    ) -> asyncio.Future[AppendedBatch]:
        """Send one batch, with a span that ends when it is stored."""
        contexts = sampled_contexts(batch.records)
        if not contexts:
            return self.link.append(topic_id, queue_id, batch, flush_mode)
        attributes: dict[str, str | int] = {
            "ortoo.enode": self.enode,
            "ortoo.topic_id": str(topic_id),
            "ortoo.queue_id": queue_id,
        }
        spans = self.tracing.start_spans("ortoo publish", contexts, attributes)
        answer = self.link.append(topic_id, queue_id, batch, flush_mode)
        answer.add_done_callback(
            lambda done: self.tracing.finish_spans(spans, None if done.cancelled() else done.exception())
        )
        return answer

    async def pop(self, request: PopRequest) -> Popped:
        """Lease messages, with a span for each traced message."""
        popped = await self.link.pop(request)
        for one in popped.batches:
            if contexts := sampled_contexts(one.batch.records):
                attributes: dict[str, str | int] = {
                    "messaging.consumer.group.name": request.group,
                    "ortoo.enode": self.enode,
                    "ortoo.topic_id": str(request.topic_id),
                    "ortoo.queue_id": one.queue_id,
                    "ortoo.offset": one.offsets[0],
                }
                self.tracing.finish_spans(self.tracing.start_spans("ortoo pop", contexts, attributes))
        return popped


@dataclass(slots=True)
class _OpenSpans:
    next_offset: int
    spans: Sequence[Span]


class PushTraces:
    """The spans of pushed messages, from the delivery to the acknowledgement.

    If a message is delivered again, its open span ends with an error.
    """

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._open_spans: dict[tuple[str, Queue], deque[_OpenSpans]] = {}
        self._count = 0

    def on_pushed(self, group: str, queue: Queue, first_offset: int, next_offset: int, batch: SealedBatch) -> None:
        """Begin a span for each traced message of a batch that was sent to a group member."""
        if self._count >= OPEN_SPANS_MAX:
            return
        waiting = self._open_spans.get((group, queue))
        earlier: list[Span] = []
        while waiting and waiting[-1].next_offset > first_offset:
            spans = waiting.pop().spans
            self._tracing.finish_spans(spans, TimeoutError("not acknowledged; delivered again"))
            earlier += spans
            self._count -= 1
        contexts = sampled_contexts(batch.records)
        if not contexts:
            return
        attributes = _delivery_attributes(group, queue, first_offset)
        self._tracing.finish_spans(self._tracing.start_spans("ortoo push", contexts, attributes, earlier))
        spans = self._tracing.start_spans("ortoo process", contexts, attributes, earlier)
        self._count += 1
        self._open_spans.setdefault((group, queue), deque()).append(_OpenSpans(next_offset, spans))

    def on_pulled(self, group: str, queue: Queue, first_offset: int, batch: SealedBatch) -> None:
        """Make a span for each traced message of a batch that a reader pulled; `group` is empty outside of groups."""
        if contexts := sampled_contexts(batch.records):
            self._tracing.finish_spans(
                self._tracing.start_spans("ortoo pull", contexts, _delivery_attributes(group, queue, first_offset))
            )

    def on_committed(self, group: str, queue: Queue, offset: int) -> None:
        """End the spans of the messages before `offset`, because a group has processed them."""
        waiting = self._open_spans.get((group, queue))
        while waiting and waiting[0].next_offset <= offset:
            self._tracing.finish_spans(waiting.popleft().spans)
            self._count -= 1
        if waiting is not None and not waiting:
            del self._open_spans[group, queue]


def _delivery_attributes(group: str, queue: Queue, first_offset: int) -> dict[str, str | int]:
    return {
        "messaging.destination.name": queue.topic,
        "messaging.consumer.group.name": group,
        "ortoo.queue_id": queue.queue_id,
        "ortoo.offset": first_offset,
    }


TOPIC_AND_GROUP = ("topic", "consumer_group")


class Traffic:
    """Totals of delivered messages. The totals of deleted topics are dropped when the metrics are read."""

    def __init__(self, traces: PushTraces | None = None) -> None:
        """Start at zero."""
        self.traces = traces
        """Spans of deliveries, if tracing is enabled."""
        self.delivered_totals: dict[tuple[str, str, str], list[int]] = {}
        """(topic, group, mode) to [messages, bytes, batches]; the mode is `push`, `pull` or `pop`."""
        self.lost_totals: dict[tuple[str, str], int] = {}
        """(topic, group) to messages skipped because their stored copy is damaged."""

        self.expired_totals: dict[tuple[str, str], int] = {}
        """(topic, group) to expired messages left out of pushes and pulls."""

    def count_delivered(self, topic: str, group: str, mode: str, messages: int, size_bytes: int) -> None:
        """Count a batch that was sent to a consumer of a group. Reads outside of groups are not counted."""
        if not group:
            return
        totals = self.delivered_totals.get((topic, group, mode))
        if totals is None:
            totals = self.delivered_totals[topic, group, mode] = [0, 0, 0]
        totals[0] += messages
        totals[1] += size_bytes
        totals[2] += 1

    def count_lost(self, topic: str, group: str, messages: int) -> None:
        """Count messages that were reported to a client as lost."""
        self.lost_totals[topic, group] = self.lost_totals.get((topic, group), 0) + messages

    def count_expired(self, topic: str, group: str, messages: int) -> None:
        """Count messages that expired before the group got them."""
        self.expired_totals[topic, group] = self.expired_totals.get((topic, group), 0) + messages

    def register(self, metrics: Metrics, directory: DirectoryCache) -> None:
        """Register the metrics of the traffic. Metrics whose names begin with rocketmq_ exist in RocketMQ 5 as well."""

        def delivered(column: int) -> Iterator[tuple[tuple[str, ...], int]]:
            return ((place, numbers[column]) for place, numbers in list(self.delivered_totals.items()))

        metrics.prepare(partial(self._drop_deleted, directory))
        for name, about, column in (
            ("rocketmq_messages_out_total", "Messages delivered to consumers of a group.", 0),
            ("rocketmq_throughput_out_total", "Bytes delivered to consumers of a group.", 1),
            ("ortoo_deliveries_total", "Batches delivered to consumers of a group.", 2),
        ):
            read_column = partial(delivered, column)
            metrics.counter(name, about, read_column, labels=(*TOPIC_AND_GROUP, "mode"))
        for name, about, read in (
            (
                "ortoo_messages_lost_total",
                "Messages skipped in push sessions because their stored copy is damaged.",
                lambda: self.lost_totals,
            ),
            (
                "ortoo_messages_expired_total",
                "Expired messages left out of pushes and pulls.",
                lambda: self.expired_totals,
            ),
        ):
            metrics.counter(name, about, read, labels=TOPIC_AND_GROUP)

    def _drop_deleted(self, directory: DirectoryCache) -> Iterator[None]:
        """Drop the totals of every (topic, group) that no longer exists, one at each step."""
        tables: tuple[dict[Any, Any], ...] = (self.delivered_totals, self.lost_totals, self.expired_totals)
        for totals in tables:
            for place in list(totals):
                yield
                if not (directory.find_topic(place[0]) and directory.group(place[1])):
                    del totals[place]
