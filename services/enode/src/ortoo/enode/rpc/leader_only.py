"""EnodeService of a replica: the leader answers, and other replicas refuse with the leader's address."""

import enum
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from ortoo.common.errors import NOT_ACCEPTED_FIELD, OrtooError, Unavailable
from ortoo.common.grpc.bulk_field import BulkMessage
from ortoo.common.grpc.errors import Context
from ortoo.common.process.clock import Clock
from ortoo.enode.rpc.streams.fetch import CommittedStream
from ortoo.enode.rpc.streams.runner import StreamRunner
from ortoo.enode.store.engine import Engine
from ortoo.v1 import enode_pb2
from ortoo.v1.enode_pb2_grpc import EnodeServiceServicer

STREAMS = frozenset({"Append", "FetchBatches", "WatchHalves", "Attach", "Lease", "AwaitMessages"})


Reads = Callable[[AsyncIterator[enode_pb2.FetchBatchesRequest], Context], AsyncIterator[BulkMessage]]


def read_committed(engine: Engine, streams: StreamRunner, not_leading_error: Callable[[], OrtooError]) -> Reads:
    """The method FetchBatches of any replica, for readers that accept a follower's committed data. No read waits."""
    return lambda requests, context: streams.run("fetch", CommittedStream(engine, not_leading_error), requests)


class Consistency(enum.Enum):
    """The check of an answer before it leaves a leader that may have been replaced."""

    CONFIRMED = enum.auto()
    """Sent only when the leader has confirmed that it led while the answer was made: reads are linearizable."""
    COMMITTED = enum.auto()
    """Not checked, because a majority of disks has committed the change that the answer reports."""
    ANY = enum.auto()
    """Not checked: the answer is about this process, or a hint that its receiver checks with another call."""


CONSISTENCY: Mapping[str, Consistency] = {
    "Append": Consistency.COMMITTED,
    "FetchBatches": Consistency.CONFIRMED,
    "CommitOffsets": Consistency.CONFIRMED,
    "QueryOffsets": Consistency.CONFIRMED,
    "DescribeQueues": Consistency.CONFIRMED,
    "DescribeQueuesOfTopics": Consistency.CONFIRMED,
    "MeasureQueues": Consistency.CONFIRMED,
    "TrimQueues": Consistency.CONFIRMED,
    "FindOffset": Consistency.CONFIRMED,
    "FindMessages": Consistency.CONFIRMED,
    "TakeLocks": Consistency.CONFIRMED,
    "ReleaseLocks": Consistency.CONFIRMED,
    "QueryLocks": Consistency.CONFIRMED,
    "QueryOffsetGroups": Consistency.CONFIRMED,
    "ListSinkAccounts": Consistency.CONFIRMED,
    "Attach": Consistency.ANY,
    "RecallDelayed": Consistency.CONFIRMED,
    "ListDelayed": Consistency.CONFIRMED,
    "FindDeferred": Consistency.CONFIRMED,
    "Lease": Consistency.CONFIRMED,
    "AwaitMessages": Consistency.ANY,
    "PopQueues": Consistency.CONFIRMED,
    "DescribeDeliveries": Consistency.CONFIRMED,
    "DescribeLags": Consistency.CONFIRMED,
    "ListLagSamples": Consistency.ANY,
    "RecordFailedAttempt": Consistency.CONFIRMED,
    "RecordInterruptions": Consistency.CONFIRMED,
    "SettlePopped": Consistency.CONFIRMED,
    "StoreHalf": Consistency.CONFIRMED,
    "SettleHalf": Consistency.CONFIRMED,
    "ListHalves": Consistency.CONFIRMED,
    "ResumeHalf": Consistency.CONFIRMED,
    "WatchHalves": Consistency.ANY,
    "RetryMessages": Consistency.CONFIRMED,
    "ReplayStored": Consistency.CONFIRMED,
    "UseDeliveryMode": Consistency.CONFIRMED,
    "SetStoredMode": Consistency.CONFIRMED,
    "QueryModes": Consistency.CONFIRMED,
    "AppendDeduplicated": Consistency.CONFIRMED,
    "StoreSchedule": Consistency.CONFIRMED,
    "ListStoredSchedules": Consistency.CONFIRMED,
    "ChangeStoredSchedule": Consistency.CONFIRMED,
    "DescribeStore": Consistency.ANY,
}
"""Each method of EnodeService. A method without an entry cannot be served."""
CONFIRM_POLL_S = 0.02


class LeaderOnlyService:
    """Forwards each method to the service of the current term of leadership, and confirms the answers.

    The lease is checked when an answer leaves, in this one place. A valid lease at that time proves that no other
    leader had committed anything when the answer was made. If the lease has expired, the answer waits until a
    majority renews the lease in the same term. If the term ends first, the answer is dropped.
    """

    def __init__(self, not_leading_error: Callable[[], OrtooError], may_read: Callable[[], bool], clock: Clock) -> None:
        """`may_read` tells whether this replica holds the read lease."""
        self.service: EnodeServiceServicer | None = None
        """The service of this replica's term; None while another replica leads."""
        self.committed_reads: Reads | None = None
        """Committed reads of the open log; None while no log is open or no committed position is known."""
        self._not_leading_error = not_leading_error
        self._may_read = may_read
        self._clock = clock

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in CONSISTENCY:
            raise AttributeError(name)
        is_confirmed = CONSISTENCY[name] is Consistency.CONFIRMED
        if name in STREAMS:

            async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
                if self.service is None and name == "FetchBatches" and self.committed_reads is not None:
                    async for answer in self.committed_reads(request, context):
                        yield answer
                        del answer
                    return
                service = self._leader_service()
                async for answer in getattr(service, name)(request, context):
                    if is_confirmed:
                        await self._confirm(service)
                    yield answer
                    del answer

            return stream

        async def unary(request: Any, context: Any) -> Any:
            service = self._leader_service()
            try:
                answer = await getattr(service, name)(request, context)
            except OrtooError as error:
                # That nothing was stored is not read from the state, and lets the caller ask another replica.
                if is_confirmed and error.field != NOT_ACCEPTED_FIELD:
                    await self._confirm(service)
                raise
            if is_confirmed:
                await self._confirm(service)
            return answer

        return unary

    def _leader_service(self) -> EnodeServiceServicer:
        if self.service is None:
            raise self._not_leading_error()
        return self.service

    async def _confirm(self, service: EnodeServiceServicer) -> None:
        """Return when this replica holds the read lease in the term of `service`. Errors: Unavailable."""
        while self.service is service:
            if self._may_read():
                return
            await self._clock.sleep(CONFIRM_POLL_S)
        raise Unavailable("this replica no longer leads; the outcome is unknown, retry")
