"""All requests of a snode to an enode, sent to its current leader."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from ortoo.common.errors import OrtooError, Unavailable
from ortoo.common.errors.status import error_of
from ortoo.common.groups.sinks import SinkIdentity
from ortoo.common.grpc.bulk_calls import batch_of
from ortoo.common.grpc.enum_values import known_or
from ortoo.common.grpc.messages import read, write
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.snode.cluster.routes import DeliveryMode
from ortoo.snode.cluster.wire import encode_batch
from ortoo.snode.enodes.grpc_pops import GrpcPopLink
from ortoo.snode.enodes.lag_samples import LagSamples
from ortoo.snode.enodes.link import (
    AppendedBatch,
    DeferredMessage,
    DelayedEntry,
    DueHalf,
    FetchBatchesRequest,
    FetchedBatches,
    FlushMode,
    HalfVerdict,
    Interruption,
    LockRequest,
    LockResult,
    MessagePlace,
    OffsetRow,
    OpenHalf,
    QueueRange,
    QueueSize,
    ScheduleChange,
    StoredOffset,
    StoredSchedule,
    TopicLag,
    TrimmedRange,
    VerdictSource,
)
from ortoo.snode.enodes.stored_sinks import StoredSink
from ortoo.snode.enodes.wire.append_wire import encode_append
from ortoo.snode.enodes.wire.schedule_wire import decode_schedule, encode_schedule
from ortoo.v1 import enode_deferred_pb2 as deferred_pb
from ortoo.v1 import enode_delivery_modes_pb2 as lives_pb
from ortoo.v1 import enode_locks_pb2 as locks_pb
from ortoo.v1 import enode_pb2 as pb
from ortoo.v1 import enode_schedules_pb2 as schedules_pb
from ortoo.v1 import enode_topics_pb2 as topics_pb
from ortoo.v1 import lag_pb2 as lag_pb
from ortoo.v1 import sink_pb2 as sink_pb

FIND_TIMEOUT_S = 30.0
"""Timeout of a search, which may have to wait until its process has started and the index has caught up."""


class GrpcEnodeLink(GrpcPopLink):
    """The connection to one enode.

    Concurrency: all methods belong to one event loop. Any number of calls may run at once. Appends to one queue are
    stored in the order of the calls, over leader changes too. Other calls have no order.
    Durability: an answered append, commit, settlement or lock is committed by the enode. The flush mode ASYNC of an
    append is the exception.
    Errors: those of the enode, and Unavailable promptly if it is unreachable, frozen or restarted. The outcome of an
    append that fails with Unavailable is unknown, unless the error says that it was not accepted.
    """

    def append(
        self, topic_id: int, queue_id: int, batch: SealedBatch, flush_mode: FlushMode = FlushMode.DEFAULT
    ) -> asyncio.Future[AppendedBatch]:
        """Store one batch; returns its location. Batches of one queue are stored in the order of the calls.

        For a delayed batch, the location has the first message's timer id instead of an offset. Errors: those of the
        enode, or Overloaded at once if too many bytes are in flight.
        """
        bulky, size_bytes = encode_append(topic_id, queue_id, batch, flush_mode), len(batch.records)
        if self._held_appends.is_holding:
            return self._held_appends.add(bulky, size_bytes)
        return self.appends.send(bulky, size_bytes=size_bytes)

    async def fetch(self, request: FetchBatchesRequest) -> FetchedBatches:
        """Read batches of a queue; the enode may select the requested rows and columns of them.

        Errors: NotFound, OutOfRange, DataLoss, Fenced if the group's lock has a newer generation.
        """
        pushdown = request.pushdown and write(pb.Pushdown, request.pushdown, columns=sorted(request.pushdown.columns))
        message = write(pb.FetchBatchesRequest, request, pushdown=pushdown)
        if request.any_replica:  # this replica itself, leader or not
            return await self._fetches.send_if_available(message)
        return await self._call_leader(lambda link: link._fetches.send(message, wait_s=request.wait_ms / 1000))

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
        """Store a group's offsets; returns the ids of queues whose lock has a newer generation than the row.

        `reset` moves the offsets by an operator's order, and fences the holders of the locks. With `forward_only` it
        moves no offset back. `sink` names the sink whose account the group is. Errors: Fenced if all generations are
        too old.
        """
        request = pb.CommitOffsetsRequest(
            topic_id=topic_id,
            group=group,
            offsets=[pb.QueueOffset(queue_id=q, offset=o, generation=g) for q, o, g in rows],
            reset=reset,
            forward_only=forward_only,
            sink=write(sink_pb.SinkIdentity, sink) if sink is not None else None,
        )
        response = await self._call(lambda stub: stub.CommitOffsets, request)
        return list(response.fenced_queue_ids)

    async def query_offset_groups(self, topic_id: int) -> list[str]:
        """The groups that have an offset in a topic, sorted by name."""
        request = lag_pb.QueryOffsetGroupsRequest(topic_id=topic_id)
        return list((await self._repeat(lambda stub: stub.QueryOffsetGroups, request)).groups)

    async def list_sink_accounts(self, topic_id: int = 0) -> list[StoredSink]:
        """The accounts of exactly-once sinks in a topic, sorted by topic and group; 0 = in all topics."""
        request = sink_pb.ListSinkAccountsRequest(topic_id=topic_id)
        response = await self._repeat(lambda stub: stub.ListSinkAccounts, request)
        return [read(StoredSink, one) for one in response.sinks]

    async def describe_lags(self, group: str) -> list[TopicLag]:
        """The unfinished messages of a group, by topic."""
        request = lag_pb.DescribeLagsRequest(group=group)
        response = await self._repeat(lambda stub: stub.DescribeLags, request)
        return [read(TopicLag, one) for one in response.lags]

    async def list_lag_samples(self, group: str, topic_ids: Iterable[int], from_ms: int) -> LagSamples:
        """The lag of a group in these topics that the enode recorded at `from_ms` or later."""
        request = lag_pb.ListLagSamplesRequest(group=group, from_ms=from_ms, topic_ids=topic_ids)
        return read(LagSamples, await self._repeat(lambda stub: stub.ListLagSamples, request))

    async def record_failed_attempt(
        self,
        group: str,
        topic_id: int,
        queue_id: int,
        offset: int,
        *,
        attempt: int,
        delay_ms: int,
        consumer: str,
        error: str,
    ) -> None:
        """Record a failed attempt of a consumer that keeps the order, for operators."""
        request = lag_pb.RecordFailedAttemptRequest(
            group=group, topic_id=topic_id, queue_id=queue_id, offset=offset, attempt=attempt, delay_ms=delay_ms,
            consumer=consumer, error=error,
        )  # fmt: skip
        await self._call(lambda stub: stub.RecordFailedAttempt, request)

    async def find_deferred(self, topic_id: int, message_id: str) -> DeferredMessage | None:
        """The delayed message, or the message of an open transaction, with this id; None if it was not found."""
        request = deferred_pb.FindDeferredRequest(topic_id=topic_id, message_id=message_id)
        response = await self._repeat(lambda stub: stub.FindDeferred, request)
        if not response.found:
            return None
        half = read(OpenHalf, response.half) if response.HasField("half") else None
        return read(DeferredMessage, response, half=half)

    async def take_locks(self, incarnation: str, requests: Sequence[LockRequest]) -> list[LockResult]:
        """Take or renew locks of queues; returns a result for each. Locks of an incarnation end when it detaches."""
        message = locks_pb.TakeLocksRequest(
            incarnation=incarnation, requests=[write(locks_pb.LockRequest, one) for one in requests]
        )
        response = await self._call(lambda stub: stub.TakeLocks, message)
        return [
            read(LockResult, one, error=error_of(one.failure) if one.HasField("failure") else None)
            for one in response.results
        ]

    async def release_locks(self, requests: Sequence[LockRequest]) -> list[bool]:
        """Release locks of queues; returns for each request whether its session had the lock."""
        message = locks_pb.ReleaseLocksRequest(requests=[write(locks_pb.LockRequest, one) for one in requests])
        return list((await self._call(lambda stub: stub.ReleaseLocks, message)).released)

    async def query_offsets(self, topic_id: int, group: str, queue_ids: Iterable[int] = ()) -> dict[int, int]:
        """The offset of a group in each queue of a topic that has one; `queue_ids` selects queues, none = all."""
        found = await self.query_starts(topic_id, group, queue_ids)
        return {queue_id: one.offset for queue_id, one in found.items()}

    async def query_starts(self, topic_id: int, group: str, queue_ids: Iterable[int] = ()) -> dict[int, StoredOffset]:
        """As `query_offsets`, with the interrupted deliveries."""
        request = pb.QueryOffsetsRequest(topic_id=topic_id, group=group, queue_ids=queue_ids)
        response = await self._repeat(lambda stub: stub.QueryOffsets, request)
        interrupted = {one.queue_id: read(Interruption, one) for one in response.interruptions}
        return {item.queue_id: StoredOffset(item.offset, interrupted.get(item.queue_id)) for item in response.offsets}

    async def record_interruptions(
        self, group: str, topic_id: int, consumer: str, interruptions: Sequence[Interruption]
    ) -> None:
        """Record the messages that a consumer had when its session ended without an answer."""
        request = lag_pb.RecordInterruptionsRequest(
            group=group,
            topic_id=topic_id,
            consumer=consumer,
            interruptions=[write(lag_pb.Interruption, one) for one in interruptions],
        )
        await self._call(lambda stub: stub.RecordInterruptions, request)

    async def describe_queues(self, topic_id: int) -> list[QueueRange]:
        """The stored range of each queue of a topic on the enode."""
        response = await self._repeat(lambda stub: stub.DescribeQueues, pb.DescribeQueuesRequest(topic_id=topic_id))
        return [QueueRange(q.queue_id, q.begin_offset, q.end_offset) for q in response.queues]

    async def describe_queues_of_topics(self, topic_ids: Sequence[int]) -> dict[int, list[QueueRange]]:
        """The stored range of each queue of many topics, without topics that the enode does not have."""
        request = topics_pb.DescribeQueuesOfTopicsRequest(topic_ids=topic_ids)
        response = await self._repeat(lambda stub: stub.DescribeQueuesOfTopics, request)
        return {
            topic.topic_id: list(map(QueueRange, count(), topic.begin_offsets, topic.end_offsets))
            for topic in response.topics
        }

    async def last_message_times_ms(self, topic_ids: Sequence[int]) -> tuple[dict[int, int], int]:
        """When the last message of each topic was stored on the enode, by topic id; 0 = it has no message.

        Also the time of the enode's clock. Topics that the enode does not have are left out, and all topics of an enode
        of an earlier version.
        """
        request = topics_pb.DescribeQueuesOfTopicsRequest(topic_ids=topic_ids, with_last_times=True)
        response = await self._repeat(lambda stub: stub.DescribeQueuesOfTopics, request)
        times_ms = {one.topic_id: max(one.last_stored_at_ms) for one in response.topics if one.last_stored_at_ms}
        return times_ms, response.now_ms

    async def measure_queues(
        self, topic_id: int, starts: Iterable[tuple[int, int, int]]
    ) -> list[QueueSize | OrtooError]:
        """The stored bytes of queues, each from (queue id, first offset, maximum of bytes); or why there are none."""
        request = topics_pb.MeasureStoredQueuesRequest(
            queues=[
                topics_pb.MeasuredStoredQueue(topic_id=topic_id, queue_id=q, from_offset=offset, bytes_max=bytes_max)
                for q, offset, bytes_max in starts
            ]
        )
        response = await self._repeat(lambda stub: stub.MeasureQueues, request)
        return [error_of(one.failure) if one.HasField("failure") else read(QueueSize, one) for one in response.sizes]

    async def trim_queues(self, topic_id: int, begins: Mapping[int, int]) -> list[TrimmedRange]:
        """Make messages unreadable, by queue id to the first offset that stays (-1 = none stays); returns all queues.

        Errors: NotFound, Invalid, Unsupported by an older enode.
        """
        queues = [topics_pb.QueueTrim(queue_id=q, before_offset=offset) for q, offset in begins.items()]
        request = topics_pb.TrimQueuesRequest(topic_id=topic_id, queues=queues)
        response = await self._call(lambda stub: stub.TrimQueues, request)
        return [read(TrimmedRange, one) for one in response.queues]

    async def recall_delayed(self, topic_id: int, timer_id: int, deliver_at_ms: int) -> None:
        """Delete a delayed message. Errors: NotFound if no such message waits, Conflict during its delivery."""
        request = deferred_pb.RecallDelayedRequest(topic_id=topic_id, timer_id=timer_id, deliver_at_ms=deliver_at_ms)
        await self._call(lambda stub: stub.RecallDelayed, request)

    async def list_delayed(self, topic_id: int, from_ms: int, limit: int) -> list[DelayedEntry]:
        """The delayed messages of a topic with a delivery time from `from_ms` on, sorted by this time."""
        request = deferred_pb.ListDelayedRequest(topic_id=topic_id, from_ms=from_ms, limit=limit)
        response = await self._repeat(lambda stub: stub.ListDelayed, request)
        return [read(DelayedEntry, one) for one in response.entries]

    async def store_half(
        self, topic_id: int, queue_id: int, batch: SealedBatch, producer_group: str, check_after_ms: int, key: int
    ) -> int:
        """Begin a transaction and return its number. A repeated `key` (not 0) returns the existing transaction."""
        request = deferred_pb.StoreHalfRequest(
            topic_id=topic_id,
            queue_id=queue_id,
            batch=encode_batch(batch),
            producer_group=producer_group,
            check_after_ms=check_after_ms,
            key=key,
        )
        return (await self._call(lambda stub: stub.StoreHalf, request, is_repeatable=key != 0)).number

    async def settle_half(self, topic_id: int, number: int, verdict: HalfVerdict, source: VerdictSource) -> None:
        """End a transaction. Errors: NotFound, Conflict if it ended with another verdict."""
        request = deferred_pb.SettleHalfRequest(
            topic_id=topic_id,
            number=number,
            verdict=verdict.value,  # type: ignore[arg-type]
            source=source.value,  # type: ignore[arg-type]
        )
        await self._repeat(lambda stub: stub.SettleHalf, request)

    async def list_halves(self, topic_id: int, producer_group: str, *, parked_only: bool, limit: int) -> list[OpenHalf]:
        """The open transactions, the oldest first. Topic id 0 means all topics, an empty group means all groups."""
        request = deferred_pb.ListHalvesRequest(
            topic_id=topic_id, producer_group=producer_group, parked_only=parked_only, limit=limit
        )
        response = await self._repeat(lambda stub: stub.ListHalves, request)
        return [read(OpenHalf, one) for one in response.halves]

    async def resume_half(self, topic_id: int, number: int) -> None:
        """Resume the checks of a parked transaction. Errors: NotFound, Conflict."""
        await self._call(lambda stub: stub.ResumeHalf, deferred_pb.ResumeHalfRequest(topic_id=topic_id, number=number))

    async def watch_halves(self, producer_groups: Iterable[str], on_due: Callable[[DueHalf], None]) -> None:
        """Pass transactions that are due for a check to `on_due`, until the connection ends. Errors: Unavailable."""
        call = self._stub.WatchHalves(deferred_pb.WatchHalvesRequest(producer_groups=producer_groups))
        due = self._read_messages(call, lambda news: on_due(DueHalf(read(OpenHalf, news.half), batch_of(news.batch))))
        await self._await_tracked(self._long_calls, call, due)
        raise Unavailable(f"{self._peer} ended the call")

    async def find_offset(self, topic_id: int, queue_id: int, stored_at_ms: int) -> int:
        """The first offset in a queue that was stored at or after `stored_at_ms`."""
        request = pb.FindOffsetRequest(topic_id=topic_id, queue_id=queue_id, stored_at_ms=stored_at_ms)
        return (await self._repeat(lambda stub: stub.FindOffset, request)).offset

    async def find_messages(
        self, topic_id: int, *, key: str, message_id: str, begin_ms: int, end_ms: int, limit: int
    ) -> list[MessagePlace]:
        """The locations of messages with a key, or with an id that the producer chose; newest first.

        `end_ms` 0 = no end, `limit` 0 = 32. Errors: NotFound, Invalid, Unavailable if the enode has no index.
        """
        request = pb.FindMessagesRequest(
            topic_id=topic_id, key=key, message_id=message_id, begin_ms=begin_ms, end_ms=end_ms, limit=limit
        )
        response = await self._call(lambda stub: stub.FindMessages, request, max(self._timeout_s, FIND_TIMEOUT_S))
        return [MessagePlace(one.queue_id, one.offset) for one in response.places]

    async def append_deduplicated(
        self, topic_id: int, queue_id: int, batch: SealedBatch, ids: Sequence[str]
    ) -> list[MessagePlace]:
        """Store messages, unless their dedup ids were stored within the deduplication window; returns all locations."""
        request = lives_pb.AppendDeduplicatedRequest(
            topic_id=topic_id, queue_id=queue_id, batch=encode_batch(batch), ids=ids
        )
        response = await self._call(lambda stub: stub.AppendDeduplicated, request)
        return [MessagePlace(one.queue_id, one.offset, one.duplicate) for one in response.places]

    async def use_mode(self, topic_id: int, group: str, mode: DeliveryMode) -> None:
        """Set the delivery mode of a group for a topic, if none is set. Errors: Conflict if another mode is set."""
        request = lives_pb.UseDeliveryModeRequest(topic_id=topic_id, group=group, mode=mode.value)  # type: ignore[arg-type]
        await self._repeat(lambda stub: stub.UseDeliveryMode, request)

    async def set_mode(self, topic_id: int, group: str, mode: DeliveryMode, *, force: bool) -> DeliveryMode | int:
        """Change the delivery mode of a group for a topic; returns the previous mode.

        A mode that this process does not know is returned as a number. Errors: Conflict while group members have
        messages or queues, unless `force` is set.
        """
        number: Any = mode.value
        request = lives_pb.SetStoredModeRequest(topic_id=topic_id, group=group, mode=number, force=force)
        response = await self._call(lambda stub: stub.SetStoredMode, request)
        return known_or(DeliveryMode, response.previous, response.previous)

    async def query_modes(self, group: str) -> list[tuple[int, DeliveryMode | int]]:
        """The delivery modes of a group by topic id. A mode that this process does not know stays a number."""
        response = await self._repeat(lambda stub: stub.QueryModes, lives_pb.QueryModesRequest(group=group))
        return [(one.topic_id, known_or(DeliveryMode, one.mode, one.mode)) for one in response.modes]

    async def store_schedule(self, schedule: StoredSchedule, *, replaces: bool) -> StoredSchedule:
        """Create or replace a schedule. Errors: AlreadyExists, Invalid, Overloaded."""
        request = schedules_pb.StoreScheduleRequest(schedule=encode_schedule(schedule), replace=replaces)
        return decode_schedule((await self._call(lambda stub: stub.StoreSchedule, request)).schedule)

    async def list_schedules(
        self, topic_id: int, name: str, limit: int, *, with_messages: bool = False
    ) -> list[StoredSchedule]:
        """Schedules, by topic and name. Topic id 0 means all topics, an empty name means all names."""
        request = schedules_pb.ListStoredSchedulesRequest(
            topic_id=topic_id, name=name, limit=limit, with_messages=with_messages
        )
        response = await self._repeat(lambda stub: stub.ListStoredSchedules, request)
        return list(map(decode_schedule, response.schedules))

    async def change_schedule(self, topic_id: int, name: str, change: ScheduleChange) -> None:
        """Suspend, resume or delete a schedule. Errors: NotFound."""
        number: Any = change.value
        request = schedules_pb.ChangeStoredScheduleRequest(topic_id=topic_id, name=name, change=number)
        await self._call(lambda stub: stub.ChangeStoredSchedule, request)
