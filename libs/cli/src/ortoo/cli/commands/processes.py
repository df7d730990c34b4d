"""`ortoo cluster` and `ortoo clients`: who is there."""

from datetime import UTC, datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated

import typer

from ortoo.cli.terminal.completion import offered_groups
from ortoo.cli.terminal.output import Answer, Columns, Table

if TYPE_CHECKING:
    from ortoo.client import Client, ClientInfo


async def cluster(mq: "Client") -> Answer:
    """Show the cluster's processes."""
    found = await mq.admin.describe_cluster()
    rows = []
    for role, items in (("enode", found.enodes), ("snode", found.snodes)):
        rows += [(role, item.name, item.address, "alive" if item.alive else "away") for item in items]
    headings = ("ROLE", "NAME", "ADDRESS", "STATE")
    return Answer(found, Table({heading: itemgetter(at) for at, heading in enumerate(headings)}, rows))


async def clients(
    mq: "Client",
    client_id: Annotated[str | None, typer.Argument(help="One client, with its queues.")] = None,
    group: Annotated[str, typer.Option(help="Only members of this group.", autocompletion=offered_groups)] = "",
    stack: Annotated[bool, typer.Option("--stack", help="Show what the client is doing.")] = False,
) -> Answer:
    """Show the clients that are connected, or one of them."""
    if client_id is None:
        if stack:
            raise typer.BadParameter("name the client whose stack you want", param_hint="CLIENT_ID")
        all_clients = await mq.admin.groups.clients(group)
        return Answer(all_clients, Table(_CLIENT_COLUMNS, all_clients))
    if stack:
        text = await mq.admin.groups.print_stack(client_id)
        return Answer({"client_id": client_id, "stack": text}, text)
    found = await mq.admin.groups.describe_client(client_id, group)
    it = found.client
    return Answer(
        found,
        (
            f"{it.client_id}: {it.language} {it.client_version}, at {it.snode} from {it.peer} since {_since(it)}",
            *([f"it does not answer: {found.failure}"] if found.failure else []),
            Table(_QUEUE_COLUMNS, found.queues),
        ),
    )


def _since(client: "ClientInfo") -> str:
    return datetime.fromtimestamp(client.since_ms / 1000, UTC).isoformat(timespec="seconds")


_CLIENT_COLUMNS: Columns = {
    "CLIENT": "client_id",
    "SNODE": "snode",
    "LANGUAGE": "language",
    "VERSION": "client_version",
    "PRODUCER OF": lambda it: ",".join(it.producer_groups) or "-",
    "CONSUMER OF": lambda it: ",".join(it.consumer_groups) or "-",
    "SINCE": _since,
}
_QUEUE_COLUMNS: Columns = {
    "GROUP": "group",
    "TOPIC": "queue.topic",
    "ENODE": "queue.enode",
    "QUEUE": "queue.queue_id",
    "PROCESSED": "offset",
    "READ": "next_offset",
    "HELD": "held_messages",
    "LOCKED": "locked",
}
