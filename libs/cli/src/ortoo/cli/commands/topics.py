"""`ortoo topic ...`."""

from typing import TYPE_CHECKING, Annotated

import typer

from ortoo.cli.terminal.command import TopicName
from ortoo.cli.terminal.output import Answer, Columns, Table
from ortoo.common.errors import Invalid

if TYPE_CHECKING:
    from ortoo.client import Client, TopicInfo

SORTED_ORDER = "sorted"


async def create(
    mq: "Client",
    name: TopicName,
    queues: Annotated[int, typer.Option(help="Queues on each enode; 0 = 4.")] = 0,
    message_type: Annotated[
        str,
        typer.Option(
            "--type", help="What RocketMQ's clients may send: any, normal, fifo, delay, transaction, priority, lite."
        ),
    ] = "any",
) -> Answer:
    """Create a topic."""
    topic = await mq.admin.create_topic(name, queue_count=queues, message_type=message_type)
    return Answer(topic, f"created topic {topic.name} with {_queue_count(topic)} queues")


async def show_all(mq: "Client") -> Answer:
    """Show all topics."""
    topics = await mq.admin.list_topics()
    return Answer(topics, Table({"TOPIC": "name", "QUEUES": _queue_count, "PERMISSION": "permission"}, topics))


async def describe(mq: "Client", name: TopicName) -> Answer:
    """Show a topic and what its queues hold."""
    found = await mq.admin.describe_topic(name)
    stored = sum(item.end_offset - item.begin_offset for item in found.queues)
    columns: Columns = {"ENODE": "queue.enode", "QUEUE": "queue.queue_id", "BEGIN": "begin_offset", "END": "end_offset"}
    line = f"{name}: {stored} messages in {len(found.queues)} queues, {found.topic.permission}"
    return Answer(found, (line, Table(columns, found.queues)))


async def update(
    mq: "Client",
    name: TopicName,
    queues: Annotated[int, typer.Option(min=0, help="Queues to read and write on each enode; never fewer.")] = 0,
    write_queues: Annotated[int, typer.Option(min=0, help="Queues to write; fewer let the others run dry.")] = 0,
    permission: Annotated[str, typer.Option(help="read_write, read_only, write_only or none.")] = "",
    enode: Annotated[list[str] | None, typer.Option(help="An enode to add; several times.")] = None,
    publish_order: Annotated[
        str, typer.Option(help="Queues that producers get, in this order: ENODE:QUEUES;ENODE:QUEUES, or sorted.")
    ] = "",
) -> Answer:
    """Change a topic; what is not given stays."""
    topic = await mq.admin.update_topic(
        name,
        read_queue_count=queues,
        write_queue_count=write_queues or queues,
        permission=permission,
        add_enodes=enode or [],
        publish_order=_publish_order(publish_order),
    )
    return Answer(topic, f"{topic.name} has {_queue_count(topic)} queues, {topic.permission}")


async def delete(mq: "Client", name: TopicName) -> Answer:
    """Delete a topic and its messages."""
    await mq.admin.delete_topic(name)
    return Answer({"deleted": name}, f"deleted topic {name}")


def _publish_order(text: str) -> list[tuple[str, int]] | None:
    """What `enode-1:4;enode-0:2` says; None for nothing. Errors: Invalid."""
    if not text:
        return None
    pairs = [place.rpartition(":") for place in text.split(";")] if text != SORTED_ORDER else []
    if not all(enode and count.isdigit() for enode, _, count in pairs):
        raise Invalid(f"{text!r}; expected ENODE:QUEUES;ENODE:QUEUES, or {SORTED_ORDER}", field="publish_order")
    return [(enode, int(count)) for enode, _, count in pairs]


def _queue_count(topic: "TopicInfo") -> int:
    return sum(placement.read_queue_count for placement in topic.placements)
