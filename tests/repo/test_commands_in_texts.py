"""Commands of `ortoo` that pages, alerts, findings and log events name exist, with the options that are named."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from ortoo.cli.app import app
from tests.repo.tree import ROOT

PAGES = ("README.md", "ARCHITECTURE.md", "docs/*.md", "docs/operations/*.md", "docs/migrating/*.md", "docs/spark/*.md")
TEXTS = ("deploy/k8s/chart/files/alerts.yaml", "services/*/src/**/*.py", "libs/c*/src/**/*.py")
IN_TEXT = re.compile(r"`(ortoo [a-z][^`\n]*)`")
COMMANDS: Any = typer.main.get_command(app)
"""The tree of all commands, built once for hundreds of texts."""
SPANS = "docs/operations/traces.md"
"""This page has the names of spans, such as `ortoo push`."""


def named(pages: tuple[str, ...], texts: tuple[str, ...]) -> Iterator[tuple[Path, str]]:
    """(file, command) of every command in code spans and in blocks of pages."""
    for pattern in (*pages, *texts):
        for path in sorted(ROOT.glob(pattern)):
            text = path.read_text() if path != ROOT / SPANS else ""
            yield from ((path, found) for found in IN_TEXT.findall(text))
            if path.suffix == ".md":
                for block in re.findall(r"^```(?:bash|console)?\n(.*?)^```", text, re.S | re.M):
                    lines = block.replace("\\\n", " ").splitlines()
                    yield from (
                        (path, one) for line in lines if (one := line.removeprefix("$ ").strip()).startswith("ortoo ")
                    )


def fault_of(line: str) -> str:
    """Why the command cannot exist; empty if it can. Arguments may be left out, as in `ortoo topic trim`."""
    line = re.sub(r"\[[^\[\]]*\]", "", line)  # optional parts
    line = re.sub(r"\{[^{}]*\}|…|\.\.\.", "X", re.sub(r"\b(REPLICA|N|MS)\b", "1", line))
    try:
        _, *words = shlex.split(re.split(r" [|>#] | \|\||;$", line)[0])
    except ValueError:
        return ""  # a part of a text with quotation marks
    found = COMMANDS
    path = ["ortoo"]
    options = {name for one in found.params for name in one.opts}
    while hasattr(found, "commands") and words:
        word = words.pop(0)
        if word.startswith("-"):
            if word.split("=")[0] not in options | {"--help"}:
                return f"{' '.join(path)} has no option {word}"
            words = words[1:] if word == "--profile" else words
            continue
        if word not in found.commands:
            return "" if word.isupper() else f"{' '.join(path)} has no command {word}"
        path.append(word)
        found = found.commands[word]
    if hasattr(found, "commands"):
        return ""
    try:
        found.make_context(path[-1], words)
    except Exception as error:  # Typer may have a copy of click, with classes of its own
        said = getattr(error, "message", "")
        if type(error).__name__ in ("MissingParameter", "Exit", "NoArgsIsHelpError") or "requires an argument" in said:
            return ""
        return f"{' '.join(path)}: {said or error!r}"
    return ""


def test_every_named_command_exists() -> None:
    """An operator can type what a page, an alert or a finding says."""
    found = sorted({(str(path.relative_to(ROOT)), line) for path, line in named(PAGES, TEXTS)})
    assert len(found) > 150
    assert [f"{path}: {fault}" for path, line in found if (fault := fault_of(line))] == []


@pytest.mark.parametrize("line", ["ortoo topic remove orders", "ortoo topic update orders --queue 8", "ortoo dlqs"])
def test_a_wrong_command_is_found(line: str) -> None:
    """The test can fail."""
    assert fault_of(line)
