"""The queues of a topic for producers, in an order that an operator chose instead of the sorted one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ortoo.common.cluster.names import check_process_name
from ortoo.common.errors import Invalid

FIELD = "publish_order"


@dataclass(frozen=True, slots=True)
class PublishPlace:
    """An entry of a publish order: producers use the first `queue_count` queues of a topic on one enode."""

    enode: str
    queue_count: int


PublishOrder = tuple[PublishPlace, ...]
"""The queues in this order; empty = all queues that accept messages, by enode."""


def check_publish_order(order: Sequence[PublishPlace], write_queue_counts: Mapping[str, int]) -> None:
    """Refuse a publish order with unknown enodes or queues. Errors: Invalid.

    `write_queue_counts` has the number of the topic's queues for producers on each enode.
    """
    seen: set[str] = set()
    for number, place in enumerate(order):
        field = f"{FIELD}[{number}]"
        check_process_name(place.enode, f"{field}.enode")
        if place.enode in seen:
            raise Invalid(f"enode {place.enode!r} is named twice; name each enode once", field=f"{field}.enode")
        seen.add(place.enode)
        most = write_queue_counts.get(place.enode)
        if most is None:
            here = ", ".join(sorted(write_queue_counts)) or "no enode"
            raise Invalid(
                f"the topic has no queues on {place.enode!r}; its queues are on {here}. Add the enode to the topic "
                "first, or leave it out of the order",
                field=f"{field}.enode",
            )
        if not 1 <= place.queue_count <= most:
            raise Invalid(
                f"{place.queue_count} queues; {place.enode} has {most} that accept messages. Give 1 to {most}, "
                "or change the order together with write_queue_count",
                field=f"{field}.queue_count",
            )


def format_order(order: Sequence[PublishPlace]) -> str:
    """The stored form of a publish order: `enode-1:4;enode-0:2`."""
    return ";".join(f"{place.enode}:{place.queue_count}" for place in order)


def parse_order(text: str) -> PublishOrder:
    """Parse the stored form of a publish order."""
    pairs = (place.rpartition(":") for place in filter(None, text.split(";")))
    return tuple(PublishPlace(enode, int(count)) for enode, _, count in pairs)
