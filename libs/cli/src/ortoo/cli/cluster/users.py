"""`ortoo user ...` and `ortoo role ...`."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from ortoo.cli.terminal.command import Commands
from ortoo.cli.terminal.output import Columns, CommandOutput, OutputTable, text_of_time
from ortoo.common.errors import Invalid

if TYPE_CHECKING:
    from ortoo.client import Client

OPEN = "no access_file is set: every caller may do everything"
GRANTS: Columns = {
    "TOPICS": lambda one: ", ".join(f"{it.name}={it.grant}" for it in one.topics),
    "GROUPS": lambda one: ", ".join(f"{it.name}={it.grant}" for it in one.groups),
}
"""The permissions of a user or a role on names."""
AccessKey = Annotated[str, typer.Argument(help="The user's access key.")]


async def show_all(mq: "Client") -> CommandOutput:
    """Show all users, without their secrets."""
    users = await mq.admin.users.list()
    columns: Columns = {
        "ACCESS KEY": "access_key",
        "ENABLED": "enabled",
        "CREATED": lambda one: text_of_time(one.created_at_ms),
    }
    return CommandOutput(users, OutputTable(columns, users))


async def access(
    mq: "Client",
    topic: Annotated[list[str] | None, typer.Option(help="A topic; may be repeated.")] = None,
    group: Annotated[list[str] | None, typer.Option(help="A group; may be repeated.")] = None,
) -> CommandOutput:
    """Show the user that signs the calls, and its permissions on topics and groups."""
    topics, groups = topic or [], group or []
    found = await mq.admin.users.describe_access(topics, groups)
    kind = "may do everything" if found.admin else "observer" if found.observer else "neither admin nor observer"
    summary = f"{found.user or 'unsigned calls'}: {kind}"
    kinds = (("topic", topics, found.topics), ("group", groups, found.groups))
    named = [(kind, *one) for kind, names, grants in kinds for one in zip(names, grants, strict=True)]
    if not named and not found.admin:
        summary += ". --topic and --group show the permissions on names"
    columns: Columns = {
        "KIND": lambda one: one[0],
        "NAME": lambda one: one[1],
        "PUB": lambda one: _yes(one[2].publish),
        "SUB": lambda one: _yes(one[2].subscribe),
        "BROWSE": lambda one: _yes(one[2].browse),
    }
    return CommandOutput(found, (summary, OutputTable(columns, named)) if named else summary)


def _yes(is_granted: bool) -> str:
    return "yes" if is_granted else "no"


async def show_roles(
    mq: "Client",
    after: Annotated[str, typer.Option(help="Only roles behind this name.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Maximum number of roles.")] = 100,
) -> CommandOutput:
    """Show the roles in the access file of the snode that answers."""
    found = await mq.admin.users.list_roles(after=after, limit=limit)
    if not found.access_file:
        return CommandOutput(found.roles, OPEN)
    columns: Columns = {"ROLE": "name", "ADMIN": "admin", "OBSERVER": "observer", "USERS": "user_count", **GRANTS}
    return CommandOutput(found.roles, OutputTable(columns, found.roles))


async def describe_role(
    mq: "Client", name: Annotated[str, typer.Argument(help="The name of the role.")]
) -> CommandOutput:
    """Show a role of the access file, with its users."""
    found = await mq.admin.users.describe_role(name)
    role = found.role
    kind = "admin" if role.admin else "observer" if role.observer else "neither admin nor observer"
    rules = [("topic", one) for one in role.topics] + [("group", one) for one in role.groups]
    columns: Columns = {
        "KIND": lambda one: one[0],
        "NAME": lambda one: one[1].name,
        "PERMISSION": lambda one: one[1].grant,
    }
    users = ", ".join(found.access_keys) or "none"
    return CommandOutput(found, (f"role {role.name}: {kind}", f"users: {users}", OutputTable(columns, rules)))


async def permissions(
    mq: "Client",
    after: Annotated[str, typer.Option(help="Only users behind this access key.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Maximum number of users.")] = 100,
) -> CommandOutput:
    """Show the permissions of users, from the access file of the snode that answers."""
    found = await mq.admin.users.list_permissions(after=after, limit=limit)
    columns: Columns = {
        "ACCESS KEY": "access_key",
        "ADMIN": "admin",
        "OBSERVER": "observer",
        "ROLES": lambda one: ", ".join(one.roles),
        **GRANTS,
    }
    if not found.access_file:
        return CommandOutput(found.users, OPEN)
    trusted = ", ".join(found.trusted_addresses)
    text = [f"callers from {trusted} may do everything without a signature"] if trusted else []
    return CommandOutput(found.users, [*text, OutputTable(columns, found.users)])


async def audit(
    mq: "Client",
    refused: Annotated[bool, typer.Option("--refused", help="Refused calls instead of changes.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Maximum number of entries.")] = 100,
) -> CommandOutput:
    """Show the last calls of operators that changed something, or the last refused calls. The latest is first."""
    found = await mq.admin.users.list_audit_entries(refused=refused, limit=limit)
    columns: Columns = {
        "TIME": lambda one: text_of_time(one.at_ms),
        "USER": lambda one: one.user or "-",
        "ADDRESS": "peer",
        "SNODE": "snode",
        "CALL": "method",
        **({"CALLS": "count"} if refused else {"TARGET": "target"}),
        "ERROR": "error",
    }
    text: list[str | OutputTable] = [OutputTable(columns, found.entries)]
    if found.unreachable_snodes:
        text.append(f"the entries of {', '.join(found.unreachable_snodes)} are missing, since they do not answer")
    return CommandOutput(found.entries, text)


async def put(
    mq: "Client",
    access_key: AccessKey,
    secret_env: Annotated[
        str, typer.Option(help="The environment variable with the secret key; needed for a new user.")
    ] = "",
    enabled: Annotated[bool | None, typer.Option(help="Whether its signatures are accepted.")] = None,
) -> CommandOutput:
    """Create or change a user; options that are not given are unchanged."""
    secret_key = secret_of(secret_env, "--secret-env") if secret_env else ""
    try:
        user = await mq.admin.users.put(access_key, secret_key=secret_key, enabled=enabled)
    except Invalid as error:
        if secret_env or error.field != "secret_key":
            raise
        raise Invalid(
            f"{error.message}: set an environment variable to the secret and name it here", field="--secret-env"
        ) from None
    return CommandOutput(user, f"user {user.access_key} is {'enabled' if user.enabled else 'disabled'}")


async def delete(mq: "Client", access_key: AccessKey) -> CommandOutput:
    """Delete a user. Its calls are refused within half a minute, and its streams end."""
    await mq.admin.users.delete(access_key)
    return CommandOutput({"deleted": access_key}, f"deleted user {access_key}")


def secret_of(variable: str, field: str) -> str:
    """The secret in an environment variable, so that it is in no command line and in no file. Errors: Invalid."""
    if not (secret := os.environ.get(variable, "")):
        raise Invalid(f"the environment variable {variable} is not set; expected the user's secret key", field=field)
    return secret


ROLE_COMMANDS: Commands = {"list": show_roles, "describe": describe_role}
"""The commands of `ortoo role`, by name."""


COMMANDS: Commands = {"list": show_all, "access": access, "permissions": permissions, "put": put, "delete": delete}
"""The commands of `ortoo user`, by name."""
