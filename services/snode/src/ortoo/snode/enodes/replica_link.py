"""The connection to an enode's leader: one stream each for appends, reads and leases."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import grpc

from ortoo.common.errors import NOT_ACCEPTED_FIELD, NotLeader, OrtooError, Unavailable, Unsupported
from ortoo.common.errors.status import cancellation_count, rpc_errors
from ortoo.common.grpc import bulk_calls
from ortoo.common.grpc.bulk_field import BulkMessage
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.snode.enodes.held_appends import RETRY_DELAY_MAX_S, RETRY_DELAY_MIN_S, HeldAppends
from ortoo.snode.enodes.link import AppendedBatch, FetchedBatches, LockKey
from ortoo.snode.enodes.request_stream import PEER_RETRY_S, PendingRequest, RequestStream
from ortoo.snode.enodes.wire.append_wire import decode_append_response, decode_fetch_response
from ortoo.snode.enodes.wire.pop_wire import check_lease_response, decode_await_response
from ortoo.v1 import enode_pb2 as pb
from ortoo.v1 import enode_pop_pb2 as pop_pb
from ortoo.v1.enode_pb2_grpc import EnodeServiceStub

Answer = TypeVar("Answer")
ATTACH_HEARTBEAT_S = 5.0
"""Interval between the heartbeats of a snode that is attached to an enode."""
HeldEnodeAppends = HeldAppends[BulkMessage, AppendedBatch]


class LeaderTracker(Protocol):
    """Tracks the current leaders of the enodes, and holds the requests that wait for a leader."""

    background: Background
    clock: Clock
    timeout_s: float
    in_flight_bytes_max: int

    def held_appends(self, enode: str) -> HeldEnodeAppends:
        """The appends that wait for the enode's next leader."""

    def redirect(self, enode: str, moved: NotLeader) -> "ReplicaLink":
        """The link to the leader that a replica reported (`moved`); the present link if that leader is not newer."""


class ReplicaLink:
    """The connection to the replica that leads an enode according to this snode."""

    def __init__(self, enode: str, address: str, epoch: int, channel: grpc.aio.Channel, leaders: LeaderTracker) -> None:
        """Connect when there is a request; `leaders` tracks later leaders."""
        self.address = address
        self.epoch = epoch
        self._enode = enode
        self._peer = f"enode {enode}"
        self._leaders = leaders
        self._stub = EnodeServiceStub(channel)
        self._clock = leaders.clock
        self._timeout_s = leaders.timeout_s
        self.opened_s = leaders.clock.monotonic_s()
        self._calls: dict[Any, None] = {}  # ordered, so that simulations end them deterministically
        self._long_calls: dict[Any, None] = {}
        """Calls that end with this link, because a leader that hangs does not end them."""
        self._closed_error: OrtooError | None = None
        self._held_appends = leaders.held_appends(enode)
        stream = partial(RequestStream[Any, Any, Any], self._peer, clock=leaders.clock, timeout_s=leaders.timeout_s)
        self.appends: RequestStream[BulkMessage, pb.AppendResponse, AppendedBatch] = stream(
            open_call=lambda: bulk_calls.append(channel),
            decode=decode_append_response,
            in_flight_bytes_max=leaders.in_flight_bytes_max,
            answers_all_accepted=True,
            on_moved=self._hold_append,
            may_redirect=epoch > 0,
        )
        self._fetches: RequestStream[pb.FetchBatchesRequest, BulkMessage, FetchedBatches] = stream(
            open_call=lambda: bulk_calls.fetch_batches(channel), decode=decode_fetch_response
        )
        self._leases: RequestStream[pop_pb.LeaseRequest, pop_pb.LeaseResponse, pop_pb.LeaseResponse] = stream(
            open_call=self._stub.Lease,
            decode=check_lease_response,
            answers_all_accepted=True,
            fails_late_singly=True,
            has_greeting=True,
        )
        self._awaits: RequestStream[pop_pb.AwaitMessagesRequest, pop_pb.AwaitMessagesResponse, bool] = stream(
            open_call=self._stub.AwaitMessages,
            decode=decode_await_response,
            answers_all_accepted=True,
            fails_late_singly=True,
            has_greeting=True,
        )
        self._unary_leases_until_s = 0.0
        """Until this time, pops and settlements are unary calls, because the enode's version has no stream."""
        self._lease_task = leaders.background.run_contained("leases", self._leases.run())
        self._stream_tasks = [
            leaders.background.run_contained("appends", self.appends.run()),
            leaders.background.run_contained("fetches", self._fetches.run()),
            leaders.background.run_contained("awaits", self._awaits.run()),
        ]

    def close(self, moved: NotLeader | None = None) -> OrtooError:
        """Close the streams of appends and reads; returns the error with which their requests in flight fail.

        Pops and settlements continue until `close_leases`. With `moved`, unsent appends wait for the new leader.
        """
        for task in self._stream_tasks:
            task.cancel()
        self._closed_error = closed_error = self.fail_reads()
        self.appends.fail_all(closed_error, moved)
        for call in [*self._calls, *self._long_calls]:
            call.cancel()
        return closed_error

    def close_leases(self) -> None:
        """Fail the pops and settlements in flight. Leases that the former leader grants before this call are valid."""
        self._lease_task.cancel()
        self._leases.close(self._make_closed_error())

    def fail_reads(self) -> OrtooError:
        """Fail the reads and waits in flight, so that their callers retry; returns their error."""
        closed_error = self._make_closed_error()
        self._fetches.fail_all(closed_error)
        self._awaits.fail_all(closed_error)
        return closed_error

    def _make_closed_error(self) -> Unavailable:
        return Unavailable(f"the link to {self._peer} was closed; the outcome is unknown, retry")

    @property
    def is_idle(self) -> bool:
        """Whether no request that may change state is in flight."""
        return self.appends.is_idle and self._leases.is_idle and not self._calls

    @property
    def connected(self) -> bool:
        """Whether any stream to the replica is connected."""
        return any(one.connected for one in (self.appends, self._fetches, self._leases, self._awaits))

    def _hold_append(self, item: PendingRequest[BulkMessage, AppendedBatch], moved: NotLeader) -> None:
        self._held_appends.add_moved(self.appends, item, moved)
        self._leaders.redirect(self._enode, moved)

    async def _send_lease(self, request: pop_pb.LeaseRequest, wait_s: float = 0.0) -> pop_pb.LeaseResponse:
        """Send a pop or a settlement to this replica. Errors: those of the enode, Unavailable as in RequestStream."""
        if self._clock.monotonic_s() >= self._unary_leases_until_s:
            try:
                return await self._leases.send(request, wait_s=wait_s)
            except Unsupported:
                if self._leases.connected:
                    raise  # the error is about this request alone
                self._unary_leases_until_s = self._clock.monotonic_s() + PEER_RETRY_S
        timeout_s = self._timeout_s + wait_s
        if request.WhichOneof("request") == "pop":
            return pop_pb.LeaseResponse(popped=await self._call_unary(self._stub.PopQueues, request.pop, timeout_s))
        return pop_pb.LeaseResponse(settled=await self._call_unary(self._stub.SettlePopped, request.settle, timeout_s))

    async def attach(self, snode: str, incarnation: str, on_freed: Callable[[Sequence[LockKey]], None]) -> None:
        """Keep the locks of this snode's incarnation, until the connection ends.

        `on_freed` gets the keys of locks that the enode refused earlier and that are free now. Errors: Unavailable when
        the connection broke.
        """
        call, heartbeat = self._stub.Attach(), pb.AttachRequest(snode=snode, incarnation=incarnation)

        async def send_heartbeats() -> None:
            while not call.done():
                with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # the reader gets the error
                    await call.write(heartbeat)
                await self._clock.sleep(ATTACH_HEARTBEAT_S)

        async def stay_attached() -> None:
            # With an iterator of requests, grpc.aio would use it for a while after the call has ended.
            async with Background("attach") as background:
                background.spawn("signs", send_heartbeats())
                await self._read_messages(
                    call, lambda news: on_freed([(k.group, k.topic_id, k.queue_id) for k in news.freed])
                )

        await self._await_tracked(self._long_calls, call, stay_attached())

    async def _call(
        self,
        method: Callable[[EnodeServiceStub], Callable[..., Awaitable[Answer]]],
        request: object,
        timeout_s: float | None = None,
        *,
        is_repeatable: bool = False,
    ) -> Answer:
        """Send a request to the leader. Errors: those of the enode, Unavailable on timeout."""
        return await self._call_leader(
            lambda link: link._call_unary(method(link._stub), request, timeout_s or self._timeout_s),
            is_repeatable=is_repeatable,
        )

    async def _repeat(
        self, method: Callable[[EnodeServiceStub], Callable[..., Awaitable[Answer]]], request: object
    ) -> Answer:
        """As `_call`, for a request whose second execution changes nothing."""
        return await self._call(method, request, is_repeatable=True)

    async def _call_leader(
        self,
        operation: "Callable[[ReplicaLink], Awaitable[Answer]]",
        *,
        is_repeatable: bool = False,
        poll_end_s: float | None = None,
    ) -> Answer:
        """The leader's answer. A replica that does not lead refuses without effect, so the next replica is asked.

        While no leader can be reached, the request waits for the timeout of requests. It is then sent again if it
        certainly had no effect, or if it `is_repeatable`: a second execution changes nothing. The wait of a poll begins
        with its first failure, and ends at `poll_end_s` at the latest.
        """
        link: ReplicaLink = self
        wait_s = RETRY_DELAY_MIN_S
        begun_s = None if poll_end_s is not None else self._clock.monotonic_s()
        while True:
            try:
                return await operation(link)
            except Unavailable as error:
                begun_s = self._clock.monotonic_s() if begun_s is None else begun_s
                deadline_s = begun_s + self._timeout_s
                failed = link
                if isinstance(error, NotLeader):
                    link = self._leaders.redirect(self._enode, error)
                    if link is not failed:
                        continue
                elif not is_repeatable and error.field != NOT_ACCEPTED_FIELD:
                    raise
                elif poll_end_s is not None:
                    deadline_s = min(deadline_s, poll_end_s)
                while link is failed:
                    if self._clock.monotonic_s() + wait_s >= deadline_s:
                        raise
                    await self._clock.sleep(wait_s)
                    link, wait_s = self._leaders.redirect(self._enode, NotLeader()), min(2 * wait_s, RETRY_DELAY_MAX_S)
                    if not isinstance(error, NotLeader) and link is failed and link._closed_error is not None:
                        raise  # no link replaces it
                    if not (isinstance(error, NotLeader) and error.epoch):
                        break  # no new leader is known: this replica may be about to lead, or to be back

    async def _call_unary(self, method: Callable[..., Awaitable[Answer]], request: object, timeout_s: float) -> Answer:
        with rpc_errors(self._peer, is_internal=True):
            call = method(request, timeout=timeout_s)
            return await self._await_tracked(self._calls, call, call)

    async def _read_messages(self, call: Any, on_message: Callable[[Any], None]) -> None:
        """Pass each message of an open call to `on_message`, until it ends.

        Errors: Unavailable when the connection broke.
        """
        try:
            with rpc_errors(self._peer, is_internal=True):
                async for message in call:
                    on_message(message)
        finally:
            call.cancel()

    async def _await_tracked(self, calls: dict[Any, None], call: Any, response: Awaitable[Answer]) -> Answer:
        """Wait for the answer of a call, which is in `calls` until then."""
        calls[call] = None
        try:
            return await response
        except asyncio.CancelledError:
            # Either this link was closed for a newer one, or the caller was cancelled.
            if self._closed_error is None or cancellation_count():
                raise
            raise self._closed_error from None
        finally:
            del calls[call]
