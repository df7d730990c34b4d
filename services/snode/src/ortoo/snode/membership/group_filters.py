"""The filters of a group's members, if they differ: a message that one member excludes may be for another one."""

from collections import OrderedDict

from ortoo.common.arrays.opened_batch import OpenedBatch
from ortoo.common.errors import OrtooError
from ortoo.common.filters.message_filter import MessageFilter, compile_filter
from ortoo.common.groups.group_topics import parent_of_topic
from ortoo.snode.membership.group_membership import POP_GROUP_PREFIX, Membership

CACHED_MAX = 10_000
Filters = tuple[MessageFilter | None, ...]
"""None = all messages."""


class GroupFilters:
    """The filters of the members of each group in each topic."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._cached: OrderedDict[tuple[str, str], tuple[tuple[int, int], Filters]] = OrderedDict()
        """By (group, topic): the generations of the members, and their filters."""

    def differing(self, group: str, topic: str) -> Filters:
        """The filters of the members for a topic, each once; empty if all members have the same filter.

        Members subscribe to the parent of a lite topic.
        """
        topic = parent_of_topic(topic) or topic
        places = (group, POP_GROUP_PREFIX + group)
        generations = (self._membership.generation(places[0]), self._membership.generation(places[1]))
        cached = self._cached.get((group, topic))
        if cached is not None and cached[0] == generations:
            return cached[1]
        texts = {
            ("" if one.tag_expression == "*" else one.tag_expression, one.sql_expression)
            for place in places
            for member in self._membership.members(place).values()
            for one in member.subscriptions
            if one.topic == topic and not member.broadcast
        }
        found = tuple(_compiled(*text) for text in sorted(texts)) if len(texts) > 1 else ()
        self._cached[group, topic] = (generations, found)
        if len(self._cached) > CACHED_MAX:
            self._cached.popitem(last=False)
        return found


def wanted_rows(filters: Filters, opened: OpenedBatch) -> set[int]:
    """The rows of a batch that at least one of the filters selects."""
    wanted: set[int] = set()
    for one in filters:
        rows = one.select(opened) if one is not None else None
        if rows is None:
            return set(range(opened.count))
        wanted.update(rows.tolist())
    return wanted


def _compiled(tag_expression: str, sql_expression: str) -> MessageFilter | None:
    """The filter of a member. A filter of a newer version, which cannot be compiled here, selects everything."""
    try:
        return compile_filter(tag_expression, sql_expression)
    except OrtooError:
        return None
