"""Parking by an operator: messages that a group cannot finish become dead letters, whichever consumer holds them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ortoo.common.cluster.names import check_group_name
from ortoo.common.errors import Conflict, Invalid, NotFound, OutOfRange, Unsupported
from ortoo.common.groups.pop import LeasePart, PopRules, Redeliver, RetryRequest, ranges_of
from ortoo.snode.cluster.directory import check_readable
from ortoo.snode.cluster.routes import Queue, Topic
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.enodes.link import EnodeLinks
from ortoo.snode.enodes.queue_deliveries import DeliveryRange, QueueDeliveries
from ortoo.snode.pull.queue_reader import QueueReader, messages_of
from ortoo.snode.topics.creation import GroupTopics, dead_letter_topic, retry_topic

OFFSETS_MAX = 1_024
"""Maximum number of messages in a request, and of messages that it parks."""
EXAMINED_MAX = 10_000
"""Maximum number of messages after the first requested one that are examined."""


@dataclass(frozen=True, slots=True)
class ParkingRequest:
    """The messages that an operator parks."""

    group: str
    queue: Queue
    offsets: Sequence[int]
    message_groups: bool = False
    """Whether later messages of their message groups are parked too."""
    reason: str = ""
    operator: str = ""
    """The user who parks them."""
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class ParkingResult:
    """The messages that were parked, or would be."""

    ranges: Sequence[DeliveryRange]
    """Each message as a range of its own, with its state before; by offset."""
    uses_pop: bool
    more: bool = False
    """Whether the message groups have more messages than were examined."""
    offset: int | None = None
    """The offset from which a group that commits offsets continues; a consumer may have committed a later one."""


@dataclass(slots=True, eq=False)
class OperatorParking:
    """Parks messages for operators. It is stateless."""

    watch: DirectoryWatch
    links: EnodeLinks
    group_topics: GroupTopics
    reader: QueueReader

    async def park(self, request: ParkingRequest) -> ParkingResult:
        """Park the requested messages that the group has not finished; returns when their dead letters are durable.

        Errors: Invalid, NotFound, OutOfRange, Unsupported (an enode of an older version), Unavailable. Conflict if a
        group that commits offsets has not finished an earlier message, or has finished one of these meanwhile.
        """
        check_group_name(request.group, "group")
        topic = await self.watch.topic(request.queue.topic)
        check_readable(topic, request.queue)
        first, last = _span(request.offsets)
        described = await self._describe(request, topic, first)
        _check_stored(request.queue, described, first, last)
        parked = {offset: one for offset in request.offsets if (one := described.unfinished(offset)) is not None}
        result = ParkingResult([parked[offset] for offset in sorted(parked)], described.uses_pop)
        if described.uses_pop:
            if request.message_groups:
                result = await self._with_message_groups(request, described, result)
        else:
            result = _in_order(request, described, result)
        if result.ranges and not request.dry_run:
            await self._park(request, topic, result)
        return result

    async def _describe(self, request: ParkingRequest, topic: Topic, first: int) -> QueueDeliveries:
        link = self.links.to(request.queue.enode)
        return await link.describe_deliveries(
            topic.topic_id, request.group, request.queue.queue_id, first=first, limit=EXAMINED_MAX
        )

    async def _with_message_groups(
        self, request: ParkingRequest, described: QueueDeliveries, result: ParkingResult
    ) -> ParkingResult:
        """The result with the later unfinished messages of the message groups."""
        if not result.ranges:
            return result
        first = result.ranges[0].first_offset
        end = described.described_end
        found = {one.first_offset: one for one in result.ranges}
        groups: set[str] = set()
        async for _, part in self.reader.fetch(request.queue, first, end, follow=False):
            for offset, message in messages_of(part):
                if offset in found and message.message_group:
                    groups.add(message.message_group)
                elif message.message_group in groups and (one := described.unfinished(offset)) is not None:
                    if len(found) >= OFFSETS_MAX:
                        return _popped(found, more=True)
                    found[offset] = one
        return _popped(found, more=end < described.end_offset)

    async def _park(self, request: ParkingRequest, topic: Topic, result: ParkingResult) -> None:
        enode, queue_id = request.queue.enode, request.queue.queue_id
        offsets = tuple(one.first_offset for one in result.ranges)
        letters_id = await self.group_topics.ensure(dead_letter_topic(request.group), enode)
        rules = PopRules(dead_letter_topic_id=letters_id)
        consumer, link = f"operator {request.operator}".strip(), self.links.to(enode)
        if result.offset is None:
            verdict = Redeliver(counts=False, consumer=consumer, error=request.reason, park=True, rules=rules)
            part = LeasePart(queue_id, 0, ranges_of(offsets), any_lease=True)
            stale = await link.settle(topic.topic_id, request.group, [part], verdict)
            if stale:
                raise stale[0].error or Unsupported(f"enode {enode} is too old to park messages; update it")
            return
        retry_id = await self.group_topics.ensure(retry_topic(request.group), enode)
        await link.retry_messages(
            RetryRequest(
                request.group, topic.topic_id, queue_id, offsets, retry_id, (0,), park=True, rules=rules, counts=False,
                consumer=consumer, error=request.reason, unfinished_only=True,
            )
        )  # fmt: skip
        # After a crash before the next step, a repeated call stores no second dead letter.
        row = (queue_id, result.offset, 0)
        await link.commit_offsets(topic.topic_id, request.group, [row], reset=True, forward_only=True)


def _popped(found: Mapping[int, DeliveryRange], *, more: bool) -> ParkingResult:
    return ParkingResult([found[one] for one in sorted(found)], True, more)


def _span(offsets: Sequence[int]) -> tuple[int, int]:
    """The first and the last offset. Errors: Invalid."""
    if not 1 <= len(offsets) <= OFFSETS_MAX or min(offsets) < 0:
        raise Invalid(f"{len(offsets)} offsets; give 1 to {OFFSETS_MAX:,}, each 0 or more", field="offsets")
    first, last = min(offsets), max(offsets)
    if last - first >= EXAMINED_MAX:
        raise Invalid(
            f"{first} and {last} are far apart; give offsets within {EXAMINED_MAX:,} of each other", field="offsets"
        )
    return first, last


def _check_stored(queue: Queue, described: QueueDeliveries, first: int, last: int) -> None:
    if first < described.begin_offset:
        raise OutOfRange(
            f"{first} was deleted by retention; queue {queue.queue_id} of {queue.enode} begins at offset "
            f"{described.begin_offset}",
            field="offsets",
        )
    if last >= described.end_offset:
        raise NotFound(
            f"queue {queue.queue_id} of {queue.enode} has no message at offset {last}; it ends before offset "
            f"{described.end_offset}",
            field="offsets",
        )
    if last >= described.described_end:
        raise Invalid(
            f"the states of the messages up to offset {last} do not fit into one answer; give offsets before "
            f"{described.described_end}",
            field="offsets",
        )


def _in_order(request: ParkingRequest, described: QueueDeliveries, result: ParkingResult) -> ParkingResult:
    """The result for a group that commits offsets: its offset moves past the messages. Errors: Invalid, Conflict."""
    group = request.group
    if request.message_groups:
        raise Invalid(
            f"group {group} commits offsets, so it cannot skip later messages; give the offsets alone",
            field="message_groups",
        )
    # All messages of its retry topic wait for the group, also before it has read the topic.
    if described.committed_offset < 0 and request.queue.topic != retry_topic(group):
        raise Conflict(
            f"group {group} has no offset in queue {request.queue.queue_id} of {request.queue.enode}, so no message "
            "waits for it there",
            field="group",
        )
    at = max(described.committed_offset, described.begin_offset)
    for one in result.ranges:
        if one.first_offset != at:
            raise Conflict(
                f"group {group} commits offsets and has not finished the message at offset {at}, which comes before "
                f"{one.first_offset}; park that one first, or reset the offset",
                field="offsets",
            )
        at += 1
    return ParkingResult(result.ranges, False, offset=at)
