"""`ortoo delay`: messages that wait for their delivery time."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import typer

from ortoo.cli.terminal.command import Commands, TopicName
from ortoo.cli.terminal.output import Columns, CommandOutput, OutputTable, text_of_time

if TYPE_CHECKING:
    from ortoo.client import Client

Limit = Annotated[int, typer.Option("-n", min=1, max=10_000, help="Largest number to show.")]


async def show_all(mq: "Client", topic: TopicName, limit: Limit = 100) -> CommandOutput:
    """Show the delayed messages of a topic, sorted by delivery time."""
    delayed = await mq.admin.list_delayed(topic, limit=limit)
    columns: Columns = {
        "DUE": lambda it: text_of_time(it.deliver_at_ms),
        "ENODE": "queue.enode",
        "QUEUE": "queue.queue_id",
        "MESSAGE ID": "message_id",
        "RECALL HANDLE": "recall_handle",
    }
    return CommandOutput(delayed, OutputTable(columns, delayed))


async def cancel(
    mq: "Client",
    handles: Annotated[list[str], typer.Argument(help="Recall handles, from `delay list` or a receipt.")],
) -> AsyncIterator[CommandOutput]:
    """Cancel delayed messages, so that they are never delivered."""
    for handle in handles:
        await mq.recall(handle)
        yield CommandOutput({"recalled": handle}, f"recalled {handle}")


COMMANDS: Commands = {"list": show_all, "cancel": cancel}
"""The commands of `ortoo delay`, by name."""
