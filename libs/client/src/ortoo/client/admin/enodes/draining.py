"""Drain and fill an enode: stop and resume sends to it, topic by topic, and count what is left on it."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ortoo.client.admin.admin import Admin
from ortoo.client.admin.topics import TopicInfo
from ortoo.common.errors import Conflict, NotFound, Unavailable, Unsupported

LISTED_MAX = 10_000
"""Limit of a request for delayed messages or open transactions, which is the server's maximum."""
_SYSTEM_PREFIX = "%"
"""Beginning of the names of topics that servers create, such as retry topics."""
Order = list[tuple[str, int]]


class RemainingMessages(NamedTuple):
    """The number of messages in a topic that a group has not read on an enode."""

    topic: str
    group: str
    messages: int


@dataclass(frozen=True, slots=True)
class EnodeTopics:
    """The topics with queues on an enode, as far as a drain or a forgotten enode concerns them."""

    enode: str
    topics: tuple[TopicInfo, ...]

    @property
    def sole_topics(self) -> tuple[str, ...]:
        """Topics that producers could not use without the enode. They have to be spread before a drain."""
        return tuple(
            one.name for one in self.topics if not self._order_without(one) and not one.name.startswith(_SYSTEM_PREFIX)
        )

    @property
    def undrained(self) -> dict[str, Order]:
        """Topics in which producers use queues of the enode and of others, with the publish order without the enode."""
        orders = ((one, self._order_without(one)) for one in self.topics)
        return {one.name: order for one, order in orders if order and order != list(one.publish_order)}

    @property
    def drained(self) -> dict[str, Order]:
        """Topics in which producers do not use the enode, with the publish order that uses it again."""
        found: dict[str, Order] = {}
        for topic in self.topics:
            if topic.publish_order and all(name != self.enode for name, _ in topic.publish_order):
                count = next(one.write_queue_count for one in topic.placements if one.enode == self.enode)
                order = [*topic.publish_order, (self.enode, count)]
                everything = sorted(order) == sorted((one.enode, one.write_queue_count) for one in topic.placements)
                found[topic.name] = [] if everything else order
        return found

    def _order_without(self, topic: TopicInfo) -> Order:
        """The topic's publish order, or its write queues in placement order, without the queues of the enode."""
        order = topic.publish_order or tuple((one.enode, one.write_queue_count) for one in topic.placements)
        return [(name, count) for name, count in order if name != self.enode and count]


async def topics_on(admin: Admin, enode: str) -> EnodeTopics:
    """The topics that have queues on an enode. Errors: NotFound."""
    enode_names = [one.name for one in (await admin.describe_cluster()).enodes]
    if enode not in enode_names:
        raise NotFound(f"there is no enode {enode!r}; the enodes are {', '.join(enode_names)}", field="enode")
    listed = await admin.list_topics()
    return EnodeTopics(enode, tuple(one for one in listed if any(place.enode == enode for place in one.placements)))


async def drain_enode(admin: Admin, here: EnodeTopics) -> list[str]:
    """Stop sends to an enode; returns the changed topics. Errors: Conflict when a topic has no other enode."""
    if sole_topics := here.sole_topics:
        raise Conflict(
            f"topics {', '.join(sole_topics)} have write queues only on {here.enode}; add other enodes first with "
            f"`ortoo topic update {sole_topics[0]} --enode OTHER` (nothing was changed)",
            field="enode",
        )
    return await _set_orders(admin, here.undrained)


async def fill_enode(admin: Admin, here: EnodeTopics) -> list[str]:
    """Resume sends to an enode that was drained; returns the changed topics."""
    return await _set_orders(admin, here.drained)


async def _set_orders(admin: Admin, orders: dict[str, Order]) -> list[str]:
    for name, order in orders.items():
        await admin.update_topic(name, publish_order=order)
    return list(orders)


async def list_remaining(admin: Admin, enode: str, topics: Sequence[TopicInfo]) -> list[RemainingMessages]:
    """Unread, delayed and transactional messages on an enode, and its schedules. Errors: Unavailable."""
    remaining = []
    for topic in topics:
        for group in await admin.groups.list_topic_groups(topic.name):
            lag = await admin.describe_lag(group, topic.name)
            messages = sum(one.lag_messages for one in lag.queues if one.queue.enode == enode)
            if enode in lag.unreachable_enodes:
                raise Unavailable(
                    f"enode {enode} cannot be reached, so its unread messages are unknown; start it, then retry"
                )
            if messages:
                remaining.append(RemainingMessages(topic.name, group, messages))
        if here := await _count_delayed(admin, enode, topic.name):
            remaining.append(RemainingMessages(topic.name, "(delayed)", here))
    transactions = await admin.list_transactions(limit=LISTED_MAX)
    here = sum(one.queue.enode == enode for one in transactions)
    if here or len(transactions) == LISTED_MAX:  # others beyond the limit may be on this enode
        remaining.append(RemainingMessages("(any)", "(transactions)", here))
    with contextlib.suppress(Unsupported):  # by a snode of an older version, whose enodes have none
        if here := await count_schedules(admin, enode, topics):
            remaining.append(RemainingMessages("(any)", "(schedules)", here))
    return remaining


async def count_schedules(admin: Admin, enode: str, topics: Sequence[TopicInfo]) -> int:
    """The number of schedules on an enode. A topic has fewer than the limit of a list, all topics may have more."""
    listed = (await admin.schedules.list(limit=LISTED_MAX)).schedules
    if len(listed) == LISTED_MAX:
        listed = tuple(
            [one for topic in topics for one in (await admin.schedules.list(topic.name, limit=LISTED_MAX)).schedules]
        )
    return sum(one.queue.enode == enode for one in listed)


async def _count_delayed(admin: Admin, enode: str, topic: str) -> int:
    """Count the delayed messages on an enode up to the first page of the list that has any; 0 = there are none."""
    from_ms = 0
    while True:
        listed = await admin.list_delayed(topic, from_ms=from_ms, limit=LISTED_MAX)
        here = sum(one.queue.enode == enode for one in listed)
        if here or len(listed) < LISTED_MAX:
            return here
        from_ms = max(from_ms + 1, listed[-1].deliver_at_ms)
