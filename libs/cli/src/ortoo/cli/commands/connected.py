"""`ortoo clients`."""

from collections.abc import Sequence
from datetime import UTC, datetime

import typer

from ortoo.cli.terminal.output import print_json, print_table
from ortoo.client import connect


async def show(addresses: Sequence[str], client_id: str | None, group: str, *, stack: bool, as_json: bool) -> None:
    """Print all clients, or one with its queues, or what it is doing."""
    if client_id is None:
        if stack:
            raise typer.BadParameter("name the client whose stack you want", param_hint="CLIENT_ID")
        await _show_all(addresses, group, as_json=as_json)
        return
    async with connect(addresses) as mq:
        if stack:
            text = await mq.admin.groups.print_stack(client_id)
            if as_json:
                print_json({"client_id": client_id, "stack": text})
            else:
                print(text)
            return
        found = await mq.admin.groups.describe_client(client_id, group)
    if as_json:
        print_json(found)
        return
    it = found.client
    print(f"{it.client_id}: {it.language} {it.client_version}, at {it.snode} from {it.peer} since {_time(it.since_ms)}")
    if found.failure:
        print(f"it does not answer: {found.failure}")
    print_table(
        ("GROUP", "TOPIC", "ENODE", "QUEUE", "PROCESSED", "READ", "HELD", "LOCKED"),
        [
            (
                q.group,
                q.queue.topic,
                q.queue.enode,
                q.queue.queue_id,
                q.offset,
                q.next_offset,
                q.held_messages,
                "yes" if q.locked else "no",
            )
            for q in found.queues
        ],
    )


async def _show_all(addresses: Sequence[str], group: str, *, as_json: bool) -> None:
    async with connect(addresses) as mq:
        found = await mq.admin.groups.clients(group)
    if as_json:
        print_json(found)
        return
    print_table(
        ("CLIENT", "SNODE", "LANGUAGE", "VERSION", "PRODUCER OF", "CONSUMER OF", "SINCE"),
        [
            (
                it.client_id,
                it.snode,
                it.language,
                it.client_version,
                ",".join(it.producer_groups) or "-",
                ",".join(it.consumer_groups) or "-",
                _time(it.since_ms),
            )
            for it in found
        ],
    )


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")
