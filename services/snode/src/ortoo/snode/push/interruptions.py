"""The messages that a client has when its session ends without an answer, recorded at their enodes.

The next session reads the record when it starts the queue. See `redelivery` for what it does with it.
"""

import asyncio
import contextlib
from collections.abc import Container, Mapping

from ortoo.common.errors import OrtooError
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.enodes.link import EnodeLinks, Interruption
from ortoo.snode.push.feeder import Feeder, PushContext
from ortoo.snode.push.flow import QueueCursor

RECORD_TIMEOUT_S = 4.0
"""Time for which the next owner of a queue waits for the record."""


def unacknowledged_messages(feeders: Mapping[Queue, Feeder]) -> int:
    """The number of messages that were sent and not acknowledged."""
    return sum(feeder.cursor.unacknowledged_messages for feeder in feeders.values())


def start_recording(
    context: PushContext,
    group: str,
    client_id: str,
    feeders: Mapping[Queue, Feeder],
    redelivered: Container[Queue],
    *,
    all_sent: bool,
) -> None:
    """Start to record the messages of a client whose session ends. The queues are released when it is done.

    A queue in `redelivered` without a message of the client gets an empty range: its messages did not end the client.
    `all_sent`: no delivery waits in the outbox.
    """
    is_only = all_sent and unacknowledged_messages(feeders) == 1
    interrupted: dict[tuple[str, int], list[tuple[Feeder, Interruption]]] = {}
    for queue, feeder in feeders.items():
        one = _interruption_of(feeder.cursor, is_only=is_only)
        if feeder.lock is not None and (one.offset < one.end_offset or queue in redelivered):
            interrupted.setdefault((queue.enode, feeder.topic_id), []).append((feeder, one))
    for (enode, topic_id), pairs in interrupted.items():
        recording = _record(context.links, enode, topic_id, group, client_id, [one for _, one in pairs])
        task = context.background.run_contained("interruptions", recording)
        for feeder, _ in pairs:
            feeder.recording = task


async def _record(
    links: EnodeLinks, enode: str, topic_id: int, group: str, client_id: str, found: list[Interruption]
) -> None:
    """Record interruptions at an enode. If it does not answer in time, these attempts do not count."""
    with contextlib.suppress(OrtooError, TimeoutError):
        async with asyncio.timeout(RECORD_TIMEOUT_S):
            await links.to(enode).record_interruptions(group, topic_id, client_id, found)


def _interruption_of(cursor: QueueCursor, *, is_only: bool) -> Interruption:
    """The messages that a client has in a queue. `is_only`: the session has a single message."""
    queue_id, first = cursor.queue.queue_id, cursor.first_unacknowledged_offset
    if not cursor.unacknowledged_messages:
        return Interruption(queue_id, first, first)
    if is_only:
        return Interruption(queue_id, cursor.last_message_offset, cursor.last_message_offset + 1, attempts=1)
    return Interruption(queue_id, first, cursor.sent_offset)
