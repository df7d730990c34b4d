"""Pulls, locks and offsets between plain values and the wire."""

from collections.abc import Iterable

from ortoo.common.errors.status import failure_of
from ortoo.snode.clients.locks import LIFETIME_MS, LockedQueue
from ortoo.snode.cluster.wire import batch_to, queue_of, queue_to
from ortoo.snode.filters.selection import compile_filter
from ortoo.snode.pull.offsets import GroupOffset
from ortoo.snode.pull.pulling import Pulled, PullRequest
from ortoo.v1 import pull_pb2


def pull_of(request: pull_pb2.PullRequest) -> PullRequest:
    """What a client asks for. Errors: Invalid for the filter."""
    return PullRequest(
        request.group,
        queue_of(request.queue),
        request.offset,
        request.messages_max,
        request.bytes_max,
        request.wait_ms,
        compile_filter(request.tag_expression, request.sql_expression),
        request.subscription_version,
        request.generation,
    )


def pulled_to(pulled: Pulled) -> pull_pb2.PullResponse:
    """What it gets."""
    status = pull_pb2.PULL_STATUS_FOUND
    if pulled.is_illegal:
        status = pull_pb2.PULL_STATUS_OFFSET_ILLEGAL
    elif not pulled.parts:
        status = pull_pb2.PULL_STATUS_NO_MATCH if pulled.passed_over else pull_pb2.PULL_STATUS_NO_NEW
    return pull_pb2.PullResponse(
        status=status,
        next_offset=pulled.next_offset,
        begin_offset=max(0, pulled.begin_offset),
        end_offset=pulled.end_offset,
        batches=[
            pull_pb2.PulledBatch(
                first_offset=part.first_offset,
                next_offset=part.next_offset,
                stored_at_ms=part.stored_at_ms,
                batch=batch_to(part.batch),
                rows=part.rows,
                topic_id=pulled.topic_id,
            )
            for part in pulled.parts
            if part.batch is not None
        ],
    )


def locks_to(answers: Iterable[LockedQueue]) -> pull_pb2.LockQueuesResponse:
    """What became of a client's wishes for locks."""
    response = pull_pb2.LockQueuesResponse(lifetime_ms=LIFETIME_MS)
    for one in answers:
        if one.answer.generation:
            response.granted.add(queue=queue_to(one.queue), generation=one.answer.generation)
            continue
        response.refused.add(
            queue=queue_to(one.queue),
            owner=one.answer.owner,
            remaining_ms=one.answer.remaining_ms,
            failure=failure_of(one.error) if one.error is not None else None,
        )
    return response


def offsets_of(offsets: Iterable[pull_pb2.ConsumerOffset]) -> list[GroupOffset]:
    """Offsets, read."""
    return [GroupOffset(queue_of(one.queue), one.offset, one.generation) for one in offsets]


def offset_to(found: GroupOffset) -> pull_pb2.ConsumerOffset:
    """An offset, written."""
    return pull_pb2.ConsumerOffset(queue=queue_to(found.queue), offset=found.offset, generation=found.generation)


def refused_to(refused: GroupOffset) -> pull_pb2.RefusedOffset:
    """An offset that could not be stored or read, with the reason."""
    assert refused.error is not None
    return pull_pb2.RefusedOffset(queue=queue_to(refused.queue), failure=failure_of(refused.error))
