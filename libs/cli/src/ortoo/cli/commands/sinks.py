"""`ortoo sink ...`: the accounts of exactly-once sinks, such as that of the Spark connector."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ortoo.cli.terminal.command import Commands, TopicName
from ortoo.cli.terminal.completion import complete_topics
from ortoo.cli.terminal.output import Columns, CommandOutput, OutputTable, text_of_time
from ortoo.cli.terminal.printing import print_note
from ortoo.common.errors import NotFound, Unavailable

if TYPE_CHECKING:
    from ortoo.client import Client, SinkInfo

SinkId = Annotated[str, typer.Argument(help="The sinkId, the id of the query or job if it has none, or the account.")]


async def show_all(
    mq: "Client",
    topic: Annotated[str, typer.Option(help="Only sinks of this topic.", autocompletion=complete_topics)] = "",
) -> CommandOutput:
    """Show the exactly-once sinks: which query has committed which batch, and when."""
    found = await mq.admin.sinks.list(topic)
    for enode in found.unreachable_enodes:
        print_note(f"enode {enode} is unreachable; its sinks are missing")
    columns: Columns = {
        "TOPIC": "topic",
        "SINK": lambda one: one.sink_id or one.account,
        "QUERY": lambda one: one.query_id or "unknown",
        "BATCH": _batch,
        "CHANGED": _changed,
        "STATE": _state,
    }
    return CommandOutput(found.sinks, OutputTable(columns, found.sinks))


async def describe(mq: "Client", topic: TopicName, sink: SinkId) -> CommandOutput:
    """Show the account of an exactly-once sink in a topic."""
    found = await mq.admin.sinks.list(topic, sink)
    if not found.sinks and found.unreachable_enodes:
        raise Unavailable(f"enode {found.unreachable_enodes[0]} is unreachable, and may keep the account")
    if not found.sinks:
        raise NotFound(f"topic {topic} has no exactly-once sink {sink!r}; see `ortoo sink list --topic {topic}`")
    (one,) = found.sinks
    rows = asdict(one) | {"batch": _batch(one), "changed": _changed(one), "state": _state(one)}
    shown = ("topic", "sink_id", "query_id", "batch", "changed", "state", "account", "enode")
    return CommandOutput(one, "\n".join(f"{name.replace('_', ' '):10}{rows[name] or 'unknown'}" for name in shown))


async def reset(mq: "Client", topic: TopicName, sink: SinkId) -> CommandOutput:
    """Refuse the query of an exactly-once sink from its next commit on, and let another query begin.

    No message is removed. A running query ends with an error, and its checkpoint does not continue.
    """
    done = await mq.admin.sinks.reset(topic, sink)
    after = f"after batch {done.batch_id}" if done.batch_id >= 0 else "before its first batch"
    text = f"sink {done.sink_id or done.account} of {topic} is reset {after}; another query may begin"
    return CommandOutput(done, text)


def _batch(one: "SinkInfo") -> str:
    return str(one.batch_id) if one.batch_id >= 0 else "none"


def _changed(one: "SinkInfo") -> str:
    return text_of_time(one.changed_at_ms) if one.changed_at_ms else "unknown"


def _state(one: "SinkInfo") -> str:
    return "reset" if one.reset else "open"


COMMANDS: Commands = {"list": show_all, "describe": describe, "reset": reset}
"""The commands of `ortoo sink`, by name."""
