"""Writes the reference pages of the command, the errors and the metrics from the code: `make docs`."""

import asyncio
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import typer

from ortoo.cli.app import app
from ortoo.common import errors
from ortoo.common.errors.status import FAILURE_METADATA_KEY, TABLE
from ortoo.common.telemetry.metrics import Family, Metrics
from ortoo.console.app import open_console
from ortoo.console.settings import ConsoleSettings
from ortoo.verification.servers.cluster import open_cluster

MADE = "`make docs` makes this page from the code. "
ERRORS = f"""# Errors

For application developers: the kinds of errors, the same in the Python client and in every gRPC status.

{MADE}A status has the trailing metadata `{FAILURE_METADATA_KEY}`. It is an `ortoo.v1.Failure` with the kind and the wrong field.
The message says what was expected and what to do.

| kind | gRPC status | meaning | next step | retried by the client |
|---|---|---|---|---|
"""  # noqa: E501
COMMANDS = f"""# Commands

For operators: every command of `ortoo`, with its arguments and options.

{MADE}`ortoo COMMAND --help` also shows examples. [The `ortoo` command](../operations/command.md) explains
profiles, JSON and exit codes. Every command that calls a cluster also has `--address` and `--json`.
"""
METRICS = f"""# All metrics

For operators: every metric of every role, with its kind and labels.

{MADE}[Metrics](../operations/metrics.md) explains how to collect them, and names the
further metrics of replicas.
"""
COMMON_OPTIONS = {"address", "as_json", "help"}
ROLES = {"rocketmq_topic_number": "Name server", "ortoo_segments": "Enode", "ortoo_pop_consumers": "Snode"}
CONSOLE = ("ortoo_console_sessions", "Console")
"""A metric that only one role has, and the role. The console has a part of the metrics of every role."""


def cell(text: object) -> str:
    """Text for a cell of a table, in one line."""
    return " ".join(str(text).split()).replace("|", "\\|")


def steps() -> dict[str, str]:
    """The kinds of errors and the next steps of their callers, from the docstring of the package."""
    assert errors.__doc__ is not None
    lines = (line.removeprefix("* ") for line in errors.__doc__.splitlines() if line.startswith("* "))
    return {name.partition(",")[0]: step for name, _, step in (line.partition(": ") for line in lines)}


def errors_page() -> str:
    """The page of errors."""
    rows = (
        f"| `{kind.__name__}` | `{status.name}` | {cell((kind.__doc__ or '').splitlines()[0])} "
        f"| {cell(steps()[kind.__name__])} | {'yes' if kind.retriable else 'no'} |"
        for kind, status, _ in TABLE
    )
    return ERRORS + "\n".join(rows) + "\n"


def commands_page() -> str:
    """The page of commands, a table for each family."""
    root: Any = typer.main.get_command(app)
    families: dict[str, list[str]] = {}
    for words, found in _leaves(root):
        families.setdefault(words[0] if len(words) > 1 else "", []).extend(_rows(words, found))
    parts = [COMMANDS]
    for family, rows in families.items():
        title = f"ortoo {family}" if family else "Single commands"
        parts += ["", f"## {title}", "", "| command | argument or option | meaning |", "|---|---|---|", *rows]
    return "\n".join(parts) + "\n"


def _leaves(group: Any, before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, one in group.commands.items():
        if hasattr(one, "commands"):
            yield from _leaves(one, (*before, name))
        else:
            yield (*before, name), one


def _rows(words: tuple[str, ...], found: Any) -> Iterator[str]:
    arguments = [one for one in found.params if one.param_type_name == "argument"]
    options = [one for one in found.params if one.param_type_name == "option" and one.name not in COMMON_OPTIONS]
    shape = " ".join(("ortoo", *words, *(_name(one) for one in arguments)))
    yield f"| `{cell(shape)}` | | {cell(found.help)} |"
    yield from (f"| | `{_name(one)}` | {cell(one.help)} |" for one in arguments if getattr(one, "help", ""))
    yield from (f"| | `{' '.join(one.opts + one.secondary_opts)}` | {cell(one.help)} |" for one in options)


def _name(argument: Any) -> str:
    return f"{argument.name.upper()}..." if argument.nargs == -1 else str(argument.name.upper())


def registered() -> list[Mapping[str, Family]]:
    """The metrics of a cluster with one process of each role, and of a console, by name."""
    made: list[Metrics] = []
    create = Metrics.__init__

    def recorded(self: Metrics, **options: Any) -> None:
        create(self, **options)
        made.append(self)

    async def run() -> list[Mapping[str, Family]]:
        with tempfile.TemporaryDirectory() as folder:
            async with (
                open_cluster(Path(folder)) as cluster,
                open_console(ConsoleSettings(listen_address="127.0.0.1:0", snode_address=cluster.address)),
            ):
                return [dict(one._families) for one in made]

    with patch.object(Metrics, "__init__", recorded):
        return asyncio.run(run())


def metrics_page() -> str:
    """The page of metrics, a table for each role."""
    found = registered()
    by_role = {
        title: {name: family for families in found if marker in families for name, family in families.items()}
        for marker, title in (*ROLES.items(), CONSOLE)
    }
    shared = set.intersection(*(set(by_role[title]) for title in ROLES.values()))
    every = {name: by_role["Snode"][name] for name in shared}
    parts = [METRICS]
    for title, families in (("Every role", every), *by_role.items()):
        parts += ["", f"## {title}", "", "| metric | kind | labels | meaning |", "|---|---|---|---|"]
        own = sorted(name for name in families if title == "Every role" or name not in shared)
        for name in own:
            one = families[name]
            labels = ", ".join(f"`{label}`" for label in one.labels)
            parts.append(f"| `{name}` | {one.kind} | {labels} | {cell(one.help)} |")
    return "\n".join(parts) + "\n"


PAGES = {"commands.md": commands_page, "errors.md": errors_page, "metrics.md": metrics_page}


def main(folder: Path) -> None:
    """Write the pages into `folder`."""
    for name, page in PAGES.items():
        (folder / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
