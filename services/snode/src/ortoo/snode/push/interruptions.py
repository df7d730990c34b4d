"""The messages that a client has when its session ends without an answer, recorded at their enodes.

The next session reads the record when it starts the queue. See `redelivery` for what it does with it.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence

from ortoo.common.errors import OrtooError
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.enodes.link import EnodeLinks, Interruption
from ortoo.snode.push.feeder import Feeder, PushContext
from ortoo.snode.push.flow import QueueCursor
from ortoo.snode.push.redelivery import RedeliveryLimit

RECORD_TIMEOUT_S = 4.0
"""Time for which the next owner of a queue waits for the record."""


def unacknowledged_messages(cursors: Iterable[QueueCursor]) -> int:
    """The number of messages that a client has."""
    return sum(cursor.unacknowledged_messages for cursor in cursors)


def interruption_of(cursor: QueueCursor, *, is_only: bool) -> Interruption:
    """The messages that a client has in a queue; an empty range if it has none.

    `is_only`: the client has a single message in all its queues.
    """
    queue_id, first = cursor.queue.queue_id, cursor.first_unacknowledged_offset
    if not cursor.unacknowledged_messages:
        return Interruption(queue_id, first, first)
    if is_only:
        return Interruption(queue_id, cursor.last_message_offset, cursor.last_message_offset + 1, attempts=1)
    return Interruption(queue_id, first, cursor.sent_offset)


async def record_interruptions(
    links: EnodeLinks, enode: str, topic_id: int, group: str, client_id: str, found: Sequence[Interruption]
) -> None:
    """Record interruptions at an enode. If it does not answer in time, these attempts do not count."""
    with contextlib.suppress(OrtooError, TimeoutError):
        async with asyncio.timeout(RECORD_TIMEOUT_S):
            await links.to(enode).record_interruptions(group, topic_id, client_id, found)


def start_recording(
    context: PushContext,
    group: str,
    client_id: str,
    feeders: Mapping[Queue, Feeder],
    redelivery: RedeliveryLimit,
    *,
    all_sent: bool,
) -> None:
    """Start to record the messages of a client whose session ends. The queues are released when it is done.

    `all_sent`: no delivery waits in the outbox.
    """
    is_only = all_sent and unacknowledged_messages(feeder.cursor for feeder in feeders.values()) == 1
    interrupted: dict[tuple[str, int], list[tuple[Feeder, Interruption]]] = {}
    for queue, feeder in feeders.items():
        one = interruption_of(feeder.cursor, is_only=is_only)
        if feeder.lock is not None and redelivery.is_worth_recording(queue, one):
            interrupted.setdefault((queue.enode, feeder.topic_id), []).append((feeder, one))
    for (enode, topic_id), pairs in interrupted.items():
        rows = [one for _, one in pairs]
        recording = record_interruptions(context.links, enode, topic_id, group, client_id, rows)
        task = context.background.run_contained("interruptions", recording)
        for feeder, _ in pairs:
            feeder.recording = task
