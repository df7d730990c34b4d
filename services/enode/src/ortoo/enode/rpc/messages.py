"""What several methods read of their requests."""

from typing import Any

from ortoo.common.errors import Invalid
from ortoo.common.grpc.bulk_calls import batch_of
from ortoo.common.grpc.fields import write
from ortoo.common.records.sealed_batch import SealedBatch
from ortoo.v1 import record_pb2

LISTED_DEFAULT = 100
LISTED_MAX = 10_000


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
