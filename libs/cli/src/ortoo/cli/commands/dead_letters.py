"""`ortoo dlq` and `ortoo peek`."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import typer

from ortoo.cli.terminal.command import AsJson, Commands, GroupName, TopicName
from ortoo.cli.terminal.completion import complete_enodes, complete_groups, complete_topics
from ortoo.cli.terminal.output import Columns, CommandOutput, OutputTable, body_start, message_fields, text_of_time
from ortoo.cli.terminal.printing import print_progress
from ortoo.common.errors import NotFound
from ortoo.common.logs.counts import counted

if TYPE_CHECKING:
    from ortoo.client import Client, DeadLetter, Sql

Where = Annotated[str, typer.Option(help="SQL over properties, such as \"DLQ_REASON = 'attempts'\".")]


async def show_all(
    mq: "Client",
    group: GroupName,
    where: Where = "",
    count: Annotated[int, typer.Option("-n", min=0, help="Largest number to show; 0 = all.")] = 100,
    everything: Annotated[bool, typer.Option("--all", help="Include dead letters that were sent again.")] = False,
) -> CommandOutput:
    """Show the dead letters of a group, oldest first."""
    found = mq.admin.list_dead_letters(group, _sql(where), dead_letters_max=count, include_replayed=everything)
    letters = [letter async for letter in found]
    columns: Columns = {
        "MESSAGE ID": "message_id",
        "PARKED": lambda letter: text_of_time(letter.parked_at_ms),
        "TOPIC": "origin_queue.topic",
        "REASON": "reason",
        "ATTEMPTS": "attempts",
        "REPLAYED": "replayed",
        "ERROR": lambda letter: letter.error[:60],
    }
    return CommandOutput(map(_fields, letters), OutputTable(columns, letters))


async def show(
    mq: "Client", group: GroupName, message_id: Annotated[str, typer.Argument(help="The message's id.")]
) -> CommandOutput:
    """Show everything about one dead letter."""
    async for letter in mq.admin.list_dead_letters(group, include_replayed=True):
        if letter.message_id == message_id:
            fields = _fields(letter)
            return CommandOutput(fields, [f"{name:16} {value}" for name, value in fields.items()])
    raise NotFound(f"group {group} has no dead letter {message_id!r}; `ortoo dlq list {group} --all` shows them")


async def replay(
    mq: "Client",
    group: GroupName,
    where: Where = "",
    to_topic: Annotated[
        str,
        typer.Option(
            "--to", help="Send to this topic instead of the group's retry topic.", autocompletion=complete_topics
        ),
    ] = "",
    rate: Annotated[int, typer.Option(min=0, help="Largest number per second; 0 = no limit.")] = 0,
    count: Annotated[int, typer.Option("-n", min=0, help="Largest number to send; 0 = all.")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count; nothing is stored.")] = False,
    as_json: AsJson = False,
) -> AsyncIterator[CommandOutput]:
    """Send each dead letter again, once. After an interruption, the next run skips dead letters already sent."""
    replays = mq.admin.replay_dead_letters(
        group, _sql(where), to_topic=to_topic, messages_per_s=rate, messages_max=count, dry_run=dry_run
    )
    progress = None
    async for progress in replays:
        if not progress.done and not as_json:
            print_progress(counted(progress.replayed_messages, "message"))
        yield CommandOutput(progress)
    if progress is not None:
        verb = "would be sent again" if dry_run else "sent again"
        text = f"{counted(progress.replayed_messages, 'message')} {verb}, {progress.skipped_messages} had been before"
        yield CommandOutput((), text)


async def park(
    mq: "Client",
    group: GroupName,
    topic: TopicName,
    enode: Annotated[str, typer.Argument(help="The enode of the queue.", autocompletion=complete_enodes)],
    queue: Annotated[int, typer.Argument(min=0, help="The queue's number.")],
    offsets: Annotated[list[int], typer.Argument(min=0, help="The offsets of the messages.")],
    message_groups: Annotated[
        bool, typer.Option("--message-groups", help="Also the later messages of their message groups in the queue.")
    ] = False,
    reason: Annotated[str, typer.Option(help="Why, for people; it becomes the error of the dead letters.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the messages; nothing is parked.")] = False,
) -> CommandOutput:
    """Make messages dead letters of a group, whichever consumer holds them. The group continues after them."""
    from ortoo.client import Queue

    parked = await mq.admin.groups.park_messages(
        group, Queue(topic, enode, queue), offsets, message_groups=message_groups, reason=reason, dry_run=dry_run
    )
    columns: Columns = {
        "OFFSET": "offset",
        "STATE BEFORE": "state",
        "ATTEMPTS": "attempt",
        "CONSUMER": "consumer",
        "ERROR": lambda one: one.error[:60],
    }
    text = f"{counted(len(parked.deliveries), 'message')} {'would be parked' if dry_run else 'parked'}"
    if parked.offset is not None:
        text += f"; the offset of {group} {'would be' if dry_run else 'is'} {parked.offset}"
    if parked.more:
        text += "; the message groups have more messages, repeat the command with a later offset"
    return CommandOutput(parked, [text, OutputTable(columns, parked.deliveries)])


async def peek(
    mq: "Client",
    topic: TopicName,
    group: Annotated[
        str,
        typer.Option(
            help="Show this group's next messages; without it, the oldest messages.", autocompletion=complete_groups
        ),
    ] = "",
    count: Annotated[int, typer.Option("-n", min=1, max=1024, help="Largest number to show.")] = 10,
) -> CommandOutput:
    """Show the next messages of a topic without taking them."""
    messages = await mq.admin.peek(topic, group, messages_max=count)
    columns: Columns = {
        "MESSAGE ID": "message_id",
        "ENODE": "queue.enode",
        "QUEUE": "queue.queue_id",
        "OFFSET": "offset",
        "ATTEMPTS": "attempts",
        "BODY": body_start,
    }
    fields = [{**message_fields(one), "attempts": one.attempts} for one in messages]
    return CommandOutput(fields, OutputTable(columns, messages))


def _sql(where: str) -> "Sql | None":
    from ortoo.client import Sql

    return Sql(where) if where else None


def _fields(letter: "DeadLetter") -> dict[str, object]:
    origin = letter.origin_queue
    return {
        **message_fields(letter),
        "reason": letter.reason,
        "attempts": letter.attempts,
        "error": letter.error,
        "consumer": letter.consumer,
        "origin_topic": origin.topic,
        "origin_enode": origin.enode,
        "origin_queue_id": origin.queue_id,
        "origin_offset": letter.origin_offset,
        "parked_at_ms": letter.parked_at_ms,
        "replayed": letter.replayed,
    }


COMMANDS: Commands = {"list": show_all, "show": show, "replay": replay, "park": park}
"""The commands of `ortoo dlq`, by name."""
