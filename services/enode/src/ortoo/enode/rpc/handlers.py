"""What all methods of EnodeService share: the parts of the enode that they call, and how they read requests."""

from dataclasses import dataclass, field
from typing import Any

from ortoo.common.errors import Invalid
from ortoo.common.grpc.bulk_calls import batch_of
from ortoo.common.grpc.fields import write
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.enode.cluster.topic_copies import TopicCopies
from ortoo.enode.deferred.identified import IdentifiedIntake
from ortoo.enode.deferred.intake import Intake
from ortoo.enode.pops.leasing import Leasing
from ortoo.enode.pops.sending_back import SendingBack
from ortoo.enode.rpc.streams.all import Streams
from ortoo.enode.rpc.streams.attach import AttachedSnodes
from ortoo.enode.store.store import Store
from ortoo.v1 import record_pb2
from ortoo.v1.enode_pb2_grpc import EnodeServiceServicer

LISTED_DEFAULT = 100
LISTED_MAX = 10_000


@dataclass(eq=False)
class Handlers(EnodeServiceServicer):
    """Some methods of EnodeService. A topic that a request names is waited for a moment before it is called unknown."""

    store: Store
    topics: TopicCopies
    intake: Intake
    identified: IdentifiedIntake
    pops: Leasing
    sending: SendingBack
    attached: AttachedSnodes
    streams: Streams = field(init=False)
    """Given by the server, which ends them when it stops."""


def checked_batch_of(request: Any) -> SealedBatch:
    """The batch of a request, its bytes checked. Errors: Invalid, Corrupt as `SealedBatch.check` says them."""
    batch = batch_of(request.batch)
    batch.check()
    return batch


def unnumbered(batch: SealedBatch) -> record_pb2.SealedBatch:
    """A batch for somebody to whom its producer is nothing."""
    return write(record_pb2.SealedBatch, batch, producer_id=0, first_sequence=0, delayed=False)


def check_number(field: str, number: int, most: int) -> None:
    """Refuse a number below 1 or above `most`. Errors: Invalid, naming the field."""
    if not 1 <= number <= most:
        raise Invalid(f"{number}; expected 1 to {most}", field=field)


def limit_of(request: Any) -> int:
    """How many entries a list may have. Errors: Invalid when it asks for too many."""
    limit: int = request.limit
    if limit > LISTED_MAX:
        raise Invalid(f"{limit}; at most {LISTED_MAX}", field="limit")
    return limit or LISTED_DEFAULT
