"""`ortoo schedule`: schedules of recurring messages."""

from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ortoo.cli.commands.deferred.delays import Limit
from ortoo.cli.terminal.command import Commands
from ortoo.cli.terminal.completion import complete_topics
from ortoo.cli.terminal.output import Columns, CommandOutput, OutputTable, content_fields, text_of_time
from ortoo.cli.terminal.printing import print_note
from ortoo.cli.terminal.values import milliseconds_of, properties_of
from ortoo.common.errors import Invalid

if TYPE_CHECKING:
    from ortoo.client import Client, ScheduleInfo

ScheduleName = Annotated[str, typer.Argument(help="The schedule's name.")]
OfTopic = Annotated[str, typer.Option("--topic", help="The topic of its messages.", autocompletion=complete_topics)]
_COLUMNS: Columns = {
    "TOPIC": "topic",
    "NAME": "name",
    "RULE": lambda it: _rule(it),
    "NEXT": lambda it: _next(it),
    "SENT": "sent_count",
    "CATCH UP": "catch_up",
}


async def create(
    mq: "Client",
    name: ScheduleName,
    topic: OfTopic,
    cron: Annotated[str, typer.Option(help="Minute, hour, day, month and weekday, such as '0 6 * * 1-5'.")] = "",
    timezone: Annotated[str, typer.Option(help="The time zone of --cron, such as Europe/Berlin; default UTC.")] = "",
    every: Annotated[str | None, typer.Option(help="The period, such as 30s, 15m or 2h.")] = None,
    body: Annotated[str | None, typer.Option(help="The body of each message.")] = None,
    body_file: Annotated[Path | None, typer.Option(help="A file with the body.", exists=True, dir_okay=False)] = None,
    tag: Annotated[str | None, typer.Option(help="The tag, for filters.")] = None,
    key: Annotated[list[str] | None, typer.Option(help="A key, for searches; may be given several times.")] = None,
    prop: Annotated[list[str] | None, typer.Option("--property", help="NAME=VALUE; several times.")] = None,
    group: Annotated[str | None, typer.Option(help="The message group, whose messages keep their order.")] = None,
    catch_up: Annotated[
        str, typer.Option(help="Which late occurrences are sent, for example after an outage: last, skip or all.")
    ] = "last",
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing schedule of this name.")] = False,
) -> CommandOutput:
    """Create a schedule, which sends a message by a cron expression or in a fixed period until it is deleted."""
    from ortoo.client import Message

    if (body is None) == (body_file is None):
        raise Invalid("give the body of the messages, or a file with it", field="--body")
    content = body_file.read_bytes() if body_file is not None else (body or "").encode()
    message = Message(content, tag, tuple(key or ()), message_group=group, properties=properties_of(prop or []))
    period = timedelta(milliseconds=milliseconds_of(every, "--every")) if every is not None else None
    created = await mq.admin.schedules.create(
        topic, name, message, cron=cron, timezone=timezone, every=period, catch_up=catch_up, replace=replace
    )
    return CommandOutput(created, f"schedule {name} sends to {topic}: {_rule(created)}, next {_next(created)}")


async def show_all(
    mq: "Client",
    topic: Annotated[str, typer.Option(help="Only schedules of this topic.", autocompletion=complete_topics)] = "",
    limit: Limit = 100,
) -> CommandOutput:
    """Show schedules, by topic and name."""
    found = await mq.admin.schedules.list(topic, limit=limit)
    for enode in found.unreachable_enodes:
        print_note(f"enode {enode} is unreachable; its schedules are missing")
    return CommandOutput(found.schedules, OutputTable(_COLUMNS, found.schedules))


async def describe(mq: "Client", name: ScheduleName, topic: OfTopic) -> CommandOutput:
    """Show a schedule, its next occurrence and its message."""
    found = await mq.admin.schedules.describe(topic, name)
    assert found.message is not None
    content = content_fields(found.message)
    rows = {
        "topic": topic,
        "rule": _rule(found),
        "catch up": found.catch_up,
        "next": _next(found),
        "sent": str(found.sent_count),
        "queue": f"{found.queue.enode}/{found.queue.queue_id}",
        **{name: str(value) for name, value in content.items() if value},
    }
    value = {field.name: getattr(found, field.name) for field in fields(found)} | {"message": content}
    return CommandOutput(value, "\n".join(f"{title:15}{text}" for title, text in rows.items()))


async def suspend(mq: "Client", name: ScheduleName, topic: OfTopic) -> CommandOutput:
    """Suspend a schedule: it sends nothing until it is resumed."""
    await mq.admin.schedules.suspend(topic, name)
    return CommandOutput({"suspended": name}, f"suspended {name}")


async def resume(mq: "Client", name: ScheduleName, topic: OfTopic) -> CommandOutput:
    """Resume a suspended schedule. The occurrences during the suspension are never sent."""
    await mq.admin.schedules.resume(topic, name)
    return CommandOutput({"resumed": name}, f"resumed {name}")


async def delete(mq: "Client", name: ScheduleName, topic: OfTopic) -> CommandOutput:
    """Delete a schedule. It sends nothing more."""
    await mq.admin.schedules.delete(topic, name)
    return CommandOutput({"deleted": name}, f"deleted {name}")


def _rule(one: "ScheduleInfo") -> str:
    if one.period_ms:
        return f"every {timedelta(milliseconds=one.period_ms)}"
    return f"{one.cron} ({one.timezone or 'UTC'})"


def _next(one: "ScheduleInfo") -> str:
    return "suspended" if one.suspended else text_of_time(one.next_ms) if one.next_ms else "never"


COMMANDS: Commands = {
    "create": create,
    "list": show_all,
    "describe": describe,
    "suspend": suspend,
    "resume": resume,
    "delete": delete,
}
"""The commands of `ortoo schedule`, by name."""
