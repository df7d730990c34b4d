"""The command prints text of clients in one place, which shows unsafe characters as escapes."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.repo.tree import ROOT, Tree

COMMAND = "libs/cli/src/"
PRINTING = "libs/cli/src/ortoo/cli/terminal/printing.py"
DEMO = "libs/cli/src/ortoo/cli/demo/"
"""Its progress bars and tables have counts of its own messages only."""
BANNED_CALLS = {"print", "echo", "secho", "pprint", "Console", "LineWriter"}
OWN_LINES = {"libs/cli/src/ortoo/cli/dev/cluster.py"}
"""Addresses and process ids of the roles that `ortoo dev` starts."""


def other_ways(tree: Tree) -> Iterator[str]:
    """The places that print without the module for it."""
    for name in tree.named(".py", below=COMMAND):
        if name == PRINTING or name.startswith(DEMO) or name in OWN_LINES:
            continue
        for node in ast.walk(ast.parse(tree.text(name))):
            if isinstance(node, ast.Call):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if called in BANNED_CALLS:
                    yield f"{name}:{node.lineno}: {called}"
            if isinstance(node, ast.Attribute) and node.attr in ("stdout", "stderr", "__stdout__", "__stderr__"):
                yield f"{name}:{node.lineno}: {node.attr}"


def test_the_command_prints_in_one_place() -> None:
    """Use ortoo.cli.terminal.printing, or return a CommandOutput."""
    assert list(other_ways(Tree.of_git(ROOT))) == []


def test_another_way_would_be_seen(tmp_path: Path) -> None:
    """The rule fires for each way of printing."""
    lines = ("print(1)", "typer.echo(1)", "sys.stdout.write('')", "Console().print('')", "import sys; sys.stderr")
    for number, line in enumerate(lines):
        folder = tmp_path / str(number)
        assert list(other_ways(Tree.planted(folder, {f"{COMMAND}a.py": line}))), line
