"""`ortoo cluster`, `ortoo clients` and `ortoo settings`: processes, connected clients and settings."""

from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated

import typer

from ortoo.cli.terminal.command import Commands
from ortoo.cli.terminal.completion import complete_groups
from ortoo.cli.terminal.output import Columns, CommandOutput, OutputTable, text_of_time

if TYPE_CHECKING:
    from ortoo.client import Client, ProcessSettings

RoleName = Annotated[str, typer.Argument(help="namesrv, enode or snode.", autocompletion=lambda: list(ROLES))]
Process = Annotated[str, typer.Option(help="Only this process, by its name or address.")]
ROLES = ("namesrv", "enode", "snode")


async def cluster(mq: "Client") -> CommandOutput:
    """Show the cluster's processes."""
    found = await mq.admin.describe_cluster()
    rows = []
    for role, items in (("enode", found.enodes), ("snode", found.snodes)):
        rows += [(role, item.name, item.address or "-", "alive" if item.alive else "away") for item in items]
    headings = ("ROLE", "NAME", "ADDRESS", "STATE")
    return CommandOutput(found, OutputTable({heading: itemgetter(at) for at, heading in enumerate(headings)}, rows))


async def clients(
    mq: "Client",
    client_id: Annotated[str | None, typer.Argument(help="One client, with its queues.")] = None,
    group: Annotated[str, typer.Option(help="Only members of this group.", autocompletion=complete_groups)] = "",
    stack: Annotated[bool, typer.Option("--stack", help="Show the stacks of the client.")] = False,
) -> CommandOutput:
    """Show the connected clients, or one client."""
    if client_id is None:
        if stack:
            raise typer.BadParameter("missing client id: --stack is for one client", param_hint="CLIENT_ID")
        all_clients = await mq.admin.groups.list_clients(group)
        return CommandOutput(all_clients, OutputTable(_CLIENT_COLUMNS, all_clients))
    if stack:
        text = await mq.admin.groups.print_stack(client_id)
        return CommandOutput({"client_id": client_id, "stack": text}, text)
    found = await mq.admin.groups.describe_client(client_id, group)
    it = found.client
    return CommandOutput(
        found,
        (
            f"{it.client_id}: {it.language} {it.client_version}, at {it.snode} from {it.peer} "
            f"since {text_of_time(it.connected_at_ms)}",
            *([f"it does not answer: {found.failure}"] if found.failure else []),
            OutputTable(_QUEUE_COLUMNS, found.queues),
        ),
    )


async def get_settings(
    mq: "Client",
    role: RoleName,
    names: Annotated[list[str] | None, typer.Argument(help="Names of settings; without a name all are shown.")] = None,
    process: Process = "",
) -> CommandOutput:
    """Show the settings of running processes, and the origin of each value."""
    found = await mq.admin.operations.list_settings(role, process)
    known_names = {one.name for each in found for one in each.settings}
    if known_names and (unknown := [name for name in names or () if name not in known_names]):
        raise typer.BadParameter(f"{role} has no setting {unknown[0]}", param_hint="NAMES")
    rows = [(each, one) for each in found for one in each.settings if not names or one.name in names]
    columns: Columns = {
        **_PROCESS_COLUMNS,
        "SETTING": lambda it: it[1].name,
        "VALUE": lambda it: it[1].value or "-",
        "ORIGIN": lambda it: it[1].origin,
        "LIVE": lambda it: it[1].dynamic,
        "NEXT START": lambda it: "" if it[1].at_next_start is None else it[1].at_next_start or "-",
    }
    return CommandOutput(found, (OutputTable(columns, rows), *_errors_of(found)))


async def set_settings(
    mq: "Client",
    role: RoleName,
    changes: Annotated[list[str] | None, typer.Argument(help="NAME=VALUE; write values as in the environment.")] = None,
    reset: Annotated[list[str] | None, typer.Option(help="Settings to restore from file and environment.")] = None,
    process: Process = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
) -> CommandOutput:
    """Change settings of running processes until their next start. If a process refuses, none is changed."""
    values: dict[str, str] = {}
    for one in changes or ():
        name, is_set, value = one.partition("=")
        if not is_set:
            raise typer.BadParameter(f"{one!r}; expected NAME=VALUE", param_hint="CHANGES")
        values[name] = value
    if not values and not reset:
        raise typer.BadParameter("expected NAME=VALUE or --reset NAME", param_hint="CHANGES")
    found = await mq.admin.operations.update_settings(role, values, reset=reset or (), process=process, dry_run=dry_run)
    rows = [(each, one) for each in found for one in each.changes]
    done = "would change" if dry_run else "changed; the next start uses the values of file and environment"
    said = (OutputTable(_CHANGE_COLUMNS, rows), done) if rows else ("nothing to change",)
    return CommandOutput(found, (*said, *_errors_of(found)))


async def settings_history(mq: "Client", role: RoleName, process: Process = "") -> CommandOutput:
    """Show the changes of settings in running processes since their start, and the users who made them."""
    found = await mq.admin.operations.list_setting_changes(role, process)
    rows = [(each, one) for each in found for one in each.changes]
    return CommandOutput(
        found, (OutputTable({"AT": lambda it: text_of_time(it[1].at_ms), **_CHANGE_COLUMNS}, rows), *_errors_of(found))
    )


def _errors_of(found: "Sequence[ProcessSettings]") -> list[str]:
    return [f"{one.role} {one.name or one.address}: {one.error}" for one in found if one.error]


_PROCESS_COLUMNS: Columns = {
    "PROCESS": lambda it: f"{it[0].role} {it[0].name}",
    "ADDRESS": lambda it: it[0].address or "-",
}
_CHANGE_COLUMNS: Columns = {
    **_PROCESS_COLUMNS,
    "SETTING": lambda it: it[1].name,
    "WAS": lambda it: it[1].previous or "-",
    "NOW": lambda it: it[1].current or "-",
    "ORIGIN": lambda it: it[1].origin,
    "BY": lambda it: it[1].changed_by or "SIGHUP",
}
_CLIENT_COLUMNS: Columns = {
    "CLIENT": "client_id",
    "SNODE": "snode",
    "LANGUAGE": "language",
    "VERSION": "client_version",
    "PRODUCER OF": lambda it: ",".join(it.producer_groups) or "-",
    "CONSUMER OF": lambda it: ",".join(it.consumer_groups) or "-",
    "SINCE": lambda it: text_of_time(it.connected_at_ms),
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


SETTINGS_COMMANDS: Commands = {"get": get_settings, "set": set_settings, "history": settings_history}
"""The commands of `ortoo settings`, by name."""
