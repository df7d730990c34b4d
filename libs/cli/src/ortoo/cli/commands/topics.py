"""`ortoo topic ...`."""

from collections.abc import Sequence

from ortoo.cli.terminal.output import print_json, print_table
from ortoo.client import Invalid, TopicInfo, connect

SORTED_ORDER = "sorted"


async def create(addresses: Sequence[str], name: str, queues: int, message_type: str, *, as_json: bool) -> None:
    """Create a topic and say so."""
    async with connect(addresses) as mq:
        topic = await mq.admin.create_topic(name, queue_count=queues, message_type=message_type)
    if as_json:
        print_json(topic)
    else:
        print(f"created topic {topic.name} with {_queue_count(topic)} queues")


async def show_all(addresses: Sequence[str], *, as_json: bool) -> None:
    """Print all topics."""
    async with connect(addresses) as mq:
        topics = await mq.admin.list_topics()
    if as_json:
        print_json(topics)
    else:
        print_table(("TOPIC", "QUEUES", "PERMISSION"), [(t.name, _queue_count(t), t.permission) for t in topics])


async def describe(addresses: Sequence[str], name: str, *, as_json: bool) -> None:
    """Print a topic and what its queues hold."""
    async with connect(addresses) as mq:
        description = await mq.admin.describe_topic(name)
    if as_json:
        print_json(description)
        return
    stored = sum(item.end_offset - item.begin_offset for item in description.queues)
    print(f"{name}: {stored} messages in {len(description.queues)} queues, {description.topic.permission}")
    print_table(
        ("ENODE", "QUEUE", "BEGIN", "END"),
        [(q.queue.enode, q.queue.queue_id, q.begin_offset, q.end_offset) for q in description.queues],
    )


async def update(
    addresses: Sequence[str],
    name: str,
    *,
    queues: int,
    write_queues: int,
    permission: str,
    enodes: Sequence[str],
    publish_order: str,
    as_json: bool,
) -> None:
    """Change a topic and say what it is now."""
    order = _publish_order(publish_order)
    async with connect(addresses) as mq:
        topic = await mq.admin.update_topic(
            name,
            read_queue_count=queues,
            write_queue_count=write_queues or queues,
            permission=permission,
            add_enodes=enodes,
            publish_order=order,
        )
    if as_json:
        print_json(topic)
    else:
        print(f"{topic.name} has {_queue_count(topic)} queues, {topic.permission}")


async def delete(addresses: Sequence[str], name: str, *, as_json: bool) -> None:
    """Delete a topic and say so."""
    async with connect(addresses) as mq:
        await mq.admin.delete_topic(name)
    if as_json:
        print_json({"deleted": name})
    else:
        print(f"deleted topic {name}")


def _publish_order(text: str) -> list[tuple[str, int]] | None:
    """What `enode-1:4;enode-0:2` says; None for nothing. Errors: Invalid."""
    if not text:
        return None
    pairs = [place.rpartition(":") for place in text.split(";")] if text != SORTED_ORDER else []
    if not all(enode and count.isdigit() for enode, _, count in pairs):
        raise Invalid(f"{text!r}; expected ENODE:QUEUES;ENODE:QUEUES, or {SORTED_ORDER}", field="publish_order")
    return [(enode, int(count)) for enode, _, count in pairs]


def _queue_count(topic: TopicInfo) -> int:
    return sum(placement.read_queue_count for placement in topic.placements)
