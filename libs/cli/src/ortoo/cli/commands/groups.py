"""`ortoo group ...`, `ortoo lag`, `ortoo explain`, `ortoo delivery` and `ortoo reset-offset`."""

from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ortoo.cli.cluster.declarations import GROUP_SETTINGS, GroupSetting, group_changes
from ortoo.cli.terminal.command import Commands, GroupName, TopicName, with_options
from ortoo.cli.terminal.completion import complete_deleted_groups, complete_groups, complete_topics
from ortoo.cli.terminal.output import Columns, CommandOutput, OutputTable, text_of_time
from ortoo.cli.terminal.targets import target_of
from ortoo.common.errors import Conflict, Invalid
from ortoo.common.logs.counts import counted

if TYPE_CHECKING:
    from ortoo.client import Client, GroupLag, LagByState, LagHistory, LagSample

RETENTION_SHOWN = 0.5
"""A smaller used share of the retention is not shown."""
MINUTE_MS = 60_000


async def show_all(mq: "Client") -> CommandOutput:
    """Show all consumer groups."""
    groups = await mq.admin.list_groups()
    return CommandOutput(groups, OutputTable({"GROUP": "name", "MAY CONSUME": "consume_enabled"}, groups))


async def describe(mq: "Client", group: GroupName) -> CommandOutput:
    """Show a group's settings, its members, and its lag."""
    found = await mq.admin.groups.describe(group)
    settings = [(key, getattr(found.group, one.field), one.help) for key, one in GROUP_SETTINGS.items()]
    columns: Columns = {
        "MEMBER": "client_id",
        "SNODE": "snode",
        "LANGUAGE": "language",
        "HOW": lambda member: (
            ("push" if member.pushed else "pop" if member.pops else "pull")
            + (", broadcast" if member.broadcast else "")
        ),
        "TOPICS": lambda member: ",".join(member.topics),
    }
    return CommandOutput(
        found,
        (
            OutputTable({"SETTING": itemgetter(0), "VALUE": itemgetter(1), "MEANING": itemgetter(2)}, settings),
            OutputTable(columns, found.members),
            *(
                line
                for one in found.progress
                for line in (
                    f"{one.topic}: {counted(one.lag_messages, 'message')} behind",
                    *_state_lines(group, one.by_state),
                )
            ),
            *(line.strip() for line in _state_lines(group, found.retries)),
        ),
    )


def _setting_option(setting: GroupSetting) -> object:
    return Annotated[setting.kind | None, typer.Option(min=0 if setting.kind is int else None, help=setting.help)]


@with_options({key: _setting_option(setting) for key, setting in GROUP_SETTINGS.items()})
async def update(mq: "Client", group: GroupName, **settings: Any) -> CommandOutput:
    """Change a group, or create it; options that are not given are unchanged."""
    changed = await mq.admin.groups.update(group, **group_changes(settings))
    return CommandOutput(changed, f"changed group {changed.name}")


async def mode(
    mq: "Client",
    group: GroupName,
    topic: Annotated[
        str | None,
        typer.Argument(help="The topic; without it all topics of the group.", autocompletion=complete_topics),
    ] = None,
    to: Annotated[str | None, typer.Option("--set", help="offsets, pop, pop-in-order, or any.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Change it even while members still have messages or queues.")
    ] = False,
) -> CommandOutput:
    """Show how a group consumes its topics (by offsets or by pop), or change the mode for one topic."""
    if to is None:
        modes = [one for one in await mq.admin.groups.list_delivery_modes(group) if topic in (None, one.topic)]
        return CommandOutput(modes, OutputTable({"TOPIC": "topic", "ENODE": "enode", "MODE": "mode"}, modes))
    if topic is None:
        raise Invalid("missing topic; expected the topic whose mode to change", field="topic")
    previous = await mq.admin.groups.set_delivery_mode(group, topic, to, force=force)
    text = f"group {group} consumes {topic} by {to} now; before: {previous}"
    return CommandOutput({"before": previous, "mode": to}, text)


async def delete(
    mq: "Client",
    group: GroupName,
    at_once: Annotated[
        bool, typer.Option("--at-once", help="Delete the offsets now; the group cannot be restored.")
    ] = False,
) -> CommandOutput:
    """Delete a group. It can be restored for a day (group_deletion_grace_ms); then its offsets are deleted."""
    await mq.admin.delete_group(group, at_once=at_once)
    return CommandOutput({"deleted": group}, f"deleted group {group}")


async def undelete(
    mq: "Client",
    group: Annotated[str, typer.Argument(help="The group's name.", autocompletion=complete_deleted_groups)],
) -> CommandOutput:
    """Restore a deleted group with its settings and offsets."""
    back = await mq.admin.undelete_group(group)
    return CommandOutput(back, f"group {back.name} is restored")


async def deleted(mq: "Client") -> CommandOutput:
    """Show the deleted groups that can be restored."""
    groups = await mq.admin.list_deleted_groups()
    columns: Columns = {
        "GROUP": "group.name",
        "DELETED": lambda one: text_of_time(one.deleted_at_ms),
        "UNTIL": lambda one: text_of_time(one.due_at_ms),
    }
    return CommandOutput(groups, OutputTable(columns, groups))


async def clone(
    mq: "Client",
    group: GroupName,
    to: Annotated[str, typer.Argument(help="The group that gets the offsets.", autocompletion=complete_groups)],
    topic: TopicName,
) -> CommandOutput:
    """Copy a group's offsets in a topic to another group."""
    offsets = await mq.admin.groups.clone_offsets(group, to, topic)
    columns: Columns = {"ENODE": "queue.enode", "QUEUE": "queue.queue_id", "OFFSET": lambda item: _offset(item.offset)}
    text = f"group {to} has the offsets of group {group} in {counted(len(offsets), 'queue')} of {topic}"
    return CommandOutput(offsets, [text, OutputTable(columns, offsets)])


async def reset_offset(
    mq: "Client",
    group: GroupName,
    topic: TopicName,
    to: Annotated[str, typer.Option(help="begin, end, an offset, or a time such as 2026-01-31T12:00:00Z.")],
    force: Annotated[bool, typer.Option("--force", help="Also move offsets forward, which skips messages.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the result; nothing is moved.")] = False,
) -> CommandOutput:
    """Move a group's offsets in a topic; its members continue from there immediately."""
    target = target_of(to, "--to")
    offsets = await mq.admin.groups.reset_offsets(group, topic, **target, force=force, dry_run=dry_run)
    beyond_end = sum(one.refused_offset >= 0 for one in offsets)
    reset = len(offsets) - beyond_end
    if beyond_end and not reset:
        raise Conflict(
            f"nothing was reset, because {beyond_end} of {counted(len(offsets), 'queue')} would skip messages that "
            f"{group} never consumed; add --force to skip them",
            field="--force",
        )
    columns: Columns = {
        "ENODE": "queue.enode",
        "QUEUE": "queue.queue_id",
        "BEFORE": lambda item: _offset(item.previous),
        "OFFSET": lambda item: _offset(item.offset),
    }
    verb = "would reset" if dry_run else "reset"
    text = f"{verb} group {group} to {to} in {reset} of {counted(len(offsets), 'queue')} of {topic}"
    if beyond_end:
        text += f"; {beyond_end} are unchanged, because they would skip messages (add --force to skip them)"
    return CommandOutput(offsets, [text, OutputTable(columns, offsets)])


async def lag(
    mq: "Client",
    group: GroupName,
    topic: Annotated[
        str | None,
        typer.Argument(
            help="The topic; without it, all topics that its members subscribe to.", autocompletion=complete_topics
        ),
    ] = None,
    history: Annotated[
        bool, typer.Option("--history", help="The lag over the last hour, the largest value of each minute.")
    ] = False,
) -> CommandOutput:
    """Show the lag of a group."""
    if history:
        return _history(await mq.admin.groups.lag_history(group, topic or ""))
    if topic is not None:
        behind = await mq.admin.describe_lag(group, topic)
        return CommandOutput(_fields(group, topic, behind), _lag(group, topic, behind))
    topics = [it.topic for it in (await mq.admin.groups.describe(group)).progress]
    if not topics:
        raise Invalid(f"no member of {group} subscribes to a topic now; name the topic", field="topic")
    all_behind = {name: await mq.admin.describe_lag(group, name) for name in topics}
    fields = [_fields(group, name, one) for name, one in all_behind.items()]
    return CommandOutput(fields, [part for name, one in all_behind.items() for part in _lag(group, name, one)])


def _history(found: "LagHistory") -> CommandOutput:
    """The recorded lags: for JSON each sample, for people the largest one of each minute."""
    largest: dict[int, LagSample] = {}
    for one in found.samples:
        minute = one.at_ms // MINUTE_MS
        if minute not in largest or one.lag_messages >= largest[minute].lag_messages:
            largest[minute] = one
    columns: Columns = {
        "TIME": lambda one: text_of_time(one.at_ms),
        "LAG": lambda one: f"{'at least ' if one.is_incomplete else ''}{one.lag_messages}",
        "UNTIL RETENTION": lambda one: "" if one.retention_left_ms is None else f"{one.retention_left_ms // 1000} s",
    }
    text: list[str | OutputTable] = [OutputTable(columns, list(largest.values()))]
    if found.unreachable_enodes:
        text.append(f"the lag on {', '.join(found.unreachable_enodes)} is missing, since no process answers for it")
    if found.is_partial:
        text.append("an enode has too many topics and groups with lag, and does not record all of them")
    return CommandOutput(found.samples, text)


def _fields(group: str, topic: str, behind: "GroupLag") -> dict[str, Any]:
    return {
        "group": group,
        "topic": topic,
        "lag_messages": behind.lag_messages,
        "queues": behind.queues,
        "unreachable_enodes": behind.unreachable_enodes,
        "by_state": behind.by_state,
    }


def _state_lines(group: str, lag: "LagByState") -> list[str]:
    """The states of a group's messages, except those that only wait for a consumer; a line for each."""
    lines = [f"{counted(lag.leased, 'message', 'are')} held by consumers"] if lag.leased else []
    if lag.retrying:
        due = text_of_time(lag.next_retry_at_ms)
        lines.append(f"{counted(lag.retrying, 'message', 'wait')} in retries, the next one until {due}")
    if lag.error:
        lines.append(f"last error, of {lag.consumer or 'a consumer'}, attempt {lag.attempts}: {lag.error}")
    if lag.retention_used > RETENTION_SHOWN:
        lines.append(f"the oldest one has used {lag.retention_used:.0%} of its retention")
    if lag.lost:
        lines.append(f"retention deleted {counted(lag.lost, 'message')} before the group finished them")
    if lag.delayed:
        lines.append(f"{counted(lag.delayed, 'message', 'are')} delayed and not due")
    if lag.parked:
        lines.append(f"{counted(lag.parked, 'dead letter')} (ortoo dlq list {group})")
    return [f"  {line}" for line in lines]


def _lag(group: str, topic: str, behind: "GroupLag") -> tuple[str | OutputTable, ...]:
    columns: Columns = {
        "ENODE": "queue.enode",
        "QUEUE": "queue.queue_id",
        "COMMITTED": lambda item: _offset(item.committed_offset),
        "END": "end_offset",
        "LAG": "lag_messages",
    }
    text = f"{group} is {counted(behind.lag_messages, 'message')} behind in {topic}"
    if behind.unreachable_enodes:
        text += f"; the lag on {', '.join(behind.unreachable_enodes)} is unknown, since no process answers for it"
    return text, *_state_lines(group, behind.by_state), OutputTable(columns, behind.queues)


def _offset(offset: int) -> object:
    return offset if offset >= 0 else "none"


async def explain(
    mq: "Client",
    group: GroupName,
    topic: TopicName,
    message: Annotated[str, typer.Argument(help="A message's id; without it the topic as a whole.")] = "",
) -> CommandOutput:
    """Explain why a group does not consume a topic, or one message of it."""
    found = await mq.admin.operations.explain_consumption(group, topic, message)
    lines = [f"{one.name}: {one.observed}" + (f"\n  → {one.remedy}" if one.remedy else "") for one in found.reasons]
    return CommandOutput(
        found, (*lines, *([OutputTable(_DELIVERY_COLUMNS, [found.delivery])] if found.delivery is not None else []))
    )


async def delivery(
    mq: "Client",
    group: GroupName,
    topic: TopicName,
    from_offset: Annotated[
        int | None, typer.Option("--from", min=0, help="From this offset; without it only unfinished messages.")
    ] = None,
    to_offset: Annotated[int, typer.Option("--to", min=0, help="Up to this offset, exclusive; 0 = the end.")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of messages from each queue.")] = 100,
) -> CommandOutput:
    """Show the state of each message of a topic for a group."""
    found = await mq.admin.operations.list_deliveries(
        group, topic, from_offset=from_offset, to_offset=to_offset, limit=limit
    )
    away = [f"enode {name} does not answer: its queues are missing here" for name in found.unreachable_enodes]
    more = ["there are more; select them with --from, --to or --limit"] if found.more else []
    return CommandOutput(found, (OutputTable(_DELIVERY_COLUMNS, found.messages), *away, *more))


_DELIVERY_COLUMNS: Columns = {
    "ENODE": "queue.enode",
    "QUEUE": "queue.queue_id",
    "OFFSET": "offset",
    "STATE": "state",
    "TRY": "attempt",
    "UNTIL": lambda row: text_of_time(row.until_ms) if row.until_ms else "-",
    "CONSUMER": lambda row: row.consumer or "-",
    "SAID": lambda row: row.error or "-",
}


COMMANDS: Commands = {
    "list": show_all,
    "describe": describe,
    "update": update,
    "mode": mode,
    "delete": delete,
    "undelete": undelete,
    "deleted": deleted,
    "clone": clone,
}
"""The commands of `ortoo group`, by name."""
