"""Conversion of pops between plain values and protobuf messages."""

from collections.abc import Sequence

from ortoo.common.errors.status import error_of
from ortoo.common.groups.pop import (
    Finish,
    LeasePart,
    LeaseVerdict,
    Popped,
    PoppedBatch,
    PopRequest,
    Renew,
    ReplayRequest,
    RetryRequest,
    StaleMessage,
)
from ortoo.common.grpc.bulk_calls import batch_of
from ortoo.common.grpc.messages import read, write
from ortoo.snode.enodes.queue_deliveries import DeliveryRange, QueueDeliveries
from ortoo.v1 import enode_pop_pb2 as pb


def encode_pop(request: PopRequest, *, peek: bool = False) -> pb.PopQueuesRequest:
    """Encode a pop, or with `peek` a query for the messages that a pop would return."""
    return write(pb.PopQueuesRequest, request, client_id=request.consumer, peek=peek)


def check_lease_response(response: pb.LeaseResponse) -> pb.LeaseResponse:
    """The answer itself, unless it has an error, which is raised. Errors: those of the enode."""
    if response.HasField("failure"):
        raise error_of(response.failure)
    return response


def decode_await_response(response: pb.AwaitMessagesResponse) -> bool:
    """Whether a pop may return messages. Errors: those of the enode."""
    if response.HasField("failure"):
        raise error_of(response.failure)
    return response.has_messages


def decode_popped(response: pb.PopQueuesResponse) -> Popped:
    """Decode the popped messages in an answer."""
    batches = [
        PoppedBatch(
            one.queue_id,
            one.lease_number,
            one.stored_at_ms,
            batch_of(one.batch),
            tuple(one.offsets),
            tuple(one.attempts) or (1,) * len(one.offsets),
        )
        for one in response.batches
    ]
    return Popped(
        batches, response.needs_dead_letter_topic, response.blocked_reason, response.more, response.skipped_messages
    )


def encode_settlement(topic_id: int, group: str, parts: Sequence[LeasePart], verdict: LeaseVerdict) -> pb.LeaseRequest:
    """Encode a request to ack, nack, release or renew leased messages.

    The fields are set in place, because a message that is made of other messages copies them.
    """
    encoded = pb.LeaseRequest()
    request = encoded.settle
    request.topic_id, request.group = topic_id, group
    for part in parts:
        _fill_part(request.parts.add(), part)
    if isinstance(verdict, Finish):
        request.finish.filtered = verdict.filtered
        request.finish.SetInParent()
    elif isinstance(verdict, Renew):
        request.renew_invisible_ms = verdict.invisible_ms
    else:
        redelivery = write(pb.Redeliver, verdict, uncounted=not verdict.counts, client_id=verdict.consumer)
        request.redeliver.CopyFrom(redelivery)
    return encoded


def decode_stale(response: pb.SettlePoppedResponse) -> list[StaleMessage]:
    """Decode the messages whose lease had ended."""
    return [
        StaleMessage(
            one.queue_id, one.offset, one.lease_number, error_of(one.failure) if one.HasField("failure") else None
        )
        for one in response.stale
    ]


def encode_retry(request: RetryRequest) -> pb.RetryMessagesRequest:
    """Encode a request to nack messages by offset."""
    return write(pb.RetryMessagesRequest, request, uncounted=not request.counts, client_id=request.consumer)


def decode_deliveries(response: pb.DescribeDeliveriesResponse) -> QueueDeliveries:
    """Decode the delivery states of a queue."""
    ranges = [read(DeliveryRange, one, phase=int(one.phase)) for one in response.ranges]
    return read(QueueDeliveries, response, ranges=ranges)


def encode_replay(request: ReplayRequest) -> pb.ReplayStoredRequest:
    """Encode a request to replay dead letters."""
    return write(pb.ReplayStoredRequest, request, ranges=_encode_ranges(request.ranges))


def _encode_ranges(ranges: Sequence[tuple[int, int]]) -> list[pb.OffsetRange]:
    return [pb.OffsetRange(first_offset=first, count=count) for first, count in ranges]


def _fill_part(encoded: pb.LeasePart, part: LeasePart) -> None:
    encoded.queue_id, encoded.lease_number = part.queue_id, part.number
    encoded.ignore_stale, encoded.unexpired_only = not part.is_exact, part.unexpired_only
    encoded.any_lease = part.any_lease
    for first, count in part.ranges:
        encoded.ranges.add(first_offset=first, count=count)
