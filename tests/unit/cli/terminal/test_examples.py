"""Every command's help has examples, and each example is a command that would run."""

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from ortoo.cli.app import app
from ortoo.cli.terminal.examples import EXAMPLES


def leaves(group: Any, before: str = "") -> Iterator[str]:
    """The words of every command."""
    for name, one in group.commands.items():
        yield from leaves(one, f"{before}{name} ") if hasattr(one, "commands") else (before + name,)


def parse(example: str) -> str:
    """Parse an example without running it; returns the words of its command."""
    line = example.rpartition("| ")[2].partition(" >")[0] if "--sql" not in example else example
    _, *words = shlex.split(line)
    found: Any = typer.main.get_command(app)
    path = []
    while hasattr(found, "commands"):
        path.append(words.pop(0))
        found = found.commands[path[-1]]
    found.make_context(path[-1], words)
    return " ".join(path)


def test_every_command_has_examples() -> None:
    """No command lacks one, and no example is of a command that is gone."""
    assert set(leaves(typer.main.get_command(app))) == EXAMPLES.keys()


@pytest.mark.parametrize("words", EXAMPLES)
def test_each_example_is_right(words: str) -> None:
    """Its options and arguments exist, and the help of the command shows it."""
    for example in EXAMPLES[words]:
        assert parse(example) == words
    shown = CliRunner().invoke(app, [*words.split(), "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).output
    for example in EXAMPLES[words]:
        assert example in shown


def test_a_wrong_example_is_found() -> None:
    """An option that does not exist ends the parse."""
    with pytest.raises(Exception, match="No such option"):
        parse("ortoo topic create orders --queue 8")
