"""`ortoo delay`: messages that wait for their delivery time."""

import re
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import typer

from ortoo.cli.terminal.command import TopicName
from ortoo.cli.terminal.output import Columns, CommandOutput, OutputTable, text_of_time
from ortoo.common.errors import Invalid

if TYPE_CHECKING:
    from ortoo.client import Client

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
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


def milliseconds_of(duration: str, field: str = "delay") -> int:
    """Convert a duration such as 500ms, 90s, 15m, 2h or 30d to milliseconds. Errors: Invalid, naming `field`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", duration.strip())
    if match is None:
        raise Invalid(f"{duration!r}; expected a number and a unit, such as 500ms, 90s, 15m, 2h or 30d", field=field)
    return round(float(match[1]) * _UNITS_MS[match[2]])
