"""`ortoo group ...`, `ortoo lag`, `ortoo reset-offset`, `ortoo clients`: their arguments."""

from typing import Annotated

import typer

from ortoo.cli.terminal.options import DEFAULT_ADDRESS, Address, AsJson, GroupName, TopicName, run, several

group_app = typer.Typer(help="Show and change consumer groups.", no_args_is_help=True)


@group_app.command("list")
def group_list(address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Show all consumer groups."""
    from ortoo.cli.commands import groups

    run(groups.show_all(several(address), as_json=as_json))


@group_app.command("describe")
def group_describe(group: GroupName, address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Show a group's settings, its members, and how far it is."""
    from ortoo.cli.commands import groups

    run(groups.describe(several(address), group, as_json=as_json))


@group_app.command("update")
def group_update(
    group: GroupName,
    consume: Annotated[bool | None, typer.Option(help="Whether its members may consume.")] = None,
    broadcast: Annotated[bool | None, typer.Option(help="Whether they may consume as broadcast.")] = None,
    notify: Annotated[bool | None, typer.Option(help="Whether they are told at once when members change.")] = None,
    slow_messages: Annotated[int | None, typer.Option(min=0, help="A member that lags further is slow.")] = None,
    slow_grace_ms: Annotated[int | None, typer.Option(min=0, help="And has acknowledged nothing for so long.")] = None,
    attempts: Annotated[int | None, typer.Option(min=0, help="How often a message is tried; 0 = 16.")] = None,
    retry: Annotated[
        str | None, typer.Option(help="When it is tried again: classic, exponential:1s:10m, or list:1s,5s,30s.")
    ] = None,
    in_flight: Annotated[int | None, typer.Option(min=0, help="How many messages of a topic may be leased.")] = None,
    park_expired: Annotated[bool | None, typer.Option(help="Whether messages whose time is over are parked.")] = None,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Change a group, or create it; what is not given stays."""
    from ortoo.cli.commands import groups

    run(
        groups.update(
            several(address),
            group,
            as_json=as_json,
            consume_enabled=consume,
            broadcast_enabled=broadcast,
            notify_members_changed=notify,
            slow_consumer_threshold_messages=slow_messages,
            slow_consumer_grace_ms=slow_grace_ms,
            attempts_max=attempts,
            retry=retry,
            in_flight_max=in_flight,
            park_expired=park_expired,
        )
    )


@group_app.command("mode")
def group_mode(
    group: GroupName,
    topic: Annotated[str | None, typer.Argument(help="The topic; without it all that the group consumes.")] = None,
    to: Annotated[str | None, typer.Option("--set", help="offsets, pop, pop-in-order, or any.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Also while members have messages or queues.")] = False,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show how a group consumes its topics (by offsets or by pop), or change it for one."""
    from ortoo.cli.commands import groups

    run(groups.mode(several(address), group, topic, to, force=force, as_json=as_json))


@group_app.command("delete")
def group_delete(group: GroupName, address: Address = DEFAULT_ADDRESS, as_json: AsJson = False) -> None:
    """Delete a group and its offsets."""
    from ortoo.cli.commands import groups

    run(groups.delete(several(address), group, as_json=as_json))


@group_app.command("clone")
def group_clone(
    group: GroupName,
    to: Annotated[str, typer.Argument(help="The group that gets the offsets.")],
    topic: TopicName,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Copy a group's offsets in a topic to another group."""
    from ortoo.cli.commands import groups

    run(groups.clone(several(address), group, to, topic, as_json=as_json))


def lag(
    group: GroupName,
    topic: Annotated[str | None, typer.Argument(help="The topic; without it all that its members want.")] = None,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show how far a group is behind."""
    from ortoo.cli.commands import groups

    run(groups.lag(several(address), group, topic, as_json=as_json))


def reset_offset(
    group: GroupName,
    topic: TopicName,
    to: Annotated[
        str,
        typer.Option(help="begin, end, an offset, or a time such as 2026-01-31T12:00:00Z."),
    ],
    force: Annotated[bool, typer.Option("--force", help="Also forward, over messages never consumed.")] = False,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Move a group's offsets in a topic; its members go on from there at once."""
    from ortoo.cli.commands import groups

    run(groups.reset(several(address), group, topic, to, force=force, as_json=as_json))


def clients(
    client_id: Annotated[str | None, typer.Argument(help="One client, with its queues.")] = None,
    group: Annotated[str, typer.Option(help="Only members of this group.")] = "",
    stack: Annotated[bool, typer.Option("--stack", help="Show what the client is doing.")] = False,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show the clients that are connected, or one of them."""
    from ortoo.cli.commands import connected

    run(connected.show(several(address), client_id, group, stack=stack, as_json=as_json))


def add_to(app: typer.Typer) -> None:
    """Give the command these parts."""
    app.add_typer(group_app, name="group")
    app.command()(lag)
    app.command("reset-offset")(reset_offset)
    app.command()(clients)
