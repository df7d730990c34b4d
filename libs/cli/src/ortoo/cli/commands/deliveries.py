"""`ortoo explain` and `ortoo delivery`: why something is not consumed, and what became of each message."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from ortoo.cli.terminal.command import GroupName, TopicName
from ortoo.cli.terminal.output import Answer, Columns, Table

if TYPE_CHECKING:
    from ortoo.client import Client, MessageDelivery


async def explain(
    mq: "Client",
    group: GroupName,
    topic: TopicName,
    message: Annotated[str, typer.Argument(help="A message's id; without it the topic as a whole.")] = "",
) -> Answer:
    """Say why a group does not consume a topic, or one message of it."""
    found = await mq.admin.operations.explain(group, topic, message)
    lines = [f"{one.name}: {one.seen}" + (f"\n  → {one.cure}" if one.cure else "") for one in found.reasons]
    return Answer(found, (*lines, *([Table(_COLUMNS, [found.delivery])] if found.delivery is not None else [])))


async def delivery(
    mq: "Client",
    group: GroupName,
    topic: TopicName,
    from_offset: Annotated[
        int | None, typer.Option("--from", min=0, help="From this offset on; without it what is not done.")
    ] = None,
    to_offset: Annotated[int, typer.Option("--to", min=0, help="Up to this offset, exclusive; 0 = the end.")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many of each queue.")] = 100,
) -> Answer:
    """Show what became of each message of a topic for a group."""
    found = await mq.admin.operations.deliveries(
        group, topic, from_offset=from_offset, to_offset=to_offset, limit=limit
    )
    away = [f"enode {name} does not answer: its queues are missing here" for name in found.enodes_away]
    return Answer(found, (Table(_COLUMNS, found.messages), *away))


def _until(row: "MessageDelivery") -> str:
    if not row.until_ms:
        return "-"
    return datetime.fromtimestamp(row.until_ms / 1000, UTC).strftime("%H:%M:%SZ")


_COLUMNS: Columns = {
    "ENODE": "queue.enode",
    "QUEUE": "queue.queue_id",
    "OFFSET": "offset",
    "STATE": "state",
    "TRY": "attempt",
    "UNTIL": _until,
    "CONSUMER": lambda row: row.consumer or "-",
    "SAID": lambda row: row.error or "-",
}
