"""The `ortoo` command: its subcommands and their functions.

Modules that are slow to import are imported by the functions that need them.
"""

import copy
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from ortoo.cli.cluster import bundle, declarations, draining, processes, profiles, replicas, top, users
from ortoo.cli.commands import bench, dead_letters, groups, messages, sinks, topics
from ortoo.cli.commands.deferred import delays, schedules, transactions
from ortoo.cli.terminal.command import Address, AsJson, Commands, command, run
from ortoo.cli.terminal.completion import complete_groups, complete_profiles, complete_topics
from ortoo.cli.terminal.examples import epilog
from ortoo.cli.terminal.printing import print_note, print_text
from ortoo.common.machine.standard_files import finish_output, open_missing_standard_files, print_error

app = typer.Typer(
    help="Ortoo, a message queue.", no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False
)

COMMANDS: Commands = {
    "send": messages.send,
    "tail": messages.tail,
    "consume": messages.consume,
    "probe": messages.probe,
    "bench": bench.bench,
    "peek": dead_letters.peek,
    "lag": groups.lag,
    "explain": groups.explain,
    "delivery": groups.delivery,
    "reset-offset": groups.reset_offset,
    "apply": declarations.apply,
    "export": declarations.export,
    "clients": processes.clients,
    "cluster": processes.cluster,
    "top": top.top,
    "audit": users.audit,
    "bundle": bundle.bundle,
}
FAMILIES: dict[str, tuple[str, Commands]] = {
    "topic": ("Create, show and delete topics.", topics.COMMANDS),
    "group": ("Show and change consumer groups.", groups.COMMANDS),
    "message": ("Find single messages.", messages.COMMANDS),
    "delay": ("Show and cancel delayed messages.", delays.COMMANDS),
    "schedule": ("Create, show, suspend and delete schedules of recurring messages.", schedules.COMMANDS),
    "sink": ("Show and reset exactly-once sinks, such as that of the Spark connector.", sinks.COMMANDS),
    "enode": (
        "Drain an enode; show and change the replicas of enodes and their leader.",
        draining.COMMANDS | replicas.COMMANDS,
    ),
    "settings": ("Show and change the settings of running processes.", processes.SETTINGS_COMMANDS),
    "tx": ("Show open transactions; commit them or roll them back.", transactions.COMMANDS),
    "role": ("Show the roles that the access file of a snode gives to users.", users.ROLE_COMMANDS),
    "user": ("Show, create and change the users who sign requests.", users.COMMANDS),
    "dlq": ("Show dead letters, send them again, and park messages.", dead_letters.COMMANDS),
}
"""Commands of two words: the first word, its help, and the second words, which each module lists."""


def _version(requested: bool) -> None:
    if requested:
        from ortoo.common.errors.findings import process_version

        print_text(f"ortoo {process_version()}")
        raise typer.Exit


@app.callback()
def main_options(
    explain: Annotated[
        bool, typer.Option("--explain", help="Print the equivalent grpcurl command of each call.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_version)
    ] = False,
    profile: Annotated[
        str, typer.Option(help="Connect with this profile; see `ortoo profile`.", autocompletion=complete_profiles)
    ] = "",
) -> None:
    """Ortoo, a message queue."""
    if profile:
        os.environ["ORTOO_PROFILE"] = profile
        os.environ.pop("ORTOO_ADDRESS", None)
    if explain:
        from ortoo.client.core.connection import call_explainer

        call_explainer.set(lambda said: print_note(f"# {said}"))


@app.command(epilog=epilog("dev"))
def dev(
    data_dir: Annotated[Path, typer.Option(help="The folder for messages.")] = Path(".ortoo"),
    listen_address: Annotated[
        str, typer.Option(envvar="ORTOO_LISTEN_ADDRESS", help="host:port for clients; port 0 takes a free one.")
    ] = "127.0.0.1:8081",
    replicas: Annotated[
        int, typer.Option(help="Number of replicas of the enode: 1, 3 or 5. Several are separate processes.")
    ] = 1,
    console: Annotated[
        str, typer.Option(help="host:port of the web console; a free port if it is taken. Empty = no console.")
    ] = "127.0.0.1:8088",
) -> None:
    """Run a whole cluster in this process, for development."""
    try:
        from ortoo.cli.dev.cluster import run as run_cluster
    except ModuleNotFoundError as error:
        from ortoo.common.errors import Unsupported

        raise Unsupported(
            f"ortoo dev runs the servers, but {error.name} is not installed: pip install 'ortoo[server]'"
        ) from error

    if replicas not in (1, 3, 5):
        raise typer.BadParameter("expected 1, 3 or 5", param_hint="--replicas")
    run_cluster(data_dir, listen_address, replicas, console)


@app.command(epilog=epilog("doctor"))
def doctor(
    address: Address = "",
    topic: Annotated[str, typer.Option(help="Check this topic too.", autocompletion=complete_topics)] = "",
    group: Annotated[
        str, typer.Option(help="Check this group too; with --topic also its lag.", autocompletion=complete_groups)
    ] = "",
    patience: Annotated[
        float, typer.Option(min=1.0, help="Factor for the limit of two seconds, for a slow machine or network.")
    ] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Find problems with their causes and remedies, within two seconds. The exit code is 1 if a problem is serious."""
    from ortoo.cli.doctor.run import diagnose

    run(diagnose(address, topic, group, as_json=as_json, timeout_factor=patience))


for word, work in COMMANDS.items():
    app.command(word, epilog=epilog(word))(command(work))
for family, (about, words) in FAMILIES.items():
    family_app = typer.Typer(help=about, no_args_is_help=True)
    for word, work in words.items():
        family_app.command(word, epilog=epilog(f"{family} {word}"))(command(work))
    app.add_typer(family_app, name=family)


profile_app = typer.Typer(help="Keep addresses and credentials of clusters.", no_args_is_help=True)
profile_app.command("list", epilog=epilog("profile list"))(profiles.show_all)
profile_app.command("use", epilog=epilog("profile use"))(profiles.use)
profile_app.command("save", epilog=epilog("profile save"))(profiles.save)
app.add_typer(profile_app, name="profile")


def _only(word: str) -> typer.Typer:
    """A copy of the app with only this subcommand, because building all subcommands at each start is slow.

    The copy is the whole app if there is no such subcommand.
    """
    chosen = copy.copy(app)
    chosen.registered_commands = [
        one for one in app.registered_commands if word == (one.name or getattr(one.callback, "__name__", ""))
    ]
    chosen.registered_groups = [one for one in app.registered_groups if one.name == word]
    return chosen if chosen.registered_commands or chosen.registered_groups else app


def main() -> None:
    """Run the `ortoo` command of this process's arguments, and exit.

    Exit codes: 0 = success, 1 = a reported error, 2 = wrong usage, 141 = the reader of the output has ended.
    """
    open_missing_standard_files()
    sys.exit(finish_output(_run()))


def _run() -> int:
    from ortoo.common.errors import OrtooError

    try:
        _only(sys.argv[1] if sys.argv[1:] else "")()
    except SystemExit as ended:  # Typer ends each command with it
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        raise
    except OrtooError as error:
        print_error(str(error))
    except OSError as error:
        print_error(f"{error.filename or 'the system'}: {error.strerror}")
    return 1
