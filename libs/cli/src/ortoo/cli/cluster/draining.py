"""`ortoo enode drain` and `ortoo enode fill`: stop and resume sends to an enode."""

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from ortoo.cli.terminal.command import EnodeName
from ortoo.cli.terminal.completion import SYSTEM_PREFIX
from ortoo.cli.terminal.output import CommandOutput, OutputTable
from ortoo.common.errors import Conflict, NotFound, Unavailable, Unsupported

if TYPE_CHECKING:
    from ortoo.client import Client, TopicInfo

POLL_INTERVAL_S = 1.0
ROUTE_EXPIRY_S = 35.0
"""Producers query routes every 30 s; until then they may send to an enode that is being drained."""

LISTED_MAX = 10_000
"""Limit of a request for delayed messages or open transactions, which is the server's maximum."""


class RemainingMessages(NamedTuple):
    """The number of messages in a topic that a group has not read on an enode."""

    topic: str
    group: str
    messages: int


async def drain(
    mq: "Client",
    enode: EnodeName,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until no new messages arrive and all are read.")] = False,
) -> CommandOutput:
    """Stop sends to an enode, and show its unread messages. Message groups move to other enodes."""
    topics = await _topics_on(mq, enode)
    sole_topics = [
        one.name for one in topics if not _order_without(one, enode) and not one.name.startswith(SYSTEM_PREFIX)
    ]
    if sole_topics:
        raise Conflict(
            f"topics {', '.join(sole_topics)} have write queues only on {enode}; add other enodes first with "
            f"`ortoo topic update {sole_topics[0]} --enode OTHER` (nothing was changed)",
            field="enode",
        )
    changed = []
    for topic in topics:
        order = _order_without(topic, enode)
        if order and order != list(topic.publish_order):
            await mq.admin.update_topic(topic.name, publish_order=order)
            changed.append(topic.name)
    remaining = await (_wait_drained(mq, enode, topics) if wait else _remaining(mq, enode, topics))
    summary = f"no messages are sent to {enode}: changed {len(changed)} of its {len(topics)} topics"
    value = {"enode": enode, "changed": changed, "left": remaining}
    if not remaining:
        return CommandOutput(value, f"{summary}; all groups have read its messages")
    table = OutputTable({"TOPIC": "topic", "GROUP": "group", "MESSAGES": "messages"}, remaining)
    return CommandOutput(value, (f"{summary}; unread messages:", table))


async def fill(mq: "Client", enode: EnodeName) -> CommandOutput:
    """Resume sends to an enode that was drained."""
    changed = []
    for topic in await _topics_on(mq, enode):
        if topic.publish_order and all(name != enode for name, _ in topic.publish_order):
            count = next(one.write_queue_count for one in topic.placements if one.enode == enode)
            order = [*topic.publish_order, (enode, count)]
            everything = sorted(order) == sorted((one.enode, one.write_queue_count) for one in topic.placements)
            await mq.admin.update_topic(topic.name, publish_order=[] if everything else order)
            changed.append(topic.name)
    return CommandOutput({"enode": enode, "changed": changed}, f"resumed sends to {enode} in {len(changed)} topics")


async def _topics_on(mq: "Client", enode: str) -> "list[TopicInfo]":
    """The topics that have queues on an enode. Errors: NotFound."""
    enode_names = [one.name for one in (await mq.admin.describe_cluster()).enodes]
    if enode not in enode_names:
        raise NotFound(f"there is no enode {enode!r}; the enodes are {', '.join(enode_names)}", field="enode")
    return [one for one in await mq.admin.list_topics() if any(place.enode == enode for place in one.placements)]


async def _wait_drained(mq: "Client", enode: str, topics: "Sequence[TopicInfo]") -> list[RemainingMessages]:
    """Wait until all producers have queried the new routes and every message is read."""
    from ortoo.common.process.clock import SystemClock

    clock = SystemClock()
    ends, unchanged_since_s = await _end_offset_sum(mq, enode, topics), clock.monotonic_s()
    while (
        remaining := await _remaining(mq, enode, topics)
    ) or clock.monotonic_s() - unchanged_since_s < ROUTE_EXPIRY_S:
        await clock.sleep(POLL_INTERVAL_S)
        if (found := await _end_offset_sum(mq, enode, topics)) != ends:
            ends, unchanged_since_s = found, clock.monotonic_s()
    return remaining


async def _end_offset_sum(mq: "Client", enode: str, topics: "Sequence[TopicInfo]") -> int:
    """The sum of the end offsets of all queues of the topics on the enode."""
    described = [(await mq.admin.describe_topic(topic.name)).queues for topic in topics]
    return sum(one.end_offset for queues in described for one in queues if one.queue.enode == enode)


def _order_without(topic: "TopicInfo", enode: str) -> list[tuple[str, int]]:
    """The topic's publish order, or its write queues in placement order, without the queues of an enode."""
    order = topic.publish_order or tuple((one.enode, one.write_queue_count) for one in topic.placements)
    return [(name, count) for name, count in order if name != enode and count]


async def _remaining(mq: "Client", enode: str, topics: "Sequence[TopicInfo]") -> list[RemainingMessages]:
    """Unread, delayed and transactional messages on an enode, and its schedules."""
    remaining = []
    for topic in topics:
        for group in await mq.admin.groups.list_topic_groups(topic.name):
            lag = await mq.admin.describe_lag(group, topic.name)
            messages = sum(one.lag_messages for one in lag.queues if one.queue.enode == enode)
            if enode in lag.unreachable_enodes:
                raise Unavailable(
                    f"enode {enode} cannot be reached, so its unread messages are unknown; start it, then retry"
                )
            if messages:
                remaining.append(RemainingMessages(topic.name, group, messages))
        if here := await _count_delayed(mq, enode, topic.name):
            remaining.append(RemainingMessages(topic.name, "(delayed)", here))
    transactions = await mq.admin.list_transactions(limit=LISTED_MAX)
    here = sum(one.queue.enode == enode for one in transactions)
    if here or len(transactions) == LISTED_MAX:  # others beyond the limit may be on this enode
        remaining.append(RemainingMessages("(any)", "(transactions)", here))
    with contextlib.suppress(Unsupported):  # by a snode of an older version, whose enodes have none
        if here := await _count_schedules(mq, enode, topics):
            remaining.append(RemainingMessages("(any)", "(schedules)", here))
    return remaining


async def _count_schedules(mq: "Client", enode: str, topics: "Sequence[TopicInfo]") -> int:
    """The number of schedules on an enode. A topic has fewer than the limit of a list, all topics may have more."""
    listed = (await mq.admin.schedules.list(limit=LISTED_MAX)).schedules
    if len(listed) == LISTED_MAX:
        listed = tuple(
            [one for topic in topics for one in (await mq.admin.schedules.list(topic.name, limit=LISTED_MAX)).schedules]
        )
    return sum(one.queue.enode == enode for one in listed)


async def _count_delayed(mq: "Client", enode: str, topic: str) -> int:
    """Count the delayed messages on an enode up to the first page of the list that has any; 0 = there are none."""
    from_ms = 0
    while True:
        listed = await mq.admin.list_delayed(topic, from_ms=from_ms, limit=LISTED_MAX)
        here = sum(one.queue.enode == enode for one in listed)
        if here or len(listed) < LISTED_MAX:
            return here
        from_ms = max(from_ms + 1, listed[-1].deliver_at_ms)
