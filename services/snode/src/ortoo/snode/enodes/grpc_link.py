"""An enode's leader behind the wire: one stream each for appends, reads and leases, shared by all the snode does."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import grpc

from ortoo.common.errors import Moved, OrtooError, Unavailable, Unsupported
from ortoo.common.errors.status import cancellations, error_of, rpc_errors
from ortoo.common.groups.pop import LeasePart, Popped, PopWish, ReplayWish, SendBackWish, Stale, Verdict
from ortoo.common.grpc import bulk_calls
from ortoo.common.grpc.bulk_field import Bulky
from ortoo.common.grpc.fields import read, write
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.snode.cluster.routes import DeliveryMode
from ortoo.snode.cluster.wire import batch_to
from ortoo.snode.enodes.append_wire import append_to, appended_of, fetched_of
from ortoo.snode.enodes.attaching import hear_halves, stay_attached
from ortoo.snode.enodes.link import (
    Appended,
    DelayedEntry,
    DueHalf,
    Fetched,
    FetchWish,
    FlushMode,
    HalfVerdict,
    IdentifiedPlace,
    LockAnswer,
    LockKey,
    LockRequest,
    MessagePlace,
    OffsetRow,
    OpenHalf,
    QueueRange,
    VerdictSource,
)
from ortoo.snode.enodes.moving import FIRST_WAIT_S, LONGEST_WAIT_S, HeldAppends
from ortoo.snode.enodes.pop_wire import ended_of, popped_of, replay_to, send_back_to, settlement_to, stale_of, wish_to
from ortoo.snode.enodes.request_stream import LEFT_ALONE_S, Pending, RequestStream
from ortoo.v1 import enode_deferred_pb2 as deferred_pb
from ortoo.v1 import enode_lives_pb2 as lives_pb
from ortoo.v1 import enode_pb2 as pb
from ortoo.v1 import enode_pop_pb2 as pop_pb
from ortoo.v1.enode_pb2_grpc import EnodeServiceStub

Answer = TypeVar("Answer")
Held = HeldAppends[Bulky, Appended]
FIND_TIMEOUT_S = 30.0
"""A search may have to wait for its process to start and for the index to catch up."""


class Leaders(Protocol):
    """Who leads the enodes, and what waits for that."""

    clock: Clock
    timeout_s: float
    in_flight_bytes_max: int

    def held(self, enode: str) -> Held:
        """The appends that wait for the enode's next leader."""

    def learn(self, enode: str, moved: Moved) -> "GrpcEnodeLink":
        """Whom to ask after a member said that another one leads; the one that is asked already, if nobody knows."""


class GrpcEnodeLink:
    """One enode, as one of its members leads it."""

    def __init__(self, enode: str, address: str, epoch: int, channel: grpc.aio.Channel, leaders: Leaders) -> None:
        """`leaders` knows who leads later."""
        self.address = address
        self.epoch = epoch
        self._enode = enode
        self._peer = f"enode {enode}"
        self._leaders = leaders
        self._stub = EnodeServiceStub(channel)
        self._clock = leaders.clock
        self._timeout_s = leaders.timeout_s
        self.opened_s = leaders.clock.monotonic_s()
        self._tasks: list[asyncio.Task[Any]] = []
        self._calls: set[Any] = set()
        self._conversations: set[Any] = set()
        """Calls that end with this link: a leader that hangs does not end them."""
        self._gone: OrtooError | None = None
        self._held = leaders.held(enode)
        stream = partial(RequestStream[Any, Any, Any], self._peer, clock=leaders.clock, timeout_s=leaders.timeout_s)
        self.appends: RequestStream[Bulky, pb.AppendResponse, Appended] = stream(
            open_call=lambda: bulk_calls.append(channel),
            decode=appended_of,
            in_flight_bytes_max=leaders.in_flight_bytes_max,
            answers_all_it_took=True,
            moved=self._hold,
            may_move=epoch > 0,
        )
        self._fetches: RequestStream[pb.FetchBatchesRequest, Bulky, Fetched] = stream(
            open_call=lambda: bulk_calls.fetch_batches(channel), decode=fetched_of
        )
        self._leases: RequestStream[pop_pb.LeaseRequest, pop_pb.LeaseResponse, pop_pb.LeaseResponse] = stream(
            open_call=self._stub.Lease,
            decode=ended_of,
            answers_all_it_took=True,
            late_fail_alone=True,
            greets=True,
        )
        self._lease_calls_until_s = 0.0
        """Until then pops and settlements are a call each: the process is of a version that has no stream for them."""

    def start(self, background: Background) -> None:
        """Begin to talk when there is something to say."""
        self._tasks = [
            background.contained("leases", self._leases.run()),
            background.contained("appends", self.appends.run()),
            background.contained("fetches", self._fetches.run()),
        ]

    def close(self, moved: Moved | None = None) -> OrtooError:
        """Stop; what is on its way fails with the error returned, pops and settlements when `break_off` is called.

        When the enode has `moved`, what was not sent waits for its leader.
        """
        for task in self._tasks[1:]:
            task.cancel()
        self._gone = gone = self.fail_reads()
        self.appends.fail_all(gone, moved)
        for call in [*self._calls, *self._conversations]:
            call.cancel()
        return gone

    def break_off(self) -> None:
        """Wait no longer for answers about leases. Who led until a moment ago has leased what it answers."""
        self._tasks[0].cancel()
        self._leases.close(self._closing())

    def fail_reads(self) -> OrtooError:
        """Let those ask anew who wait for messages here; the error that they get."""
        self._fetches.fail_all(gone := self._closing())
        return gone

    def _closing(self) -> Unavailable:
        return Unavailable(f"the link to {self._peer} was closed; the outcome is unknown, retry")

    @property
    def is_idle(self) -> bool:
        """Whether nothing that may change something is on its way."""
        return self.appends.is_idle and self._leases.is_idle and not self._calls

    @property
    def connected(self) -> bool:
        """Whether a stream to it works right now."""
        return self.appends.connected or self._fetches.connected or self._leases.connected

    def _hold(self, item: Pending[Bulky, Appended], moved: Moved) -> None:
        self._held.moved(self.appends, item, moved)
        self._leaders.learn(self._enode, moved)

    def append(
        self, topic_id: int, queue_id: int, batch: SealedBatch, flush_mode: FlushMode = FlushMode.DEFAULT
    ) -> asyncio.Future[Appended]:
        """Send one batch behind those sent before."""
        bulky, size_bytes = append_to(topic_id, queue_id, batch, flush_mode), len(batch.records)
        if self._held.is_holding:
            return self._held.add(bulky, size_bytes)
        return self.appends.send(bulky, size_bytes=size_bytes)

    async def fetch(self, wish: FetchWish) -> Fetched:
        """Read whole batches, or what of them is wanted."""
        pushed = wish.pushdown and write(pb.Pushdown, wish.pushdown, columns=sorted(wish.pushdown.columns))
        request = write(pb.FetchBatchesRequest, wish, pushdown=pushed)
        if wish.any_member:  # whoever leads: this one is asked
            return await self._fetches.send_if_there(request)
        return await self._led(lambda link: link._fetches.send(request, wait_s=wish.wait_ms / 1000))

    async def commit_rows(
        self, topic_id: int, group: str, rows: Sequence[OffsetRow], *, reset: bool = False
    ) -> list[int]:
        """Store a group's offsets, each under its own generation."""
        request = pb.CommitOffsetsRequest(
            topic_id=topic_id,
            group=group,
            offsets=[pb.QueueOffset(queue_id=q, offset=o, generation=g) for q, o, g in rows],
            reset=reset,
        )
        answer = await self._call(lambda stub: stub.CommitOffsets, request)
        return list(answer.fenced_queue_ids)

    async def offset_groups(self, topic_id: int) -> list[str]:
        """The groups that have an offset in a topic."""
        request = pb.QueryOffsetGroupsRequest(topic_id=topic_id)
        return list((await self._call(lambda stub: stub.QueryOffsetGroups, request)).groups)

    async def take_locks(self, incarnation: str, wishes: Sequence[LockRequest]) -> list[LockAnswer]:
        """Take or renew locks."""
        request = pb.TakeLocksRequest(incarnation=incarnation, wishes=[write(pb.LockWish, one) for one in wishes])
        answer = await self._call(lambda stub: stub.TakeLocks, request)
        return [
            read(LockAnswer, one, error=error_of(one.failure) if one.HasField("failure") else None)
            for one in answer.answers
        ]

    async def release_locks(self, wishes: Sequence[LockRequest]) -> list[bool]:
        """Give locks back."""
        request = pb.ReleaseLocksRequest(wishes=[write(pb.LockWish, one) for one in wishes])
        return list((await self._call(lambda stub: stub.ReleaseLocks, request)).released)

    async def attach(self, snode: str, incarnation: str, freed: Callable[[Sequence[LockKey]], None]) -> None:
        """Be there for the enode until the connection breaks."""
        sign = pb.AttachRequest(snode=snode, incarnation=incarnation)
        call = self._stub.Attach()
        await self._over(self._conversations, call, stay_attached(call, self._peer, sign, freed, self._clock))

    async def query_offsets(self, topic_id: int, group: str, queue_ids: Iterable[int] = ()) -> dict[int, int]:
        """A group's offsets."""
        request = pb.QueryOffsetsRequest(topic_id=topic_id, group=group, queue_ids=queue_ids)
        answer = await self._call(lambda stub: stub.QueryOffsets, request)
        return {item.queue_id: item.offset for item in answer.offsets}

    async def describe_queues(self, topic_id: int) -> list[QueueRange]:
        """What each queue of a topic holds."""
        answer = await self._call(lambda stub: stub.DescribeQueues, pb.DescribeQueuesRequest(topic_id=topic_id))
        return [QueueRange(q.queue_id, q.begin_offset, q.end_offset) for q in answer.queues]

    async def recall_delayed(self, topic_id: int, timer_id: int, deliver_at_ms: int) -> None:
        """Forget a delayed message."""
        request = deferred_pb.RecallDelayedRequest(topic_id=topic_id, timer_id=timer_id, deliver_at_ms=deliver_at_ms)
        await self._call(lambda stub: stub.RecallDelayed, request)

    async def list_delayed(self, topic_id: int, from_ms: int, limit: int) -> list[DelayedEntry]:
        """The delayed messages of a topic, by time."""
        request = deferred_pb.ListDelayedRequest(topic_id=topic_id, from_ms=from_ms, limit=limit)
        answer = await self._call(lambda stub: stub.ListDelayed, request)
        return [read(DelayedEntry, one) for one in answer.entries]

    async def store_half(
        self, topic_id: int, queue_id: int, batch: SealedBatch, producer_group: str, check_after_ms: int, key: int
    ) -> int:
        """Begin a transaction."""
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
        """End a transaction."""
        request = deferred_pb.SettleHalfRequest(
            topic_id=topic_id,
            number=number,
            verdict=verdict.value,  # type: ignore[arg-type]
            source=source.value,  # type: ignore[arg-type]
        )
        await self._call(lambda stub: stub.SettleHalf, request)

    async def list_halves(self, topic_id: int, producer_group: str, *, parked_only: bool, limit: int) -> list[OpenHalf]:
        """Open transactions, the oldest first."""
        request = deferred_pb.ListHalvesRequest(
            topic_id=topic_id, producer_group=producer_group, parked_only=parked_only, limit=limit
        )
        answer = await self._call(lambda stub: stub.ListHalves, request)
        return [read(OpenHalf, one) for one in answer.halves]

    async def resume_half(self, topic_id: int, number: int) -> None:
        """Check a parked transaction again."""
        await self._call(lambda stub: stub.ResumeHalf, deferred_pb.ResumeHalfRequest(topic_id=topic_id, number=number))

    async def watch_halves(self, producer_groups: Iterable[str], heard: Callable[[DueHalf], None]) -> None:
        """Hear of transactions that are due to be checked."""
        asked = deferred_pb.WatchHalvesRequest(producer_groups=producer_groups)
        call = self._stub.WatchHalves(asked)
        await self._over(self._conversations, call, hear_halves(call, self._peer, heard))

    async def find_offset(self, topic_id: int, queue_id: int, stored_at_ms: int) -> int:
        """The first offset stored at or after a time."""
        request = pb.FindOffsetRequest(topic_id=topic_id, queue_id=queue_id, stored_at_ms=stored_at_ms)
        return (await self._call(lambda stub: stub.FindOffset, request)).offset

    async def find_messages(
        self, topic_id: int, *, key: str, message_id: str, begin_ms: int, end_ms: int, limit: int
    ) -> list[MessagePlace]:
        """Where messages with a key, or with an id of their producer's, lie."""
        request = pb.FindMessagesRequest(
            topic_id=topic_id, key=key, message_id=message_id, begin_ms=begin_ms, end_ms=end_ms, limit=limit
        )
        answer = await self._call(lambda stub: stub.FindMessages, request, max(self._timeout_s, FIND_TIMEOUT_S))
        return [MessagePlace(one.queue_id, one.offset, one.stored_at_ms) for one in answer.places]

    async def pop(self, wish: PopWish) -> Popped:
        """Lease messages; wait for the first one as the wish says."""
        request = pop_pb.LeaseRequest(pop=wish_to(wish))
        answer = await self._led(lambda link: link._lease(request, wish.wait_ms / 1000))
        return popped_of(answer.popped)

    async def settle(self, topic_id: int, group: str, parts: Sequence[LeasePart], verdict: Verdict) -> list[Stale]:
        """Say what becomes of leased messages."""
        request = pop_pb.LeaseRequest(settle=settlement_to(topic_id, group, parts, verdict))
        return stale_of((await self._led(lambda link: link._lease(request))).settled)

    async def peek(self, wish: PopWish) -> Popped:
        """What a pop would bring, and what consumers have."""
        return popped_of(await self._call(lambda stub: stub.PopQueues, wish_to(wish, peek=True)))

    async def send_back(self, wish: SendBackWish) -> list[str]:
        """Copy messages to a group's retry topic."""
        answer = await self._call(lambda stub: stub.SendBackMessages, send_back_to(wish))
        return list(answer.message_ids)

    async def replay(self, wish: ReplayWish) -> list[tuple[int, int]]:
        """Send dead letters again."""
        answer = await self._call(lambda stub: stub.ReplayStored, replay_to(wish))
        return [(one.first_offset, one.count) for one in answer.ranges]

    async def append_identified(
        self, topic_id: int, queue_id: int, batch: SealedBatch, ids: Sequence[str]
    ) -> list[IdentifiedPlace]:
        """Store messages with ids of the application's."""
        request = lives_pb.AppendIdentifiedRequest(topic_id=topic_id, queue_id=queue_id, batch=batch_to(batch), ids=ids)
        answer = await self._call(lambda stub: stub.AppendIdentified, request)
        return [IdentifiedPlace(one.queue_id, one.offset, one.stored_at_ms, one.duplicate) for one in answer.places]

    async def use_mode(self, topic_id: int, group: str, mode: DeliveryMode) -> None:
        """A group consumes a topic this way."""
        request = lives_pb.UseDeliveryModeRequest(topic_id=topic_id, group=group, mode=mode.value)  # type: ignore[arg-type]
        await self._call(lambda stub: stub.UseDeliveryMode, request)

    async def set_mode(self, topic_id: int, group: str, mode: DeliveryMode, *, force: bool) -> DeliveryMode:
        """Change how a group consumes a topic."""
        number: Any = mode.value
        request = lives_pb.SetStoredModeRequest(topic_id=topic_id, group=group, mode=number, force=force)
        answer = await self._call(lambda stub: stub.SetStoredMode, request)
        return DeliveryMode(answer.before)

    async def modes(self, group: str) -> list[tuple[int, DeliveryMode]]:
        """How a group consumes topics."""
        answer = await self._call(lambda stub: stub.QueryModes, lives_pb.QueryModesRequest(group=group))
        return [(one.topic_id, DeliveryMode(one.mode)) for one in answer.modes]

    async def _lease(self, request: pop_pb.LeaseRequest, wait_s: float = 0.0) -> pop_pb.LeaseResponse:
        """Ask this process. Errors: as the enode says; Unavailable, as RequestStream says."""
        if self._clock.monotonic_s() >= self._lease_calls_until_s:
            try:
                return await self._leases.send(request, wait_s=wait_s)
            except Unsupported:
                if self._leases.connected:
                    raise  # it is about this request alone
                self._lease_calls_until_s = self._clock.monotonic_s() + LEFT_ALONE_S
        timeout_s = self._timeout_s + wait_s
        if request.WhichOneof("asked") == "pop":
            return pop_pb.LeaseResponse(popped=await self._ask(self._stub.PopQueues, request.pop, timeout_s))
        return pop_pb.LeaseResponse(settled=await self._ask(self._stub.SettlePopped, request.settle, timeout_s))

    async def _call(
        self,
        method: Callable[[EnodeServiceStub], Callable[..., Awaitable[Answer]]],
        request: object,
        timeout_s: float | None = None,
    ) -> Answer:
        """Ask who leads, once. Errors: as the enode says; Unavailable when it does not answer within its time."""
        return await self._led(lambda link: link._ask(method(link._stub), request, timeout_s or self._timeout_s))

    async def _led(self, asked: "Callable[[GrpcEnodeLink], Awaitable[Answer]]") -> Answer:
        """What the leader answers. A member that does not lead did nothing of it, so the next one may be asked."""
        link, wait_s = self, FIRST_WAIT_S
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
                    if not moved.epoch:  # it is not said that another one leads: this one may be about to
                        break

    async def _ask(self, method: Callable[..., Awaitable[Answer]], request: object, timeout_s: float) -> Answer:
        with rpc_errors(self._peer, within=True):
            call = method(request, timeout=timeout_s)
            return await self._over(self._calls, call, call)

    async def _over(self, calls: set[Any], call: Any, answer: Awaitable[Answer]) -> Answer:
        """What comes of a call that is one of `calls` meanwhile."""
        calls.add(call)
        try:
            return await answer
        except asyncio.CancelledError:
            # This link was closed, for a newer one; or whoever asks was cancelled.
            if self._gone is None or cancellations():
                raise
            raise self._gone from None
        finally:
            calls.discard(call)
