"""Conversion of pops between plain values and protobuf messages."""

from collections.abc import Sequence

from ortoo.common.errors.status import error_of
from ortoo.common.groups.pop import (
    Finish,
    LeasePart,
    Popped,
    PoppedBatch,
    PopWish,
    Renew,
    ReplayWish,
    SendBackWish,
    Stale,
    Verdict,
)
from ortoo.common.grpc.bulk_calls import batch_of
from ortoo.common.grpc.messages import write
from ortoo.v1 import enode_pop_pb2 as pb


def wish_to(wish: PopWish, *, peek: bool = False) -> pb.PopQueuesRequest:
    """A pop request."""
    return write(pb.PopQueuesRequest, wish, client_id=wish.consumer, peek=peek)


def ended_of(answer: pb.LeaseResponse) -> pb.LeaseResponse:
    """The answer, if it is not a failure. Errors: those of the enode."""
    if answer.HasField("failure"):
        raise error_of(answer.failure)
    return answer


def popped_of(answer: pb.PopQueuesResponse) -> Popped:
    """The popped messages of an answer."""
    batches = [
        PoppedBatch(
            one.queue_id,
            one.lease_number,
            one.stored_at_ms,
            batch_of(one.batch),
            tuple(one.offsets),
            tuple(one.attempts) or (1,) * len(one.offsets),
        )
        for one in answer.batches
    ]
    return Popped(batches, answer.wants_dead_letter_topic, answer.blocked, answer.more, answer.passed)


def settlement_to(topic_id: int, group: str, parts: Sequence[LeasePart], verdict: Verdict) -> pb.SettlePoppedRequest:
    """A request to ack, nack, release or renew messages."""
    request = pb.SettlePoppedRequest(topic_id=topic_id, group=group, parts=map(_part, parts))
    if isinstance(verdict, Finish):
        request.finish.filtered = verdict.filtered
        request.finish.SetInParent()
    elif isinstance(verdict, Renew):
        request.renew_invisible_ms = verdict.invisible_ms
    else:
        given = write(pb.GiveBack, verdict, uncounted=not verdict.counts, client_id=verdict.consumer)
        request.give_back.CopyFrom(given)
    return request


def stale_of(answer: pb.SettlePoppedResponse) -> list[Stale]:
    """The messages that leases no longer have."""
    return [
        Stale(one.queue_id, one.offset, one.lease_number, error_of(one.failure) if one.HasField("failure") else None)
        for one in answer.stale
    ]


def send_back_to(wish: SendBackWish) -> pb.SendBackMessagesRequest:
    """A request to nack messages by offset."""
    return write(pb.SendBackMessagesRequest, wish, uncounted=not wish.counts, client_id=wish.consumer)


def replay_to(wish: ReplayWish) -> pb.ReplayStoredRequest:
    """A request to replay dead letters."""
    return write(pb.ReplayStoredRequest, wish, ranges=_ranges(wish.ranges))


def _ranges(ranges: Sequence[tuple[int, int]]) -> list[pb.OffsetRange]:
    return [pb.OffsetRange(first_offset=first, count=count) for first, count in ranges]


def _part(part: LeasePart) -> pb.LeasePart:
    return pb.LeasePart(
        queue_id=part.queue_id,
        lease_number=part.number,
        ranges=_ranges(part.ranges),
        lenient=not part.is_exact,
        in_time=part.in_time,
    )
