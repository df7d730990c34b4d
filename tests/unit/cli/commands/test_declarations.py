"""`ortoo apply` and `ortoo export`: the differences, and mistakes that are refused before any change."""

from pathlib import Path

import pytest

from ortoo.cli.commands.declarations import Entry, as_toml, plan_changes, read_declarations
from ortoo.client import Invalid

TOPIC: Entry = {"name": "orders", "queues": 4, "permission": "read_write", "type": "fifo"}
GROUP: Entry = {"name": "billing", "consume": True, "attempts": 16, "retry": "list:1s,5s", "in_flight": 0,
                "park_expired": False, "slow_messages": 1024, "slow_grace_ms": 10_000,
                "lite_exclusive": False}  # fmt: skip
PRESENT: dict[str, list[Entry]] = {"topic": [TOPIC], "group": [GROUP]}


def said(tmp_path: Path, text: str) -> dict[str, list[Entry]]:
    """The entries of a file with this text."""
    file = tmp_path / "declared.toml"
    file.write_text(text)
    return read_declarations(file)


def test_what_was_exported_changes_nothing(tmp_path: Path) -> None:
    """The output of export is valid input of apply and changes nothing."""
    declared = said(tmp_path, as_toml(PRESENT))
    assert declared == PRESENT
    assert plan_changes(declared, PRESENT) == []


def test_only_what_differs_is_changed(tmp_path: Path) -> None:
    """A new topic, more queues and another number of attempts are one line each; the others are unchanged."""
    text = '[[topic]]\nname="new"\nqueues=2\n[[topic]]\nname="orders"\nqueues=8\n[[group]]\nname="billing"\nattempts=5'
    changes = plan_changes(said(tmp_path, text), PRESENT)
    assert list(map(str, changes)) == [
        "+ topic new: queues 2", "~ topic orders: queues 4 → 8", "~ group billing: attempts 16 → 5",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("[[topics]]\nname='t'", "topics"),
        ("[[topic]]\nqueues=4", "topic[0].name"),
        ("[[topic]]\nname='t'\nqueue=4", "topic[0].queue"),
        ("[[topic]]\nname='t'\nqueues='4'", "topic[0].queues"),
        ("[[group]]\nname='g'\nconsume=1", "group[0].consume"),
        ("[[group]]\nname='g'\n[[group]]\nname='g'", "group[1].name"),
        ("[[topic]]\nname=", "file"),
        ("[[topic]]\nname='orders'\nqueues=2", "queues"),
        ("[[topic]]\nname='orders'\ntype='any'", "type"),
    ],
)
def test_what_is_wrong_is_named_before_anything_is_done(tmp_path: Path, text: str, field: str) -> None:
    """Unknown keys, wrong types, repeated names, fewer queues and another type are Invalid, with their position."""
    with pytest.raises(Invalid) as raised:
        plan_changes(said(tmp_path, text), PRESENT)
    assert raised.value.field == field
