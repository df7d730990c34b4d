"""EnodeService: one method a line, each handed to the module that is about it."""

from collections.abc import AsyncIterator
from typing import Any

from ortoo.common.grpc import bulk_calls
from ortoo.common.grpc.bulk_field import Bulky
from ortoo.common.grpc.errors import Context
from ortoo.enode.cluster.topic_copies import TopicCopies
from ortoo.enode.deferred.identified import IdentifiedIntake
from ortoo.enode.deferred.intake import Intake
from ortoo.enode.pops.leasing import Leasing
from ortoo.enode.pops.sending_back import SendingBack
from ortoo.enode.rpc.delayed import list_delayed, recall_delayed
from ortoo.enode.rpc.describe import describe_queues, describe_store
from ortoo.enode.rpc.find import find_messages
from ortoo.enode.rpc.halves import CheckStream, list_halves, settle_half, store_half
from ortoo.enode.rpc.lives import append_identified, query_modes, set_mode, use_mode
from ortoo.enode.rpc.locks import query_locks, release_locks, take_locks
from ortoo.enode.rpc.offsets import commit_offsets, find_offset, query_offset_groups, query_offsets
from ortoo.enode.rpc.pop import pop_queues, replay_stored, send_back, settle_popped
from ortoo.enode.rpc.streams.all import Streams
from ortoo.enode.rpc.streams.append import AppendStream
from ortoo.enode.rpc.streams.attach import AttachedSnodes, AttachStream
from ortoo.enode.rpc.streams.fetch import FetchStream
from ortoo.enode.store.store import Store
from ortoo.v1 import enode_deferred_pb2 as deferred_pb
from ortoo.v1 import enode_lives_pb2 as lives_pb
from ortoo.v1 import enode_pb2 as pb
from ortoo.v1 import enode_pop_pb2
from ortoo.v1.enode_pb2_grpc import EnodeServiceServicer, add_EnodeServiceServicer_to_server

NAME = "ortoo.v1.EnodeService"


class EnodeService(EnodeServiceServicer):
    """The storage of one enode, for snodes."""

    def __init__(
        self,
        store: Store,
        topics: TopicCopies,
        intake: Intake,
        identified: IdentifiedIntake,
        pops: Leasing,
        sending: SendingBack,
    ) -> None:
        self._identified = identified
        self._store = store
        self._topics = topics
        self._intake = intake
        self._pops = pops
        self._sending = sending
        self.attached = AttachedSnodes(store)
        self.streams: Streams

    async def Append(  # type: ignore[override]  # see bulk_calls
        self, request_iterator: AsyncIterator[Bulky], context: Context
    ) -> AsyncIterator[pb.AppendResponse]:
        """Store batches."""
        stream = AppendStream(self._intake, self._topics)
        async for answer in self.streams.run("append", stream, request_iterator):
            yield answer

    async def FetchBatches(  # type: ignore[override]  # see bulk_calls
        self, request_iterator: AsyncIterator[pb.FetchBatchesRequest], context: Context
    ) -> AsyncIterator[Bulky]:
        """Read batches, or wait for them."""
        stream = FetchStream(self._store, self._topics)
        async for answer in self.streams.run("fetch", stream, request_iterator):
            yield answer

    async def CommitOffsets(self, request: pb.CommitOffsetsRequest, context: Context) -> pb.CommitOffsetsResponse:
        """Store how far a group has consumed."""
        await self._topics.arrival(request.topic_id, max((item.queue_id for item in request.offsets), default=0))
        return await commit_offsets(self._store, request)

    async def QueryOffsets(self, request: pb.QueryOffsetsRequest, context: Context) -> pb.QueryOffsetsResponse:
        """How far a group has consumed."""
        await self._topics.arrival(request.topic_id)
        return query_offsets(self._store, request)

    async def DescribeQueues(self, request: pb.DescribeQueuesRequest, context: Context) -> pb.DescribeQueuesResponse:
        """First and next offset of each queue of a topic."""
        await self._topics.arrival(request.topic_id)
        return describe_queues(self._store, request)

    async def FindOffset(self, request: pb.FindOffsetRequest, context: Context) -> pb.FindOffsetResponse:
        """The first offset stored at or after a time."""
        await self._topics.arrival(request.topic_id, request.queue_id)
        return await find_offset(self._store, request)

    async def FindMessages(self, request: pb.FindMessagesRequest, context: Context) -> pb.FindMessagesResponse:
        """Where messages with a key or an id lie."""
        await self._topics.arrival(request.topic_id)
        return await find_messages(self._store, request)

    async def RecallDelayed(
        self, request: deferred_pb.RecallDelayedRequest, context: Context
    ) -> deferred_pb.RecallDelayedResponse:
        """Forget a delayed message."""
        return await recall_delayed(self._intake.delays, request)

    async def ListDelayed(
        self, request: deferred_pb.ListDelayedRequest, context: Context
    ) -> deferred_pb.ListDelayedResponse:
        """The delayed messages of a topic."""
        await self._topics.arrival(request.topic_id)
        return list_delayed(self._intake.delays, request)

    async def PopQueues(
        self, request: enode_pop_pb2.PopQueuesRequest, context: Context
    ) -> enode_pop_pb2.PopQueuesResponse:
        """Lease messages of a group to a consumer."""
        await self._topics.arrival(request.topic_id, max(request.queue_ids, default=0))
        return await pop_queues(self._pops, request)

    async def SettlePopped(
        self, request: enode_pop_pb2.SettlePoppedRequest, context: Context
    ) -> enode_pop_pb2.SettlePoppedResponse:
        """Say what becomes of leased messages."""
        await self._topics.arrival(request.topic_id, max((part.queue_id for part in request.parts), default=0))
        if letters_id := request.give_back.rules.dead_letter_topic_id:
            await self._topics.arrival(letters_id)
        return await settle_popped(self._pops, request)

    async def StoreHalf(self, request: deferred_pb.StoreHalfRequest, context: Context) -> deferred_pb.StoreHalfResponse:
        """Begin a transaction."""
        await self._topics.arrival(request.topic_id, request.queue_id)
        return await store_half(self._intake.transactions, request)

    async def SettleHalf(
        self, request: deferred_pb.SettleHalfRequest, context: Context
    ) -> deferred_pb.SettleHalfResponse:
        """End a transaction."""
        return await settle_half(self._intake.transactions, request)

    async def ListHalves(
        self, request: deferred_pb.ListHalvesRequest, context: Context
    ) -> deferred_pb.ListHalvesResponse:
        """Open transactions."""
        return list_halves(self._intake.transactions, request)

    async def ResumeHalf(
        self, request: deferred_pb.ResumeHalfRequest, context: Context
    ) -> deferred_pb.ResumeHalfResponse:
        """Check a parked transaction again."""
        await self._intake.transactions.resume(request.topic_id, request.number)
        return deferred_pb.ResumeHalfResponse()

    async def WatchHalves(
        self, request: deferred_pb.WatchHalvesRequest, context: Context
    ) -> AsyncIterator[deferred_pb.WatchHalvesResponse]:
        """Transactions that are due to be checked."""
        stream = CheckStream(self._intake.transactions, request.producer_groups)
        async for answer in self.streams.run("checks", stream, _no_more()):
            yield answer

    async def SendBackMessages(
        self, request: enode_pop_pb2.SendBackMessagesRequest, context: Context
    ) -> enode_pop_pb2.SendBackMessagesResponse:
        """Copy messages to a group's retry topic."""
        await self._topics.arrival(request.topic_id, request.queue_id)
        await self._topics.arrival(request.retry_topic_id)
        await self._topics.arrival(request.rules.dead_letter_topic_id)
        return await send_back(self._sending, request)

    async def ReplayStored(
        self, request: enode_pop_pb2.ReplayStoredRequest, context: Context
    ) -> enode_pop_pb2.ReplayStoredResponse:
        """Send dead letters again."""
        await self._topics.arrival(request.target_topic_id)
        return await replay_stored(self._sending, request)

    async def UseDeliveryMode(
        self, request: lives_pb.UseDeliveryModeRequest, context: Context
    ) -> lives_pb.UseDeliveryModeResponse:
        """A group is about to consume a topic."""
        await self._topics.arrival(request.topic_id)
        return await use_mode(self._store, request)

    async def SetStoredMode(
        self, request: lives_pb.SetStoredModeRequest, context: Context
    ) -> lives_pb.SetStoredModeResponse:
        """Change how a group consumes a topic."""
        await self._topics.arrival(request.topic_id)
        return await set_mode(self._pops, request)

    async def QueryModes(self, request: lives_pb.QueryModesRequest, context: Context) -> lives_pb.QueryModesResponse:
        """How a group consumes topics."""
        return query_modes(self._store, request)

    async def AppendIdentified(
        self, request: lives_pb.AppendIdentifiedRequest, context: Context
    ) -> lives_pb.AppendIdentifiedResponse:
        """Store messages by ids of the application's."""
        await self._topics.arrival(request.topic_id, request.queue_id)
        return await append_identified(self._identified, request)

    async def DescribeStore(self, request: pb.DescribeStoreRequest, context: Context) -> pb.DescribeStoreResponse:
        """The store as a whole."""
        return describe_store(self._store, self.attached.names())

    async def TakeLocks(self, request: pb.TakeLocksRequest, context: Context) -> pb.TakeLocksResponse:
        """Take or renew queue locks."""
        return await take_locks(self._store, self._topics, request)

    async def ReleaseLocks(self, request: pb.ReleaseLocksRequest, context: Context) -> pb.ReleaseLocksResponse:
        """Give queue locks back."""
        released = await release_locks(self._store, request)
        self.attached.tell_freed()
        return released

    async def QueryLocks(self, request: pb.QueryLocksRequest, context: Context) -> pb.QueryLocksResponse:
        """The queue locks of a group in a topic."""
        return query_locks(self._store, request)

    async def QueryOffsetGroups(
        self, request: pb.QueryOffsetGroupsRequest, context: Context
    ) -> pb.QueryOffsetGroupsResponse:
        """The groups that have an offset in a topic."""
        return query_offset_groups(self._store, request)

    async def Attach(
        self, request_iterator: AsyncIterator[pb.AttachRequest], context: Context
    ) -> AsyncIterator[pb.AttachResponse]:
        """Know that a snode is there, and tell it about free locks."""
        stream = AttachStream(self.attached)
        async for answer in self.streams.run("attach", stream, request_iterator):
            yield answer


def add_to_server(handlers: EnodeService, server: Any) -> None:
    """Serve it."""
    add_EnodeServiceServicer_to_server(handlers, server)
    bulk_calls.serve(server, {"Append": handlers.Append, "FetchBatches": handlers.FetchBatches})


async def _no_more() -> AsyncIterator[deferred_pb.WatchHalvesRequest]:
    return
    yield deferred_pb.WatchHalvesRequest()
