"""TakeLocks, ReleaseLocks and QueryLocks."""

import asyncio
from collections.abc import Iterable, Sequence

from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import Invalid, OrtooError
from ortoo.common.errors.status import failure_of
from ortoo.enode.changes.lives import Mode
from ortoo.enode.cluster.topic_copies import TopicCopies
from ortoo.enode.store.lock_table import LIFETIME_S, Granted, Key, Refused, Wish
from ortoo.enode.store.store import Store
from ortoo.v1 import enode_pb2

WISHES_MAX = 10_000
"""How many locks one request may name."""
TEXT_LENGTH_MAX = 1024


async def take_locks(
    store: Store, topics: TopicCopies, request: enode_pb2.TakeLocksRequest
) -> enode_pb2.TakeLocksResponse:
    """Decide each wish; what is granted is durable then. A queue that is not here fails by itself."""
    wishes = _checked(request.wishes)
    failures = await _failures(store, topics, wishes)
    wanted = [
        Wish(_key(wish), wish.owner or wish.session_id, wish.session_id, request.incarnation, wish.resume)
        for wish in wishes
        if _key(wish) not in failures
    ]
    granted = iter(await store.locks.take(wanted))
    return enode_pb2.TakeLocksResponse(
        answers=[
            enode_pb2.LockAnswer(failure=failure_of(failure))
            if (failure := failures.get(_key(wish))) is not None
            else _answer(next(granted))
            for wish in wishes
        ],
        lifetime_ms=int(LIFETIME_S * 1000),
    )


async def _failures(store: Store, topics: TopicCopies, wishes: Sequence[enode_pb2.LockWish]) -> dict[Key, OrtooError]:
    """Wishes that cannot be looked at: their queue is not here, or their group pops."""
    missing = await _missing(topics, wishes)
    failures = {_key(wish): it for wish in wishes if (it := missing.get((wish.topic_id, wish.queue_id))) is not None}
    pairs = {(wish.topic_id, wish.group) for wish in wishes if _key(wish) not in failures}
    refused = await store.modes.refused(pairs, Mode.OFFSETS)
    failures |= {_key(wish): it for wish in wishes if (it := refused.get((wish.topic_id, wish.group))) is not None}
    return failures


async def _missing(topics: TopicCopies, wishes: Iterable[enode_pb2.LockWish]) -> dict[tuple[int, int], OrtooError]:
    """(topic id, queue id) of those that are not here, after waiting a moment for all of them together."""
    lacking = sorted({(wish.topic_id, wish.queue_id) for wish in wishes if topics.lacks(wish.topic_id, wish.queue_id)})
    answers = await asyncio.gather(*(topics.arrival(*one) for one in lacking), return_exceptions=True)
    found: dict[tuple[int, int], OrtooError] = {}
    for one, answer in zip(lacking, answers, strict=True):
        if isinstance(answer, OrtooError):
            found[one] = answer
        elif answer is not None:
            raise answer
    return found


async def release_locks(store: Store, request: enode_pb2.ReleaseLocksRequest) -> enode_pb2.ReleaseLocksResponse:
    """Free the locks that their sessions hold."""
    keys = [(_key(wish), wish.session_id) for wish in _checked(request.wishes)]
    return enode_pb2.ReleaseLocksResponse(released=await store.locks.release(keys))


def query_locks(store: Store, request: enode_pb2.QueryLocksRequest) -> enode_pb2.QueryLocksResponse:
    """The locks that are held."""
    return enode_pb2.QueryLocksResponse(
        locks=[
            enode_pb2.HeldLock(
                queue_id=queue_id,
                owner=lock.owner,
                session_id=lock.session_id,
                generation=lock.generation,
                remaining_ms=int(remaining_s * 1000),
                incarnation=lock.incarnation,
            )
            for queue_id, lock, remaining_s in store.locks.of_group(request.topic_id, request.group)
        ]
    )


def _checked(wishes: Iterable[enode_pb2.LockWish]) -> list[enode_pb2.LockWish]:
    """Refuse what cannot be stored. Errors: Invalid."""
    checked = list(wishes)
    if not 1 <= len(checked) <= WISHES_MAX:
        raise Invalid(f"{len(checked)} locks; give 1 to {WISHES_MAX}", field="wishes")
    for wish in checked:
        check_group_name(wish.group, "wishes.group")
        if not 1 <= len(wish.session_id) <= TEXT_LENGTH_MAX or len(wish.owner) > TEXT_LENGTH_MAX:
            raise Invalid(f"give a session, and at most {TEXT_LENGTH_MAX} characters each", field="wishes.session_id")
    return checked


def _key(wish: enode_pb2.LockWish) -> Key:
    return wish.topic_id, wish.group, wish.queue_id


def _answer(answer: Granted | Refused) -> enode_pb2.LockAnswer:
    if isinstance(answer, Granted):
        return enode_pb2.LockAnswer(generation=answer.generation)
    return enode_pb2.LockAnswer(owner=answer.owner, remaining_ms=max(1, int(answer.remaining_s * 1000)))
