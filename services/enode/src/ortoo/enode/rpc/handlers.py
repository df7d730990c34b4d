"""The parts of the enode that all methods of EnodeService call, and checks of requests."""

from dataclasses import dataclass, field
from typing import Any

from ortoo.common.errors import Invalid
from ortoo.common.grpc.bulk_calls import batch_of
from ortoo.common.grpc.messages import write
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.enode.appends.deduplicated import DeduplicatedAppends
from ortoo.enode.appends.router import AppendRouter
from ortoo.enode.cluster.topic_copies import TopicCopies
from ortoo.enode.observe.backlog import Backlogs
from ortoo.enode.observe.lag_history import LagHistory
from ortoo.enode.pops.leasing import PopLeasing
from ortoo.enode.pops.retry_copies import RetryCopies
from ortoo.enode.rpc.streams.attach import AttachedSnodes
from ortoo.enode.rpc.streams.runner import StreamRunner
from ortoo.enode.schedules.runner import ScheduleRunner
from ortoo.enode.store.store import Store
from ortoo.v1 import record_pb2
from ortoo.v1.enode_pb2_grpc import EnodeServiceServicer

LISTED_DEFAULT = 100
LISTED_MAX = 10_000


@dataclass(eq=False)
class EnodeHandlers(EnodeServiceServicer):
    """Base of EnodeService's methods. A method waits a moment for an unknown topic before it refuses the request."""

    store: Store
    topics: TopicCopies
    appends: AppendRouter
    deduplicated: DeduplicatedAppends
    pops: PopLeasing
    retry_copies: RetryCopies
    attached: AttachedSnodes
    backlogs: Backlogs
    lag_history: LagHistory
    schedules: ScheduleRunner
    streams: StreamRunner = field(init=False)
    """Set by the server, which ends them when it stops."""


def read_checked_batch(request: Any) -> SealedBatch:
    """The batch of a request, after a check of its bytes. Errors: those of `SealedBatch.check`."""
    batch = batch_of(request.batch)
    batch.check()
    return batch


def without_sequence(batch: SealedBatch) -> record_pb2.SealedBatch:
    """A batch without its producer's id and sequence."""
    return write(record_pb2.SealedBatch, batch, producer_id=0, first_sequence=0, delayed=False)


def check_number(field: str, number: int, maximum: int) -> None:
    """Refuse a number below 1 or above `maximum`. Errors: Invalid, naming the field."""
    if not 1 <= number <= maximum:
        raise Invalid(f"{number}; expected 1 to {maximum}", field=field)


def limit_of(request: Any) -> int:
    """The limit of a list request; 0 = the default. Errors: Invalid if the limit is too large."""
    limit: int = request.limit
    if limit > LISTED_MAX:
        raise Invalid(f"{limit}; at most {LISTED_MAX}", field="limit")
    return limit or LISTED_DEFAULT
