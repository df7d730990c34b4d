"""RPCs of consumer groups: committed offsets, offset searches, and delivery modes."""

from collections.abc import Mapping

from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import Invalid
from ortoo.common.groups.sinks import SinkIdentity, is_sink_group
from ortoo.common.grpc.enum_values import check_known, known_or
from ortoo.common.grpc.errors import Context
from ortoo.common.grpc.messages import read, write
from ortoo.common.process.long_work import in_slices
from ortoo.enode.changes.groups import GroupMode
from ortoo.enode.observe.lag_history import INTERVAL_MS
from ortoo.enode.pops.interruptions import Interruption
from ortoo.enode.pops.retry_copies import OrderedFailure
from ortoo.enode.rpc.handlers import EnodeHandlers
from ortoo.v1 import enode_delivery_modes_pb2 as lives_pb
from ortoo.v1 import enode_pb2 as pb
from ortoo.v1 import lag_pb2 as lag_pb
from ortoo.v1 import sink_pb2 as sink_pb

OFFSETS_MAX = 10_000
"""The number of queues in one commit."""
INTERRUPTED = "the session of the consumer ended while it had this message"


class GroupHandlers(EnodeHandlers):
    """The methods for committed offsets and delivery modes of groups."""

    async def CommitOffsets(self, request: pb.CommitOffsetsRequest, context: Context) -> pb.CommitOffsetsResponse:
        """Commit offsets of a group, together or not at all. An offset with its own generation may be refused alone."""
        topic_id, group, store = request.topic_id, request.group, self.store
        await self.topics.wait_for(topic_id, max((item.queue_id for item in request.offsets), default=0))
        offsets = _offsets(request)
        if request.reset:
            await store.offsets.reset(topic_id, group, offsets, forward_only=request.forward_only)
            for queue_id in offsets:
                self.retry_copies.interruptions.drop((topic_id, group, queue_id))
            return pb.CommitOffsetsResponse()
        if is_sink_group(group):
            sink = read(SinkIdentity, request.sink) if request.HasField("sink") else None
            if sink is not None:
                sink.check()
            await store.sinks.commit(topic_id, group, offsets, sink)
            return pb.CommitOffsetsResponse()
        self._check_stored(topic_id, offsets)
        fenced: list[int] = []
        with store.modes.decide([(topic_id, group)], GroupMode.OFFSETS) as (decided, refused):
            for error in refused.values():
                raise error
            if any(item.generation for item in request.offsets):
                rows = [(item.queue_id, item.offset, item.generation or request.generation) for item in request.offsets]
                fenced = await store.offsets.commit_each(topic_id, group, rows, decided)
            else:
                await store.offsets.commit(topic_id, group, offsets, request.generation, decided)
        return pb.CommitOffsetsResponse(fenced_queue_ids=fenced)

    def _check_stored(self, topic_id: int, offsets: Mapping[int, int]) -> None:
        """Refuse offsets beyond the end of their queues. Errors: Invalid."""
        for queue_id, offset in offsets.items():
            if offset > (end_offset := self.store.queue_range(topic_id, queue_id).end_offset):
                raise Invalid(
                    f"offset {offset} of queue {queue_id}; the queue ends at {end_offset}. A consumer can commit only "
                    "what it received",
                    field="offsets",
                )

    async def QueryOffsets(self, request: pb.QueryOffsetsRequest, context: Context) -> pb.QueryOffsetsResponse:
        """Get the committed offsets of a group."""
        await self.topics.wait_for(request.topic_id)
        check_group_name(request.group)
        offsets = self.store.offsets.of(request.topic_id, request.group, request.queue_ids)
        last = self.retry_copies.interruptions.of
        interrupted = [
            last((request.topic_id, request.group, queue_id), offset) for queue_id, offset in offsets.items()
        ]
        return pb.QueryOffsetsResponse(
            offsets=[pb.QueueOffset(queue_id=queue_id, offset=offset) for queue_id, offset in sorted(offsets.items())],
            interruptions=[write(lag_pb.Interruption, one) for one in interrupted if one is not None],
        )

    async def QueryOffsetGroups(
        self, request: lag_pb.QueryOffsetGroupsRequest, context: Context
    ) -> lag_pb.QueryOffsetGroupsResponse:
        """List the groups that have an offset in a topic."""
        return lag_pb.QueryOffsetGroupsResponse(groups=self.store.offsets.groups(request.topic_id))

    async def ListSinkAccounts(
        self, request: sink_pb.ListSinkAccountsRequest, context: Context
    ) -> sink_pb.ListSinkAccountsResponse:
        """List the accounts of exactly-once sinks."""
        if request.topic_id:
            await self.topics.wait_for(request.topic_id)
        return sink_pb.ListSinkAccountsResponse(
            sinks=[write(sink_pb.StoredSink, one) for one in self.store.sinks.list_all(request.topic_id)]
        )

    async def DescribeLags(self, request: lag_pb.DescribeLagsRequest, context: Context) -> lag_pb.DescribeLagsResponse:
        """Describe the unfinished messages of a group."""
        check_group_name(request.group)
        lags: list[lag_pb.TopicLag] = []
        async for part in in_slices(self.backlogs.of_group(request.group), self.backlogs.clock):
            lags += [
                lag_pb.TopicLag(topic_id=one.topic_id, by_state=write(lag_pb.LagByState, one), unfinished=one.by_queue)
                for one in part
                if one is not None
            ]
        return lag_pb.DescribeLagsResponse(lags=lags)

    async def ListLagSamples(
        self, request: lag_pb.ListLagSamplesRequest, context: Context
    ) -> lag_pb.ListLagSamplesResponse:
        """List the recorded lag of a group in some topics."""
        check_group_name(request.group)
        found = self.lag_history.of_group(request.group, request.topic_ids, request.from_ms)
        is_partial = self.lag_history.is_partial
        return write(lag_pb.ListLagSamplesResponse, found, is_partial=is_partial, interval_ms=INTERVAL_MS)

    async def RecordFailedAttempt(
        self, request: lag_pb.RecordFailedAttemptRequest, context: Context
    ) -> lag_pb.RecordFailedAttemptResponse:
        """Remember a failed attempt of a consumer that keeps the order."""
        check_group_name(request.group)
        self.store.queue_range(request.topic_id, request.queue_id)
        retry_at_ms = self.backlogs.clock.now_ms() + request.delay_ms
        self.retry_copies.record_ordered_failure(
            (request.topic_id, request.group, request.queue_id),
            read(OrderedFailure, request, retry_at_ms=retry_at_ms),
        )
        return lag_pb.RecordFailedAttemptResponse()

    async def RecordInterruptions(
        self, request: lag_pb.RecordInterruptionsRequest, context: Context
    ) -> lag_pb.RecordInterruptionsResponse:
        """Remember the messages that a consumer had when its session ended without an answer."""
        check_group_name(request.group)
        if len(request.interruptions) > OFFSETS_MAX:
            raise Invalid(f"{len(request.interruptions)} queues; give at most {OFFSETS_MAX}", field="interruptions")
        offsets = self.store.offsets.of(request.topic_id, request.group)
        for one in request.interruptions:
            place = (request.topic_id, request.group, one.queue_id)
            found = self.retry_copies.interruptions.record(place, read(Interruption, one), offsets.get(one.queue_id, 0))
            if found is not None and found.attempts:
                now_ms = self.backlogs.clock.now_ms()
                failure = OrderedFailure(found.offset, found.attempts, now_ms, request.consumer, INTERRUPTED)
                self.retry_copies.record_ordered_failure(place, failure)
        return lag_pb.RecordInterruptionsResponse()

    async def FindOffset(self, request: pb.FindOffsetRequest, context: Context) -> pb.FindOffsetResponse:
        """Find the first offset stored at or after a time."""
        await self.topics.wait_for(request.topic_id, request.queue_id)
        offset = await self.store.find_offset(request.topic_id, request.queue_id, request.stored_at_ms)
        return pb.FindOffsetResponse(offset=offset)

    async def UseDeliveryMode(
        self, request: lives_pb.UseDeliveryModeRequest, context: Context
    ) -> lives_pb.UseDeliveryModeResponse:
        """Set a group's delivery mode for a topic. The request is refused if the group has a different mode."""
        await self.topics.wait_for(request.topic_id)
        check_group_name(request.group)
        mode = _mode_of(request)
        if mode is GroupMode.UNDECIDED:
            raise Invalid("missing delivery mode; give the mode in which the group consumes the topic", field="mode")
        await self.store.modes.use(request.topic_id, request.group, mode)
        return lives_pb.UseDeliveryModeResponse()

    async def SetStoredMode(
        self, request: lives_pb.SetStoredModeRequest, context: Context
    ) -> lives_pb.SetStoredModeResponse:
        """Change a group's delivery mode for a topic, for an operator."""
        await self.topics.wait_for(request.topic_id)
        check_group_name(request.group)
        mode = _mode_of(request)
        before = await self.pops.change_mode(request.topic_id, request.group, mode, force=request.force)
        return lives_pb.SetStoredModeResponse(previous=before.value)  # type: ignore[arg-type]

    async def QueryModes(self, request: lives_pb.QueryModesRequest, context: Context) -> lives_pb.QueryModesResponse:
        """List a group's delivery modes for the topics of this enode."""
        check_group_name(request.group)
        modes = self.store.modes.of_group(request.group)
        stored = [lives_pb.StoredMode(topic_id=topic_id, mode=mode.value) for topic_id, mode in modes]  # type: ignore[arg-type]
        return lives_pb.QueryModesResponse(modes=stored)


def _offsets(request: pb.CommitOffsetsRequest) -> dict[int, int]:
    """The offsets of a request, as queue id to next offset. Errors: Invalid."""
    check_group_name(request.group)
    if not 1 <= len(request.offsets) <= OFFSETS_MAX:
        raise Invalid(f"{len(request.offsets)} offsets; give 1 to {OFFSETS_MAX}", field="offsets")
    offsets = {item.queue_id: item.offset for item in request.offsets}
    if len(offsets) != len(request.offsets):
        raise Invalid("a queue is named twice; give each queue one offset", field="offsets")
    return offsets


def _mode_of(request: lives_pb.UseDeliveryModeRequest | lives_pb.SetStoredModeRequest) -> GroupMode:
    """The requested mode. Errors: Invalid for one that this version does not know."""
    check_known(request, "mode")
    return known_or(GroupMode, request.mode, GroupMode.UNDECIDED)
