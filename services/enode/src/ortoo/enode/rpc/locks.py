"""TakeLocks, ReleaseLocks and QueryLocks."""

import asyncio
from collections.abc import Iterable

from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import Invalid, OrtooError
from ortoo.common.errors.status import failure_of
from ortoo.common.grpc.errors import Context
from ortoo.common.grpc.messages import write
from ortoo.enode.changes.groups import GroupMode
from ortoo.enode.rpc.handlers import EnodeHandlers
from ortoo.enode.store.lock_table import LIFETIME_S, LockDenied, LockGranted, LockKey, LockRequest
from ortoo.v1 import enode_locks_pb2 as pb

LOCKS_MAX = 10_000
"""The number of locks in one request."""
TEXT_LENGTH_MAX = 1024


class LockHandlers(EnodeHandlers):
    """The methods for the locks of queues."""

    async def TakeLocks(self, request: pb.TakeLocksRequest, context: Context) -> pb.TakeLocksResponse:
        """Take or renew locks; granted locks are durable. A queue that is not on this enode gets its own error."""
        lock_requests = _checked_requests(request.requests)
        missing = await self._missing(lock_requests)
        pairs = {(one.topic_id, one.group) for one in lock_requests if (one.topic_id, one.queue_id) not in missing}
        with self.store.modes.decide(pairs, GroupMode.OFFSETS) as (decided, refused):
            failures = [
                refused.get((one.topic_id, one.group)) or missing.get((one.topic_id, one.queue_id))
                for one in lock_requests
            ]
            requested = [
                LockRequest(_key(one), one.owner or one.session_id, one.session_id, request.incarnation, one.resume)
                for one, failure in zip(lock_requests, failures, strict=True)
                if failure is None
            ]
            granted = iter(await self.store.locks.take(requested, decided))
        return pb.TakeLocksResponse(
            results=[
                _answer(next(granted)) if failure is None else pb.LockResult(failure=failure_of(failure))
                for failure in failures
            ],
            lifetime_ms=int(LIFETIME_S * 1000),
        )

    async def ReleaseLocks(self, request: pb.ReleaseLocksRequest, context: Context) -> pb.ReleaseLocksResponse:
        """Release locks that are held by the given sessions."""
        keys = [(_key(wish), wish.session_id) for wish in _checked_requests(request.requests)]
        released = await self.store.locks.release(keys)
        self.attached.notify_freed()
        return pb.ReleaseLocksResponse(released=released)

    async def QueryLocks(self, request: pb.QueryLocksRequest, context: Context) -> pb.QueryLocksResponse:
        """List the locks that a group holds in a topic."""
        held = await self.store.locks.durable_of_group(request.topic_id, request.group)
        return pb.QueryLocksResponse(
            locks=[
                write(pb.HeldLock, lock, queue_id=queue_id, remaining_ms=int(remaining_s * 1000))
                for queue_id, lock, remaining_s in held
            ]
        )

    async def _missing(self, lock_requests: Iterable[pb.LockRequest]) -> dict[tuple[int, int], OrtooError]:
        """(topic id, queue id) to error, for queues that this enode lacks even after one common wait."""
        topics = self.topics
        missing = sorted(
            {(one.topic_id, one.queue_id) for one in lock_requests if topics.is_missing(one.topic_id, one.queue_id)}
        )
        answers = await asyncio.gather(*(topics.wait_for(*one) for one in missing), return_exceptions=True)
        found: dict[tuple[int, int], OrtooError] = {}
        for one, answer in zip(missing, answers, strict=True):
            if isinstance(answer, OrtooError):
                found[one] = answer
            elif answer is not None:
                raise answer
        return found


def _checked_requests(lock_requests: Iterable[pb.LockRequest]) -> list[pb.LockRequest]:
    """Check the limits of requested locks. Errors: Invalid."""
    checked = list(lock_requests)
    if not 1 <= len(checked) <= LOCKS_MAX:
        raise Invalid(f"{len(checked)} locks; give 1 to {LOCKS_MAX}", field="requests")
    for wish in checked:
        check_group_name(wish.group, "requests.group")
        if not 1 <= len(wish.session_id) <= TEXT_LENGTH_MAX or len(wish.owner) > TEXT_LENGTH_MAX:
            raise Invalid(
                f"give a session id of 1 to {TEXT_LENGTH_MAX} characters, and an owner of at most as many",
                field="requests.session_id",
            )
    return checked


def _key(lock_request: pb.LockRequest) -> LockKey:
    return lock_request.topic_id, lock_request.group, lock_request.queue_id


def _answer(answer: LockGranted | LockDenied) -> pb.LockResult:
    if isinstance(answer, LockGranted):
        return pb.LockResult(generation=answer.generation)
    return pb.LockResult(owner=answer.owner, remaining_ms=max(1, int(answer.remaining_s * 1000)))
