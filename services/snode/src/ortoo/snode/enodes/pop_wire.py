"""Between the plain values of pops and the messages that go to an enode."""

from collections.abc import Sequence

from ortoo.common.groups.pop import (
    Finish,
    LeasePart,
    Popped,
    PoppedBatch,
    PopRules,
    PopWish,
    Renew,
    ReplayWish,
    SendBackWish,
    Verdict,
)
from ortoo.snode.cluster.wire import batch_of
from ortoo.v1 import enode_pop_pb2 as pb


def wish_to(wish: PopWish, *, peek: bool = False) -> pb.PopQueuesRequest:
    """A pop, written."""
    return pb.PopQueuesRequest(
        topic_id=wish.topic_id,
        group=wish.group,
        queue_ids=wish.queue_ids,
        messages_max=wish.messages_max,
        bytes_max=wish.bytes_max,
        invisible_ms=wish.invisible_ms,
        wait_ms=wish.wait_ms,
        client_id=wish.consumer,
        attempt_id=wish.attempt_id,
        rules=_rules(wish.rules),
        peek=peek,
    )


def popped_of(answer: pb.PopQueuesResponse) -> Popped:
    """What was popped, read."""
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
    return Popped(batches, answer.wants_dead_letter_topic, answer.blocked)


def settlement_to(topic_id: int, group: str, parts: Sequence[LeasePart], verdict: Verdict) -> pb.SettlePoppedRequest:
    """What becomes of messages, written."""
    request = pb.SettlePoppedRequest(topic_id=topic_id, group=group, parts=map(_part, parts))
    if isinstance(verdict, Finish):
        request.finish.filtered = verdict.filtered
        request.finish.SetInParent()
    elif isinstance(verdict, Renew):
        request.renew_invisible_ms = verdict.invisible_ms
    else:
        request.give_back.CopyFrom(
            pb.GiveBack(
                delays_ms=verdict.delays_ms,
                uncounted=not verdict.counts,
                error=verdict.error,
                client_id=verdict.consumer,
                park=verdict.park,
                rules=_rules(verdict.rules),
            )
        )
    return request


def send_back_to(wish: SendBackWish) -> pb.SendBackMessagesRequest:
    """Messages to give back by offset, written."""
    return pb.SendBackMessagesRequest(
        group=wish.group,
        topic_id=wish.topic_id,
        queue_id=wish.queue_id,
        offsets=wish.offsets,
        retry_topic_id=wish.retry_topic_id,
        delays_ms=wish.delays_ms,
        park=wish.park,
        rules=_rules(wish.rules),
    )


def replay_to(wish: ReplayWish) -> pb.ReplayStoredRequest:
    """Dead letters to send again, written."""
    return pb.ReplayStoredRequest(
        dead_letter_topic_id=wish.dead_letter_topic_id,
        group=wish.group,
        ranges=[pb.OffsetRange(first_offset=first, count=count) for first, count in wish.ranges],
        target_topic_id=wish.target_topic_id,
        dry_run=wish.dry_run,
    )


def _part(part: LeasePart) -> pb.LeasePart:
    ranges = [pb.OffsetRange(first_offset=first, count=count) for first, count in part.ranges]
    return pb.LeasePart(queue_id=part.queue_id, lease_number=part.number, ranges=ranges, lenient=not part.is_exact)


def _rules(rules: PopRules) -> pb.PopRules:
    return pb.PopRules(
        attempts_max=rules.attempts_max,
        in_order=rules.in_order,
        in_flight_max=rules.in_flight_max,
        by_priority=rules.by_priority,
        from_last=rules.from_last,
        dead_letter_topic_id=rules.dead_letter_topic_id,
        park_expired=rules.park_expired,
    )
