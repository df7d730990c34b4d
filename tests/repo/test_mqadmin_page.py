"""The page that translates mqadmin names only commands that exist, and every command of mqadmin once."""

import re
from pathlib import Path

from ortoo.cli.app import COMMANDS, FAMILIES

PAGE = Path(__file__).parents[2] / "docs/operations/mqadmin.md"
BESIDE = {"doctor", "dev", "COMMAND"}
"""Words that the command line declares elsewhere, and the placeholder."""


def test_every_command_that_the_page_names_exists() -> None:
    """Every command that the page names exists."""
    named = re.findall(r"`ortoo (?:--explain )?([a-z-]+|COMMAND)(?: ([a-z-]+))?", PAGE.read_text())
    assert len(named) > 40
    for word, second in named:
        if word in FAMILIES:
            assert second in FAMILIES[word][1], (word, second)
        else:
            assert word in COMMANDS or word in BESIDE, word


def test_each_command_of_mqadmin_has_one_line() -> None:
    """A command has its equivalent, or the reason why there is none; never two answers."""
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", PAGE.read_text(), re.MULTILINE)
    commands = [name for names, _ in rows for name in names.split(", ") if re.fullmatch(r"[a-z][A-Za-z]+", name)]
    commands = [name for name in commands if name != "mqadmin"]
    assert len(commands) >= 85
    assert sorted(set(commands)) == sorted(commands)
    for names, here in rows:
        assert "`ortoo" in here or here.startswith("none: ") or "grpcurl" in here or here in ("here", "---"), names
