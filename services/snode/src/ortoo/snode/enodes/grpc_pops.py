"""A snode's requests to an enode about pops: leases, their ends, retries and dead letters."""

from collections.abc import Awaitable, Sequence
from dataclasses import replace

from ortoo.common.groups.pop import (
    AwaitRequest,
    LeasePart,
    LeaseVerdict,
    Popped,
    PopRequest,
    Redeliver,
    ReplayRequest,
    RetryRequest,
    StaleMessage,
)
from ortoo.common.grpc.messages import write
from ortoo.snode.enodes.queue_deliveries import QueueDeliveries
from ortoo.snode.enodes.replica_link import ReplicaLink
from ortoo.snode.enodes.wire.pop_wire import (
    decode_deliveries,
    decode_popped,
    decode_stale,
    encode_pop,
    encode_replay,
    encode_retry,
    encode_settlement,
)
from ortoo.v1 import enode_pop_pb2 as pop_pb


class GrpcPopLink(ReplicaLink):
    """The part of the connection to an enode that pops use.

    Concurrency: all methods belong to one event loop. Any number of calls may run at once, in no order.
    Durability: a lease or a settlement that was answered is committed by the enode.
    Errors: those of the enode, and Unavailable promptly if it is unreachable, frozen or restarted.
    """

    async def pop(self, request: PopRequest) -> Popped:
        """Lease messages; waits up to `request.wait_ms` for the first one. Errors: NotFound, Overloaded."""
        deadline_s = self._clock.monotonic_s() + request.wait_ms / 1000

        def send(link: ReplicaLink) -> Awaitable[pop_pb.LeaseResponse]:
            wait_s = max(0.0, deadline_s - self._clock.monotonic_s())
            message = pop_pb.LeaseRequest(pop=encode_pop(replace(request, wait_ms=int(wait_s * 1000))))
            return link._send_lease(message, wait_s)

        # A repeated attempt gets the same messages.
        response = await self._call_leader(send, is_repeatable=True, poll_end_s=deadline_s)
        return decode_popped(response.popped)

    async def await_messages(self, request: AwaitRequest) -> bool:
        """Wait up to `request.wait_ms` until a pop may return messages; returns whether it may.

        Errors: NotFound, Conflict (another delivery mode), Overloaded, Unsupported from an enode of an older version.
        """
        message = write(pop_pb.AwaitMessagesRequest, request)
        end_s = self._clock.monotonic_s() + request.wait_ms / 1000
        return await self._call_leader(
            lambda link: link._awaits.send(message, wait_s=request.wait_ms / 1000), is_repeatable=True, poll_end_s=end_s
        )

    async def settle(
        self, topic_id: int, group: str, parts: Sequence[LeasePart], verdict: LeaseVerdict
    ) -> list[StaleMessage]:
        """Ack, nack, release or renew leased messages; returns the messages whose lease has ended."""
        request = encode_settlement(topic_id, group, parts, verdict)
        response = await self._call_leader(
            lambda link: link._send_lease(request), is_repeatable=not isinstance(verdict, Redeliver)
        )
        return decode_stale(response.settled)

    async def peek(self, request: PopRequest) -> Popped:
        """The messages that a pop would return, and the number of leased messages. The call leases nothing."""
        return decode_popped(await self._call(lambda stub: stub.PopQueues, encode_pop(request, peek=True)))

    async def retry_messages(self, request: RetryRequest) -> list[str]:
        """Copy messages to a group's retry topic; returns the ids of the copies."""
        response = await self._call(lambda stub: stub.RetryMessages, encode_retry(request))
        return list(response.message_ids)

    async def describe_deliveries(
        self, topic_id: int, group: str, queue_id: int, *, first: int, limit: int
    ) -> QueueDeliveries:
        """The delivery states of the messages of a queue from offset `first` on, at most `limit` messages."""
        request = pop_pb.DescribeDeliveriesRequest(
            topic_id=topic_id, group=group, queue_id=queue_id, from_offset=first, limit=limit
        )
        return decode_deliveries(await self._repeat(lambda stub: stub.DescribeDeliveries, request))

    async def replay(self, request: ReplayRequest) -> list[tuple[int, int]]:
        """Send dead letters again; returns their ranges. A dry run only returns the ranges that would be sent."""
        response = await self._call(lambda stub: stub.ReplayStored, encode_replay(request))
        return [(one.first_offset, one.count) for one in response.ranges]
