"""Applies a consumer's filter to popped messages."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from ortoo.common.arrays.gather import gather
from ortoo.common.arrays.opened_batch import OpenedBatch
from ortoo.common.filters.message_filter import MessageFilter
from ortoo.common.groups.pop import LeasePart, PoppedBatch, ranges_of
from ortoo.snode.membership.group_filters import Filters, wanted_rows


@dataclass(slots=True)
class FilteredPop:
    """Popped messages, sorted by a filter."""

    matching: list[PoppedBatch] = field(default_factory=list)
    """Messages for the consumer."""
    filtered_out: list[LeasePart] = field(default_factory=list)
    """Messages that no member's filter selects; the group has finished them."""
    for_others: list[LeasePart] = field(default_factory=list)
    """Messages that only other members' filters select."""
    excess: list[PoppedBatch] = field(default_factory=list)
    """Matching messages beyond the number that the consumer requested."""


def filter_popped(
    batches: Iterable[PoppedBatch], message_filter: MessageFilter, messages_max: int, differing: Filters = ()
) -> FilteredPop:
    """Sort popped messages by a filter; at most `messages_max` matching messages are for the consumer.

    `differing` has the filters of all members, if they differ.
    """
    found = FilteredPop()
    room = messages_max
    for one in batches:
        opened = OpenedBatch(one.batch)
        rows = message_filter.select(opened)
        chosen = list(range(len(one.offsets))) if rows is None else rows.tolist()
        rest = set(range(len(one.offsets))).difference(chosen)
        wanted = rest & wanted_rows(differing, opened) if rest and differing else set[int]()
        for some, parts in ((rest - wanted, found.filtered_out), (wanted, found.for_others)):
            if ranges := ranges_of([one.offsets[row] for row in sorted(some)]):
                parts.append(LeasePart(one.queue_id, one.number, ranges))
        if chosen[:room]:
            found.matching.append(_take_rows(one, opened, chosen[:room]))
        if chosen[room:]:
            found.excess.append(_take_rows(one, opened, chosen[room:]))
        room -= len(chosen[:room])
    return found


def _take_rows(one: PoppedBatch, opened: OpenedBatch, rows: list[int]) -> PoppedBatch:
    if len(rows) == len(one.offsets):
        return one
    batch = gather(opened, np.array(rows, "<i4"))
    offsets, attempts = tuple(one.offsets[row] for row in rows), tuple(one.attempts[row] for row in rows)
    return replace(one, batch=batch, offsets=offsets, attempts=attempts)
