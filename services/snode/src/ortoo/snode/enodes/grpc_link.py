"""All requests of a snode to an enode, sent to its current leader."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import grpc

from ortoo.common.errors import Moved, Unavailable
from ortoo.common.errors.status import error_of
from ortoo.common.groups.pop import LeasePart, Popped, PopWish, ReplayWish, SendBackWish, Stale, Verdict
from ortoo.common.grpc.bulk_calls import batch_of
from ortoo.common.grpc.messages import read, write
from ortoo.common.process.background import Background
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.snode.cluster.routes import DeliveryMode
from ortoo.snode.cluster.wire import batch_to
from ortoo.snode.enodes.append_wire import append_to
from ortoo.snode.enodes.link import (
    Appended,
    DelayedEntry,
    DueHalf,
    Fetched,
    FetchWish,
    FlushMode,
    HalfVerdict,
    LockAnswer,
    LockKey,
    LockRequest,
    MessagePlace,
    OffsetRow,
    OpenHalf,
    QueueRange,
    VerdictSource,
)
from ortoo.snode.enodes.replica_link import Answer, MemberLink
from ortoo.snode.enodes.held_appends import FIRST_WAIT_S, LONGEST_WAIT_S
from ortoo.snode.enodes.pop_wire import popped_of, replay_to, send_back_to, settlement_to, stale_of, wish_to
from ortoo.v1 import enode_deferred_pb2 as deferred_pb
from ortoo.v1 import enode_lives_pb2 as lives_pb
from ortoo.v1 import enode_pb2 as pb
from ortoo.v1 import enode_pop_pb2 as pop_pb
from ortoo.v1.enode_pb2_grpc import EnodeServiceStub

ATTACH_INTERVAL_S = 5.0
"""Interval in which the snode signals to an enode that it is attached."""
FIND_TIMEOUT_S = 30.0
"""A search may have to wait for its process to start and for the index to catch up."""


class GrpcEnodeLink(MemberLink):
    """One enode. Every call fails promptly with Unavailable if the enode is unreachable, frozen or has restarted."""

    def append(
        self, topic_id: int, queue_id: int, batch: SealedBatch, flush_mode: FlushMode = FlushMode.DEFAULT
    ) -> asyncio.Future[Appended]:
        """Send one batch. Batches of one queue are stored in the order of the calls.

        For a delayed batch the answer has the first message's timer id instead of an offset.

        Errors: those of the enode's store, Overloaded at once if too many bytes are in flight.
        """
        bulky, size_bytes = append_to(topic_id, queue_id, batch, flush_mode), len(batch.records)
        if self._held.is_holding:
            return self._held.add(bulky, size_bytes)
        return self.appends.send(bulky, size_bytes=size_bytes)

    async def fetch(self, wish: FetchWish) -> Fetched:
        """Read whole batches, or their matching parts.

        Errors: NotFound, OutOfRange, DataLoss, Fenced if the group's lock has a newer generation.
        """
        pushed = wish.pushdown and write(pb.Pushdown, wish.pushdown, columns=sorted(wish.pushdown.columns))
        request = write(pb.FetchBatchesRequest, wish, pushdown=pushed)
        if wish.any_member:  # this replica itself, leader or not
            return await self._fetches.send_if_there(request)
        return await self._led(lambda link: link._fetches.send(request, wait_s=wish.wait_ms / 1000))

    async def commit_rows(
        self, topic_id: int, group: str, rows: Sequence[OffsetRow], *, reset: bool = False
    ) -> list[int]:
        """Store a group's offsets, each with its generation; returns the queues whose generation was too old.

        `reset` is an operator's order and fences the holders of the locks. Errors: Fenced if all were too old.
        """
        request = pb.CommitOffsetsRequest(
            topic_id=topic_id,
            group=group,
            offsets=[pb.QueueOffset(queue_id=q, offset=o, generation=g) for q, o, g in rows],
            reset=reset,
        )
        answer = await self._call(lambda stub: stub.CommitOffsets, request)
        return list(answer.fenced_queue_ids)

    async def offset_groups(self, topic_id: int) -> list[str]:
        """The groups that have an offset in a topic, by name."""
        request = pb.QueryOffsetGroupsRequest(topic_id=topic_id)
        return list((await self._call(lambda stub: stub.QueryOffsetGroups, request)).groups)

    async def take_locks(self, incarnation: str, wishes: Sequence[LockRequest]) -> list[LockAnswer]:
        """Take or renew locks, one answer each. With an incarnation they live while that is attached."""
        request = pb.TakeLocksRequest(incarnation=incarnation, wishes=[write(pb.LockWish, one) for one in wishes])
        answer = await self._call(lambda stub: stub.TakeLocks, request)
        return [
            read(LockAnswer, one, error=error_of(one.failure) if one.HasField("failure") else None)
            for one in answer.answers
        ]

    async def release_locks(self, wishes: Sequence[LockRequest]) -> list[bool]:
        """Release locks; returns for each whether its session held it."""
        request = pb.ReleaseLocksRequest(wishes=[write(pb.LockWish, one) for one in wishes])
        return list((await self._call(lambda stub: stub.ReleaseLocks, request)).released)

    async def attach(self, snode: str, incarnation: str, freed: Callable[[Sequence[LockKey]], None]) -> None:
        """Stay attached to the enode until the call ends; `freed` receives refused locks that are free now.

        Errors: Unavailable when the connection broke.
        """
        call, sign = self._stub.Attach(), pb.AttachRequest(snode=snode, incarnation=incarnation)

        async def signs() -> None:
            while not call.done():
                with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # the reader gets the error
                    await call.write(sign)
                await self._clock.sleep(ATTACH_INTERVAL_S)

        async def stay() -> None:
            # With an iterator of requests, grpc.aio would use it for a while after the call has ended.
            async with Background("attach") as background:
                background.spawn("signs", signs())
                await self._hear(call, lambda news: freed([(k.group, k.topic_id, k.queue_id) for k in news.freed]))

        await self._over(self._conversations, call, stay())

    async def query_offsets(self, topic_id: int, group: str, queue_ids: Iterable[int] = ()) -> dict[int, int]:
        """A group's offsets; queues without one are absent."""
        request = pb.QueryOffsetsRequest(topic_id=topic_id, group=group, queue_ids=queue_ids)
        answer = await self._call(lambda stub: stub.QueryOffsets, request)
        return {item.queue_id: item.offset for item in answer.offsets}

    async def describe_queues(self, topic_id: int) -> list[QueueRange]:
        """The stored range of each queue of a topic."""
        answer = await self._call(lambda stub: stub.DescribeQueues, pb.DescribeQueuesRequest(topic_id=topic_id))
        return [QueueRange(q.queue_id, q.begin_offset, q.end_offset) for q in answer.queues]

    async def recall_delayed(self, topic_id: int, timer_id: int, deliver_at_ms: int) -> None:
        """Delete a delayed message. Errors: NotFound if it is not waiting, Conflict while it is being delivered."""
        request = deferred_pb.RecallDelayedRequest(topic_id=topic_id, timer_id=timer_id, deliver_at_ms=deliver_at_ms)
        await self._call(lambda stub: stub.RecallDelayed, request)

    async def list_delayed(self, topic_id: int, from_ms: int, limit: int) -> list[DelayedEntry]:
        """The delayed messages of a topic that are due from `from_ms` on, by time."""
        request = deferred_pb.ListDelayedRequest(topic_id=topic_id, from_ms=from_ms, limit=limit)
        answer = await self._call(lambda stub: stub.ListDelayed, request)
        return [read(DelayedEntry, one) for one in answer.entries]

    async def store_half(
        self, topic_id: int, queue_id: int, batch: SealedBatch, producer_group: str, check_after_ms: int, key: int
    ) -> int:
        """Begin a transaction and return its number; the same key (not 0) again gives the same transaction."""
        request = deferred_pb.StoreHalfRequest(
            topic_id=topic_id,
            queue_id=queue_id,
            batch=batch_to(batch),
            producer_group=producer_group,
            check_after_ms=check_after_ms,
            key=key,
        )
        return (await self._call(lambda stub: stub.StoreHalf, request)).number

    async def settle_half(self, topic_id: int, number: int, verdict: HalfVerdict, source: VerdictSource) -> None:
        """End a transaction. Errors: NotFound, Conflict if it ended with another verdict."""
        request = deferred_pb.SettleHalfRequest(
            topic_id=topic_id,
            number=number,
            verdict=verdict.value,  # type: ignore[arg-type]
            source=source.value,  # type: ignore[arg-type]
        )
        await self._call(lambda stub: stub.SettleHalf, request)

    async def list_halves(self, topic_id: int, producer_group: str, *, parked_only: bool, limit: int) -> list[OpenHalf]:
        """Open transactions, the oldest first; topic 0 and the empty group mean any."""
        request = deferred_pb.ListHalvesRequest(
            topic_id=topic_id, producer_group=producer_group, parked_only=parked_only, limit=limit
        )
        answer = await self._call(lambda stub: stub.ListHalves, request)
        return [read(OpenHalf, one) for one in answer.halves]

    async def resume_half(self, topic_id: int, number: int) -> None:
        """Check a parked transaction again. Errors: NotFound, Conflict."""
        await self._call(lambda stub: stub.ResumeHalf, deferred_pb.ResumeHalfRequest(topic_id=topic_id, number=number))

    async def watch_halves(self, producer_groups: Iterable[str], heard: Callable[[DueHalf], None]) -> None:
        """Receive transactions that are due for a check, until the connection ends. Errors: Unavailable."""
        call = self._stub.WatchHalves(deferred_pb.WatchHalvesRequest(producer_groups=producer_groups))
        due = self._hear(call, lambda news: heard(DueHalf(read(OpenHalf, news.half), batch_of(news.batch))))
        await self._over(self._conversations, call, due)
        raise Unavailable(f"{self._peer} ended the call")

    async def find_offset(self, topic_id: int, queue_id: int, stored_at_ms: int) -> int:
        """The first offset stored at or after a time."""
        request = pb.FindOffsetRequest(topic_id=topic_id, queue_id=queue_id, stored_at_ms=stored_at_ms)
        return (await self._call(lambda stub: stub.FindOffset, request)).offset

    async def find_messages(
        self, topic_id: int, *, key: str, message_id: str, begin_ms: int, end_ms: int, limit: int
    ) -> list[MessagePlace]:
        """The locations of messages with a key or a producer's id, newest first.

        `end_ms` 0 = no end, `limit` 0 = 32. Errors: NotFound, Invalid, Unavailable if the enode has no index.
        """
        request = pb.FindMessagesRequest(
            topic_id=topic_id, key=key, message_id=message_id, begin_ms=begin_ms, end_ms=end_ms, limit=limit
        )
        answer = await self._call(lambda stub: stub.FindMessages, request, max(self._timeout_s, FIND_TIMEOUT_S))
        return [MessagePlace(one.queue_id, one.offset) for one in answer.places]

    async def pop(self, wish: PopWish) -> Popped:
        """Lease messages; waits for the first one for `wish.wait_ms`. Errors: NotFound, Overloaded."""
        request = pop_pb.LeaseRequest(pop=wish_to(wish))
        answer = await self._led(lambda link: link._lease(request, wish.wait_ms / 1000))
        return popped_of(answer.popped)

    async def settle(self, topic_id: int, group: str, parts: Sequence[LeasePart], verdict: Verdict) -> list[Stale]:
        """Ack, nack, release or renew leased messages; returns those that their lease no longer has."""
        request = pop_pb.LeaseRequest(settle=settlement_to(topic_id, group, parts, verdict))
        return stale_of((await self._led(lambda link: link._lease(request))).settled)

    async def peek(self, wish: PopWish) -> Popped:
        """The messages that a pop would return, and the number that consumers have; changes nothing."""
        return popped_of(await self._call(lambda stub: stub.PopQueues, wish_to(wish, peek=True)))

    async def send_back(self, wish: SendBackWish) -> list[str]:
        """Copy messages to a group's retry topic; returns their ids."""
        answer = await self._call(lambda stub: stub.SendBackMessages, send_back_to(wish))
        return list(answer.message_ids)

    async def replay(self, wish: ReplayWish) -> list[tuple[int, int]]:
        """Replay dead letters; returns the ranges that were sent now, or would be in a dry run."""
        answer = await self._call(lambda stub: stub.ReplayStored, replay_to(wish))
        return [(one.first_offset, one.count) for one in answer.ranges]

    async def append_identified(
        self, topic_id: int, queue_id: int, batch: SealedBatch, ids: Sequence[str]
    ) -> list[MessagePlace]:
        """Store messages with ids of the application, each once within the window; returns their locations."""
        request = lives_pb.AppendIdentifiedRequest(topic_id=topic_id, queue_id=queue_id, batch=batch_to(batch), ids=ids)
        answer = await self._call(lambda stub: stub.AppendIdentified, request)
        return [MessagePlace(one.queue_id, one.offset, one.duplicate) for one in answer.places]

    async def use_mode(self, topic_id: int, group: str, mode: DeliveryMode) -> None:
        """Set how a group consumes a topic, unless it is set. Errors: Conflict if it consumes in another mode."""
        request = lives_pb.UseDeliveryModeRequest(topic_id=topic_id, group=group, mode=mode.value)  # type: ignore[arg-type]
        await self._call(lambda stub: stub.UseDeliveryMode, request)

    async def set_mode(self, topic_id: int, group: str, mode: DeliveryMode, *, force: bool) -> DeliveryMode:
        """Change how a group consumes a topic; returns the previous mode. Errors: Conflict while members are active."""
        number: Any = mode.value
        request = lives_pb.SetStoredModeRequest(topic_id=topic_id, group=group, mode=number, force=force)
        answer = await self._call(lambda stub: stub.SetStoredMode, request)
        return DeliveryMode(answer.before)

    async def modes(self, group: str) -> list[tuple[int, DeliveryMode]]:
        """How a group consumes topics: topic id and mode."""
        answer = await self._call(lambda stub: stub.QueryModes, lives_pb.QueryModesRequest(group=group))
        return [(one.topic_id, DeliveryMode(one.mode)) for one in answer.modes]

    async def _call(
        self,
        method: Callable[[EnodeServiceStub], Callable[..., Awaitable[Answer]]],
        request: object,
        timeout_s: float | None = None,
    ) -> Answer:
        """Send a request to the leader, once. Errors: those of the enode, Unavailable on timeout."""
        return await self._led(lambda link: link._ask(method(link._stub), request, timeout_s or self._timeout_s))

    async def _led(self, asked: Callable[[MemberLink], Awaitable[Answer]]) -> Answer:
        """The leader's answer. A replica that does not lead refuses without effect, so the next one may be asked."""
        link: MemberLink = self
        wait_s = FIRST_WAIT_S
        deadline_s = self._clock.monotonic_s() + self._timeout_s
        while True:
            try:
                return await asked(link)
            except Moved as moved:
                before, link = link, self._leaders.learn(self._enode, moved)
                while link is before:
                    if self._clock.monotonic_s() + wait_s >= deadline_s:
                        raise
                    await self._clock.sleep(wait_s)
                    link, wait_s = self._leaders.learn(self._enode, Moved()), min(2 * wait_s, LONGEST_WAIT_S)
                    if not moved.epoch:  # no new leader is known: this replica may be about to lead
                        break
