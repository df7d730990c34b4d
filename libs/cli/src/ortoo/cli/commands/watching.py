"""`ortoo doctor` and `ortoo top`, and `--explain` before any command."""

import sys
from typing import Annotated

import typer

from ortoo.cli.terminal.options import DEFAULT_ADDRESS, Address, AsJson, run, several


def add_to(app: typer.Typer) -> None:
    """Make the commands part of the `ortoo` command."""
    app.command()(doctor)
    app.command()(top)
    app.callback()(before)


def doctor(
    address: Address = DEFAULT_ADDRESS,
    topic: Annotated[str, typer.Option(help="Look at this topic too.")] = "",
    group: Annotated[str, typer.Option(help="Look at this group too; with --topic at its lag.")] = "",
    as_json: AsJson = False,
) -> None:
    """Say what is wrong, why, and what to do; within two seconds. Exit code 1 if something is."""
    from ortoo.cli.doctor.run import diagnose

    run(diagnose(several(address), topic, group, as_json=as_json))


def top(
    interval_s: Annotated[float, typer.Option("--interval", min=0.2, help="Seconds between two looks.")] = 1.0,
    count: Annotated[int, typer.Option("-n", min=0, help="Stop after so many looks; 0 = never.")] = 0,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Show topics, groups and processes as they change. Ctrl-C ends it."""
    from ortoo.cli.commands.top import watch

    run(watch(several(address), interval_s, count, as_json=as_json))


def before(
    explain: Annotated[
        bool, typer.Option("--explain", help="Print each call as the grpcurl command that does the same.")
    ] = False,
) -> None:
    """Ortoo, a message queue."""
    if explain:
        from ortoo.client.core.connection import explained_to

        explained_to.set(lambda command: print(f"# {command}", file=sys.stderr))
