"""`ortoo topic ...`."""

from typing import TYPE_CHECKING, Annotated

import typer

from ortoo.cli.terminal.command import Commands, TopicName
from ortoo.cli.terminal.completion import complete_deleted_topics, complete_enodes, complete_orphaned_topics
from ortoo.cli.terminal.output import Columns, CommandOutput, OutputTable, text_of_time
from ortoo.cli.terminal.targets import target_of
from ortoo.cli.terminal.values import milliseconds_of
from ortoo.common.errors import Invalid
from ortoo.common.logs.counts import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ortoo.client import Client, OrphanedTopic, TopicInfo, TrimmedQueue

SORTED_ORDER = "sorted"
LiteTtl = Annotated[
    str,
    typer.Option(help="Time without a message after which lite topics are deleted, such as 30m or 2d; 0s = never."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]


async def create(
    mq: "Client",
    name: Annotated[str, typer.Argument(help="The topic's name.")],
    queues: Annotated[int, typer.Option(help="Queues on each enode; 0 = 4.")] = 0,
    message_type: Annotated[
        str,
        typer.Option(
            "--type",
            help="Message type that RocketMQ clients may send: any, normal, fifo, delay, transaction, priority, lite.",
        ),
    ] = "any",
    lite_ttl: LiteTtl = "",
) -> CommandOutput:
    """Create a topic."""
    lite_ttl_ms = milliseconds_of(lite_ttl) if lite_ttl else 0
    topic = await mq.admin.create_topic(name, queue_count=queues, message_type=message_type, lite_ttl_ms=lite_ttl_ms)
    return CommandOutput(topic, f"topic {topic.name} is ready with {counted(_queue_count(topic), 'queue')}")


async def show_all(mq: "Client") -> CommandOutput:
    """Show all topics."""
    topics = await mq.admin.list_topics()
    return CommandOutput(
        topics, OutputTable({"TOPIC": "name", "QUEUES": _queue_count, "PERMISSION": "permission"}, topics)
    )


async def describe(mq: "Client", name: TopicName) -> CommandOutput:
    """Show a topic and the offset ranges of its queues."""
    found = await mq.admin.describe_topic(name)
    stored = sum(item.end_offset - item.begin_offset for item in found.queues)
    columns: Columns = {"ENODE": "queue.enode", "QUEUE": "queue.queue_id", "BEGIN": "begin_offset", "END": "end_offset"}
    line = f"{name}: {counted(stored, 'message')} in {counted(len(found.queues), 'queue')}, {found.topic.permission}"
    return CommandOutput(found, (line, OutputTable(columns, found.queues)))


async def update(
    mq: "Client",
    name: TopicName,
    queues: Annotated[int, typer.Option(min=0, help="Queues to read and write on each enode; cannot be reduced.")] = 0,
    write_queues: Annotated[
        int, typer.Option(min=0, help="Queues to write on each enode; further queues are only read.")
    ] = 0,
    permission: Annotated[str, typer.Option(help="read_write, read_only, write_only or none.")] = "",
    enode: Annotated[
        list[str] | None, typer.Option(help="An enode to add; several times.", autocompletion=complete_enodes)
    ] = None,
    publish_order: Annotated[
        str, typer.Option(help="Order for producers, ENODE:COUNT;…, with COUNT queues of each enode; sorted = all.")
    ] = "",
    lite_ttl: LiteTtl = "",
) -> CommandOutput:
    """Change a topic; options that are not given are unchanged."""
    topic = await mq.admin.update_topic(
        name,
        read_queue_count=queues,
        write_queue_count=write_queues or queues,
        permission=permission,
        add_enodes=enode or [],
        publish_order=_publish_order(publish_order),
        lite_ttl_ms=milliseconds_of(lite_ttl) if lite_ttl else None,
    )
    return CommandOutput(topic, f"{topic.name} has {counted(_queue_count(topic), 'queue')}, {topic.permission}")


async def delete(
    mq: "Client",
    name: TopicName,
    at_once: Annotated[
        bool, typer.Option("--at-once", help="Make the messages unreadable now; the topic cannot be restored.")
    ] = False,
) -> CommandOutput:
    """Delete a topic. It can be restored for a day (topic_deletion_grace_ms).

    Its disk space is free when retention deletes the segments with its messages.
    """
    await mq.admin.delete_topic(name, at_once=at_once)
    return CommandOutput({"deleted": name}, f"deleted topic {name}")


async def trim(
    mq: "Client",
    name: TopicName,
    before: Annotated[
        str,
        typer.Option(
            help="Keep messages from this offset of each queue on, or from a time such as 2026-01-31T12:00:00Z."
        ),
    ],
    dry_run: DryRun = False,
) -> CommandOutput:
    """Make the messages of a topic before an offset or a time unreadable. This cannot be undone.

    Groups continue behind these messages. Their disk space is free when retention deletes the segments.
    """
    target = target_of(before, "--before")
    return _trimmed(name, await mq.admin.trim_topic(name, **target, dry_run=dry_run), dry_run=dry_run)


async def purge(mq: "Client", name: TopicName, dry_run: DryRun = False) -> CommandOutput:
    """Make all stored messages of a topic unreadable. This cannot be undone.

    Groups continue with the next message that is stored. Delayed messages, open transactions, retries and dead letters
    stay.
    """
    return _trimmed(name, await mq.admin.purge_topic(name, dry_run=dry_run), dry_run=dry_run)


def _trimmed(name: str, queues: "Sequence[TrimmedQueue]", *, dry_run: bool) -> CommandOutput:
    count = sum(one.begin_offset - one.previous_begin_offset for one in queues)
    columns: Columns = {
        "ENODE": "queue.enode",
        "QUEUE": "queue.queue_id",
        "BEFORE": "previous_begin_offset",
        "BEGIN": "begin_offset",
        "END": "end_offset",
    }
    verb = "would become" if dry_run else "is now" if count == 1 else "are now"
    line = f"{name}: {counted(count, 'message')} in {counted(len(queues), 'queue')} {verb} unreadable"
    return CommandOutput(queues, (line, OutputTable(columns, queues)) if queues else line)


async def undelete(
    mq: "Client",
    name: Annotated[str, typer.Argument(help="The topic's name.", autocompletion=complete_deleted_topics)],
    topic_id: Annotated[
        str, typer.Option("--id", help="The topic's id, if several topics of this name were deleted.")
    ] = "",
) -> CommandOutput:
    """Restore a deleted topic with all messages and offsets."""
    topic = await mq.admin.undelete_topic(name, topic_id=_id(topic_id))
    return CommandOutput(topic, f"topic {topic.name} is restored with {counted(_queue_count(topic), 'queue')}")


async def deleted(mq: "Client") -> CommandOutput:
    """Show the deleted topics that can be restored."""
    topics = await mq.admin.list_deleted_topics()
    columns: Columns = {
        "TOPIC": "topic.name",
        "ID": lambda one: f"{one.topic.topic_id:#x}",
        "DELETED": lambda one: text_of_time(one.deleted_at_ms),
        "UNTIL": lambda one: text_of_time(one.due_at_ms),
    }
    return CommandOutput(topics, OutputTable(columns, topics))


async def orphaned(mq: "Client") -> CommandOutput:
    """Show topics that enodes hold and that the name server's directory does not list."""
    topics = await mq.admin.list_orphaned_topics()
    return CommandOutput(topics, _orphaned_table(topics))


async def adopt(
    mq: "Client",
    names: Annotated[
        list[str] | None, typer.Argument(help="The topics' names.", autocompletion=complete_orphaned_topics)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Adopt all topics that can be adopted.")] = False,
) -> CommandOutput:
    """Add topics that enodes hold to the name server's directory, with all messages and offsets."""
    if bool(names) == everything:
        raise Invalid("expected the topics to adopt, or --all", field="names")
    done = await mq.admin.adopt_topics(*names or ())
    listed = ", ".join(one.name for one in done.topics)
    line = f"adopted {counted(len(done.topics), 'topic')}{': ' if listed else ''}{listed}"
    return CommandOutput(done, (line, _orphaned_table(done.refused)) if done.refused else line)


def _orphaned_table(topics: "Sequence[OrphanedTopic]") -> OutputTable:
    columns: Columns = {
        "TOPIC": "name",
        "ID": lambda one: f"{one.topic_id:#x}",
        "ENODES": lambda one: ", ".join(placement.enode for placement in one.placements),
        "QUEUES": _queue_count,
        "CONFLICT": "conflict",
    }
    return OutputTable(columns, topics)


def _id(text: str) -> int:
    """Parse a topic id in hexadecimal or decimal digits; an empty text gives 0. Errors: Invalid."""
    try:
        return int(text, 0) if text else 0
    except ValueError:
        raise Invalid(f"{text!r} is no topic id; `ortoo topic deleted` shows them", field="id") from None


def _publish_order(text: str) -> list[tuple[str, int]] | None:
    """Parse a publish order such as `enode-1:4;enode-0:2`; None for an empty text. Errors: Invalid."""
    if not text:
        return None
    pairs = [place.rpartition(":") for place in text.split(";")] if text != SORTED_ORDER else []
    if not all(enode and count.isdecimal() for enode, _, count in pairs):
        raise Invalid(f"{text!r}; expected ENODE:QUEUES;ENODE:QUEUES, or {SORTED_ORDER}", field="publish_order")
    return [(enode, int(count)) for enode, _, count in pairs]


def _queue_count(topic: "TopicInfo | OrphanedTopic") -> int:
    return sum(placement.read_queue_count for placement in topic.placements)


COMMANDS: Commands = {
    "create": create,
    "list": show_all,
    "describe": describe,
    "update": update,
    "delete": delete,
    "trim": trim,
    "purge": purge,
    "undelete": undelete,
    "deleted": deleted,
    "offered": orphaned,
    "adopt": adopt,
}
"""The commands of `ortoo topic`, by name."""
