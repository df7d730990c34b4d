"""PopQueues and SettlePopped."""

from collections.abc import Sequence

from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import Invalid
from ortoo.common.groups.pop import (
    Finish,
    GiveBack,
    LeasePart,
    PoppedBatch,
    PopRules,
    PopWish,
    Renew,
    ReplayWish,
    SendBackWish,
    Verdict,
)
from ortoo.enode.pops.leasing import Leasing
from ortoo.enode.pops.sending_back import SendingBack
from ortoo.v1 import enode_pop_pb2 as pb
from ortoo.v1 import record_pb2

MESSAGES_MAX = 4_096
BYTES_DEFAULT = 4 << 20
WAIT_MS_MAX = 120_000
INVISIBLE_MS_MAX = 86_400_000
MESSAGES_SETTLED_MAX = 65_536
"""How many messages one request may settle."""


async def pop_queues(leasing: Leasing, request: pb.PopQueuesRequest) -> pb.PopQueuesResponse:
    """Lease messages, or wait for some."""
    _check("messages_max", request.messages_max, MESSAGES_MAX)
    if not request.peek:
        check_group_name(request.group)
        _check("invisible_ms", request.invisible_ms, INVISIBLE_MS_MAX)
    if not request.queue_ids:
        raise Invalid("no queue is named", field="queue_ids")
    popped = await (leasing.peek if request.peek else leasing.pop)(
        PopWish(
            request.topic_id,
            request.group,
            tuple(request.queue_ids),
            request.messages_max,
            request.invisible_ms,
            request.bytes_max or BYTES_DEFAULT,
            min(request.wait_ms, WAIT_MS_MAX),
            request.client_id,
            request.attempt_id,
            rules_of(request.rules),
        )
    )
    return pb.PopQueuesResponse(
        batches=map(_batch, popped.batches),
        wants_dead_letter_topic=popped.wants_dead_letter_topic,
        blocked=popped.blocked,
    )


async def settle_popped(leasing: Leasing, request: pb.SettlePoppedRequest) -> pb.SettlePoppedResponse:
    """Say what becomes of leased messages."""
    check_group_name(request.group)
    parts = [_part(part) for part in request.parts]
    _check("parts", sum(count for part in parts for _, count in part.ranges), MESSAGES_SETTLED_MAX)
    stale = await leasing.settle(request.topic_id, request.group, parts, _verdict(request))
    return pb.SettlePoppedResponse(
        stale=[pb.StaleOffset(queue_id=one.queue_id, offset=one.offset, lease_number=one.number) for one in stale]
    )


async def send_back(sending: SendingBack, request: pb.SendBackMessagesRequest) -> pb.SendBackMessagesResponse:
    """Copy messages to the group's retry topic."""
    check_group_name(request.group)
    _check("offsets", len(request.offsets), MESSAGES_MAX)
    wish = SendBackWish(
        request.group,
        request.topic_id,
        request.queue_id,
        tuple(request.offsets),
        request.retry_topic_id,
        tuple(request.delays_ms),
        request.park,
        rules_of(request.rules),
    )
    return pb.SendBackMessagesResponse(message_ids=await sending.send_back(wish))


async def replay_stored(sending: SendingBack, request: pb.ReplayStoredRequest) -> pb.ReplayStoredResponse:
    """Send dead letters again."""
    check_group_name(request.group)
    ranges = tuple((one.first_offset, one.count) for one in request.ranges)
    _check("ranges", sum(count for _, count in ranges), MESSAGES_SETTLED_MAX)
    wish = ReplayWish(request.dead_letter_topic_id, request.group, ranges, request.target_topic_id, request.dry_run)
    sent = await sending.replay(wish)
    return pb.ReplayStoredResponse(ranges=[pb.OffsetRange(first_offset=first, count=count) for first, count in sent])


def rules_of(rules: pb.PopRules) -> PopRules:
    """How a group pops, read."""
    return PopRules(
        rules.attempts_max,
        rules.in_order,
        rules.in_flight_max,
        rules.by_priority,
        rules.from_last,
        rules.dead_letter_topic_id,
        rules.park_expired,
    )


def _check(field: str, number: int, most: int) -> None:
    if not 1 <= number <= most:
        raise Invalid(f"{number}; expected 1 to {most}", field=field)


def _part(part: pb.LeasePart) -> LeasePart:
    ranges = tuple((one.first_offset, one.count) for one in part.ranges)
    if any(first < 0 or not 1 <= count <= MESSAGES_SETTLED_MAX for first, count in ranges):
        raise Invalid("a range is empty, too long, or begins below 0", field="parts.ranges")
    return LeasePart(part.queue_id, part.lease_number, ranges, is_exact=not part.lenient)


def _verdict(request: pb.SettlePoppedRequest) -> Verdict:
    kind = request.WhichOneof("verdict")
    if kind == "finish":
        return Finish(request.finish.filtered)
    if kind == "renew_invisible_ms":
        _check("renew_invisible_ms", request.renew_invisible_ms, INVISIBLE_MS_MAX)
        return Renew(request.renew_invisible_ms)
    if kind == "give_back":
        how = request.give_back
        delays_ms = tuple(how.delays_ms) or (0,)
        return GiveBack(delays_ms, not how.uncounted, how.client_id, how.error, how.park, rules_of(how.rules))
    raise Invalid("say what becomes of the messages", field="verdict")


def _batch(popped: PoppedBatch) -> pb.PoppedBatch:
    batch = popped.batch
    return pb.PoppedBatch(
        queue_id=popped.queue_id,
        lease_number=popped.number,
        stored_at_ms=popped.stored_at_ms,
        batch=record_pb2.SealedBatch(
            records=batch.records,
            records_crc32c=batch.records_crc32c,
            count=batch.count,
            body_inflated_bytes=batch.body_inflated_bytes,
        ),
        offsets=popped.offsets,
        attempts=_attempts(popped.attempts),
    )


def _attempts(attempts: Sequence[int]) -> Sequence[int]:
    """Nothing stands for 1 each."""
    return () if attempts.count(1) == len(attempts) else attempts
