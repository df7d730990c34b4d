"""Pulls with long polling, and committed offsets of groups."""

import asyncio
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ortoo.common.arrays.gather import narrow
from ortoo.common.arrays.opened_batch import OpenedBatch
from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import Conflict, Fenced, Invalid, NotFound, OrtooError, OutOfRange
from ortoo.common.filters.message_filter import MessageFilter
from ortoo.common.filters.selection import SelectedRows, select_rows
from ortoo.common.groups.sinks import SinkIdentity
from ortoo.common.process.clock import Clock
from ortoo.snode.cluster.directory import check_readable
from ortoo.snode.cluster.group_names import check_consumer_group
from ortoo.snode.cluster.routes import Queue, Topic
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.enodes.link import EnodeLinks, FetchBatchesRequest, FetchedBatches, OffsetRow, QueueSize, explain_error
from ortoo.snode.membership.group_membership import Membership
from ortoo.snode.observe.traffic import Traffic
from ortoo.snode.pull.offsets import GroupOffset
from ortoo.snode.topics.group_settings import GroupSettings

MESSAGES_DEFAULT = 32
MESSAGES_MAX = 4_096
BYTES_MAX = 4 << 20
WAIT_MAX_MS = 60_000
SKIPPED_MAX = 65_536
"""Number of non-matching messages after which a pull answers with its new position."""


@dataclass(frozen=True, slots=True)
class PullRequest:
    """A client's pull request."""

    group: str
    queue: Queue
    offset: int
    messages_max: int = 0
    bytes_max: int = 0
    wait_ms: int = 0
    message_filter: MessageFilter | None = None
    subscription_version: int = 0
    generation: int = 0
    to_offset: int = 1 << 62
    """The messages returned end before this offset."""


@dataclass(frozen=True, slots=True)
class QueuePullResult:
    """The answer to a pull. After an illegal offset, `next_offset` is the nearest legal offset.

    If `parts` is empty and `has_skipped` is false, there are no new messages.
    """

    topic_id: int
    next_offset: int
    end_offset: int
    begin_offset: int = -1
    parts: tuple[SelectedRows, ...] = ()
    is_offset_illegal: bool = False
    has_skipped: bool = False
    commit_soon: bool = False
    """Whether the next messages follow only when these are committed."""


@dataclass(slots=True, eq=False)
class PullProcessor:
    """Serves pulls, and commits and queries offsets. It keeps no state, because the enodes store all of it."""

    watch: DirectoryWatch
    links: EnodeLinks
    settings: GroupSettings
    membership: Membership
    traffic: Traffic
    clock: Clock

    async def pull(self, request: PullRequest) -> QueuePullResult:
        """Read messages of a queue; at its end, wait for new messages.

        Errors: Invalid, NotFound (topic, group, subscription), Conflict (the registered subscription is older than that
        of the request, or the group may not consume), Fenced, Unavailable.
        """
        check_consumer_group(request.group)
        if request.offset < 0 or request.messages_max > MESSAGES_MAX or request.wait_ms > WAIT_MAX_MS:
            raise Invalid(
                f"give an offset of at least 0, at most {MESSAGES_MAX} messages, a wait of at most {WAIT_MAX_MS} ms"
            )
        topic = await self._readable_topic(request.queue)
        await self.settings.check(request.group)
        await self._check_subscription(request)
        try:
            return await self._pull(request, topic)
        except OutOfRange as error:
            corrected = error.begin_offset if request.offset < error.begin_offset else error.end_offset
            return QueuePullResult(
                topic.topic_id, corrected, error.end_offset, error.begin_offset, is_offset_illegal=True
            )
        except OrtooError as error:
            raise explain_error(error) from error

    async def commit_offsets(
        self, group: str, offsets: Sequence[GroupOffset], sink: SinkIdentity | None = None
    ) -> list[GroupOffset]:
        """Store a group's offsets; returns the refused ones, each with its error. `sink` names it if it is a sink.

        If all are refused with the same kind of error, this error is raised instead.
        """
        check_consumer_group(group, sinks=True)
        by_enode, refused = await self._group_by_enode(offsets)
        for (enode, topic_id), items in by_enode.items():
            rows: list[OffsetRow] = [(item.queue.queue_id, item.offset, item.generation) for item in items]
            try:
                fenced = set(await self.links.to(enode).commit_offsets(topic_id, group, rows, sink=sink))
            except OrtooError as error:
                refused += [dataclasses.replace(item, error=explain_error(error)) for item in items]
            else:
                lost = Fenced("the lock of this queue has a newer generation: take the lock again", field="generation")
                refused += [dataclasses.replace(one, error=lost) for one in items if one.queue.queue_id in fenced]
        if len(refused) == len(offsets) and len({type(one.error) for one in refused}) == 1:
            assert refused[0].error is not None
            raise refused[0].error
        return refused

    async def query_offsets(self, group: str, queues: Sequence[Queue], topic_name: str = "") -> list[GroupOffset]:
        """A group's offset in each queue; -1 = the group has none, and `error` is set if it could not be read.

        Without `queues`, these are all readable queues of the topic `topic_name`. If no queue is valid, the error of
        the first queue is raised.
        """
        check_group_name(group, "group")
        requested = list(queues)
        if not requested:
            topic = await self.watch.topic(topic_name)
            requested = topic.read_queues() if topic.readable else []
        by_enode, refused = await self._group_by_enode(map(GroupOffset, requested))
        if not by_enode and refused:
            assert refused[0].error is not None
            raise refused[0].error
        found = {item.queue: item for item in refused}
        for (enode, topic_id), items in by_enode.items():
            try:
                stored = await self.links.to(enode).query_offsets(
                    topic_id, group, [one.queue.queue_id for one in items]
                )
            except OrtooError as error:
                found |= {item.queue: dataclasses.replace(item, error=explain_error(error)) for item in items}
            else:
                found |= {item.queue: GroupOffset(item.queue, stored.get(item.queue.queue_id, -1)) for item in items}
        return [found[queue] for queue in requested]

    async def find_offset(self, queue: Queue, time_ms: int) -> int:
        """The first offset in a queue that was stored at or after `time_ms`; the end of the queue if there is none."""
        topic = await self._readable_topic(queue)
        try:
            return await self.links.to(queue.enode).find_offset(topic.topic_id, queue.queue_id, time_ms)
        except OrtooError as error:
            raise explain_error(error) from error

    async def measure_queues(self, starts: Mapping[Queue, tuple[int, int]]) -> dict[Queue, QueueSize | OrtooError]:
        """The stored bytes of queues, each from (first offset, maximum of bytes); or why a queue has no result."""
        by_enode, refused = await self._group_by_enode(map(GroupOffset, starts))
        found: dict[Queue, QueueSize | OrtooError] = {one.queue: one.error for one in refused if one.error is not None}

        async def measure(enode: str, topic_id: int, queues: list[Queue]) -> None:
            requests = [(queue.queue_id, *starts[queue]) for queue in queues]
            try:
                sizes = await self.links.to(enode).measure_queues(topic_id, requests)
            except OrtooError as error:
                found.update(dict.fromkeys(queues, explain_error(error)))
            else:
                found.update(zip(queues, sizes, strict=True))

        await asyncio.gather(
            *(measure(enode, topic_id, [one.queue for one in items]) for (enode, topic_id), items in by_enode.items())
        )
        return {queue: found[queue] for queue in starts}

    async def _pull(self, request: PullRequest, topic: Topic) -> QueuePullResult:
        link = self.links.to(request.queue.enode)
        deadline_s = self.clock.monotonic_s() + request.wait_ms / 1000
        at = request.offset
        while True:
            wait_ms = max(0, int((deadline_s - self.clock.monotonic_s()) * 1000))
            fetch_request = FetchBatchesRequest(
                topic.topic_id,
                request.queue.queue_id,
                at,
                bytes_max=min(request.bytes_max or 1 << 20, BYTES_MAX),
                wait_ms=wait_ms,
                group=request.group if request.generation else "",
                generation=request.generation,
            )
            fetched = await link.fetch(fetch_request)
            parts, at, expired = _select_messages(fetched, at, request, self.clock.now_ms())
            if expired:
                self.traffic.count_expired(request.queue.topic, request.group, expired)
            if parts:
                batches = [part.batch for part in parts if part.batch is not None]
                sizes = sum(len(one.records) for one in batches)
                messages = sum(one.count for one in batches)
                self.traffic.count_delivered(request.queue.topic, request.group, "pull", messages, sizes)
                if (traces := self.traffic.traces) is not None:
                    for part in parts:
                        assert part.batch is not None
                        traces.on_pulled(request.group, request.queue, part.first_offset, part.batch)
                return QueuePullResult(topic.topic_id, at, fetched.end_offset, parts=tuple(parts))
            passed_over = at - request.offset
            is_bounded = at >= request.to_offset
            if not fetched.batches or passed_over >= SKIPPED_MAX or wait_ms == 0 or is_bounded:
                return QueuePullResult(topic.topic_id, at, fetched.end_offset, has_skipped=passed_over > 0)

    async def _check_subscription(self, request: PullRequest) -> None:
        if not request.subscription_version:
            return
        await self.membership.follow(request.group)
        versions = [
            one.version
            for member in self.membership.members(request.group).values()
            for one in member.subscriptions
            if one.topic == request.queue.topic
        ]
        if not versions:
            raise NotFound(
                f"group {request.group} does not subscribe to {request.queue.topic}: register first",
                field="subscription_version",
            )
        if request.subscription_version > max(versions):
            raise Conflict(
                f"group {request.group} has registered version {max(versions)} of the subscription to "
                f"{request.queue.topic}, not {request.subscription_version}: register it first",
                field="subscription_version",
            )

    async def _readable_topic(self, queue: Queue) -> Topic:
        topic = await self.watch.topic(queue.topic)
        check_readable(topic, queue)
        return topic

    async def _group_by_enode(
        self, items: Iterable[GroupOffset]
    ) -> tuple[dict[tuple[str, int], list[GroupOffset]], list[GroupOffset]]:
        """Group items by enode and topic id. Also returns the items without a readable queue, each with its error."""
        found: dict[tuple[str, int], list[GroupOffset]] = {}
        refused: list[GroupOffset] = []
        for item in items:
            try:
                topic = await self._readable_topic(item.queue)
            except OrtooError as error:
                refused.append(dataclasses.replace(item, error=error))
            else:
                found.setdefault((item.queue.enode, topic.topic_id), []).append(item)
        return found, refused


def _select_messages(
    fetched: FetchedBatches, at: int, request: PullRequest, now_ms: int
) -> tuple[list[SelectedRows], int, int]:
    """The parts to return, the next offset, and the number of expired messages that were left out."""
    left, expired = request.messages_max or MESSAGES_DEFAULT, 0
    parts: list[SelectedRows] = []
    for stored in fetched.batches:
        if at >= request.to_offset:
            break
        end = request.to_offset if request.message_filter is not None else min(at + left, request.to_offset)
        part = select_rows(stored, at, min(end, stored.next_offset), request.message_filter, now_ms=now_ms)
        if part.messages > left:
            last = int(np.frombuffer(part.rows, "<i4")[left - 1]) if part.rows else left - 1
            part = select_rows(stored, at, part.first_offset + last + 1, request.message_filter, now_ms=now_ms)
        at = part.next_offset
        expired += part.expired
        if part.batch is None:
            continue
        if request.message_filter is None and part.rows and part.batch.count > part.messages:
            batch, rows = narrow(OpenedBatch(part.batch), np.frombuffer(part.rows, "<i4"))
            part = dataclasses.replace(part, batch=batch, rows=rows.tobytes())
        parts.append(part)
        left -= part.messages
        if left <= 0:
            break
    return parts, at, expired
