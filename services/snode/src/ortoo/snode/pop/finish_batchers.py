"""Batches acks of many consumers to the same enode into one request."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ortoo.common.errors import OrtooError
from ortoo.common.groups.pop import Finish, LeasePart, StaleMessage, merge_ranges
from ortoo.common.process.background import Background
from ortoo.common.process.containment import as_ortoo_error, record_contained
from ortoo.snode.enodes.link import EnodeLinks
from ortoo.snode.enodes.serial_batcher import SerialBatcher

MESSAGES_MAX = 32_768
"""Maximum of messages acked by one request, unless a single consumer acks more at once."""
Place = tuple[str, int, str]
"""(enode, topic id, group)."""
Finished = Callable[[list[StaleMessage] | OrtooError], None]
"""Takes the stale messages of a whole request, or its error. If it raises, the other acks are still answered."""


class FinishBatcher(SerialBatcher):
    """The acks for one group and topic on one enode. Acks that arrive during a request are sent in the next request."""

    def __init__(self, links: EnodeLinks, place: Place) -> None:
        self._links = links
        self._place = place
        self._waiting: deque[tuple[Sequence[LeasePart], int, Finished]] = deque()
        """Messages to ack, their number, and the function that takes the outcome."""

    def put(self, parts: Sequence[LeasePart], finished: Finished) -> None:
        """Queue messages to ack."""
        self._waiting.append((parts, _count_messages(parts), finished))

    async def drain(self) -> None:
        """Send requests until no message waits. An error fails the acks of its request, whose callers retry."""
        enode, topic_id, group = self._place
        while self._waiting:
            together = self._take_request()
            outcome: list[StaleMessage] | OrtooError
            try:
                merged = _merged([part for parts, _ in together for part in parts])
                found = await self._links.to(enode).settle(topic_id, group, [whole for whole, _ in merged], Finish())
                outcome = _for_each_part(merged, found)
            except Exception as error:
                outcome = as_ortoo_error(error, "ack")
            for _, finished in together:
                try:
                    finished(outcome)
                except Exception as error:  # the other callers still wait
                    record_contained("ack", error)
            del together, outcome

    def _take_request(self) -> list[tuple[Sequence[LeasePart], Finished]]:
        parts, size, finished = self._waiting.popleft()
        together = [(parts, finished)]
        while self._waiting and (size := size + self._waiting[0][1]) <= MESSAGES_MAX:
            parts, _, finished = self._waiting.popleft()
            together.append((parts, finished))
        return together


class FinishBatchers:
    """The batchers of all groups, topics and enodes."""

    def __init__(self, links: EnodeLinks, background: Background) -> None:
        self._links = links
        self._background = background
        self._batchers: dict[Place, FinishBatcher] = {}

    def put(self, place: Place, parts: Sequence[LeasePart], finished: Finished) -> None:
        """Ack messages. `finished` is called when the acks are durable, or with an error of `GrpcEnodeLink.settle`."""
        batcher = self._batchers.get(place)
        if batcher is None:
            self._drop_idle()
            batcher = self._batchers[place] = FinishBatcher(self._links, place)
        batcher.put(parts, finished)
        if not batcher.is_draining:
            batcher.wake(self._background, "ack")

    async def finish(self, place: Place, parts: Sequence[LeasePart]) -> list[StaleMessage]:
        """Ack messages; returns the stale messages of the whole request when the acks are durable.

        Errors: as `GrpcEnodeLink.settle`.
        """
        future: asyncio.Future[list[StaleMessage]] = asyncio.get_running_loop().create_future()
        self.put(place, parts, partial(_set_outcome, future))
        try:
            return await future
        finally:
            del future  # its error has a traceback with this frame

    def _drop_idle(self) -> None:
        """Remove idle batchers. Runs when a batcher is added, which is rare enough for a full scan."""
        for place in [place for place, batcher in self._batchers.items() if not batcher.is_draining]:
            del self._batchers[place]


def _set_outcome(future: asyncio.Future[list[StaleMessage]], outcome: list[StaleMessage] | OrtooError) -> None:
    if future.done():  # its caller has disconnected
        return
    if isinstance(outcome, OrtooError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def _merged(parts: Sequence[LeasePart]) -> list[tuple[LeasePart, list[LeasePart]]]:
    """A part for each lease, with the parts that it stands for. A consumer acks the messages of a lease one by one."""
    leases: dict[tuple[int, int, bool, bool, bool], list[LeasePart]] = {}
    for part in parts:
        lease = (part.queue_id, part.number, part.is_exact, part.unexpired_only, part.any_lease)
        leases.setdefault(lease, []).append(part)
    merged: list[tuple[LeasePart, list[LeasePart]]] = []
    for same in leases.values():
        if len(same) == 1:
            merged.append((same[0], same))
            continue
        ranges = {one for part in same for one in part.ranges}
        whole = replace(same[0], ranges=tuple(merge_ranges(ranges)))
        # The enode refuses an invalid part as a whole, so it must not have the messages of others.
        merged += [(whole, same)] if whole.is_valid else [(part, [part]) for part in same]
    return merged


def _for_each_part(
    merged: Sequence[tuple[LeasePart, list[LeasePart]]], found: list[StaleMessage]
) -> list[StaleMessage]:
    """The stale messages. An error, which the enode reports once for a lease, is repeated for each of its parts."""
    errors = {(one.queue_id, one.offset, one.number): one.error for one in found if one.error is not None}
    if not errors:
        return found
    stale = [one for one in found if one.error is None]
    for whole, parts in merged:
        at = (whole.queue_id, whole.ranges[0][0] if whole.ranges else 0)
        # An older enode does not report the number of the lease.
        error = errors.get((*at, whole.number)) or errors.get((*at, 0))
        if error is not None:
            stale += [StaleMessage(one.queue_id, one.ranges[0][0], one.number, error) for one in parts if one.ranges]
    return stale


def _count_messages(parts: Sequence[LeasePart]) -> int:
    return sum(count for part in parts for _, count in part.ranges)
