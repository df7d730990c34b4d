"""Text that clients chose reaches a terminal as visible characters alone."""

import io
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ortoo.cli.terminal.output import CommandOutput, OutputTable, show
from ortoo.common.machine.printable import printable, printable_json, printable_line
from ortoo.common.machine.standard_files import print_error

CLIPBOARD = "\x1b]52;c;cm0gLXJm\x07"
UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (CLIPBOARD, r"\x1b]52;c;cm0gLXJm\x07"),
        ("a\x9b31mred", r"a\x9b31mred"),
        ("\x7f\r\b", r"\x7f\x0d\x08"),
        ("user\u202egpj.exe", r"user\u202egpj.exe"),
        ("\u2066x\u2069\u200f\u061c", r"\u2066x\u2069\u200f\u061c"),
        ("\ud800", r"\ud800"),
        ("tschüß 你好 🙂", "tschüß 你好 🙂"),
    ],
)
def test_unsafe_characters_are_shown_as_escapes(text: str, shown: str) -> None:
    """C0, C1, DEL, bidirectional controls and surrogates. All other text stays."""
    assert printable(text) == printable_line(text) == shown


@pytest.mark.parametrize("as_json", [False, True])
def test_characters_that_the_terminal_lacks_are_shown_as_escapes(
    monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    """Nothing fails for want of an encoding, and JSON stays valid."""
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="ascii"))
    show(CommandOutput({"body": "gr\u00fc\u00df \U0001f642"}, "gr\u00fc\u00df \U0001f642"), as_json=as_json)
    shown = written.getvalue().decode()
    assert (
        json.loads(shown) == {"body": "gr\u00fc\u00df \U0001f642"} if as_json else shown == "gr\\xfc\\xdf \\U0001f642\n"
    )


def test_line_breaks_stay_in_texts_and_not_in_cells() -> None:
    """A body may have several lines; a cell of a table cannot imitate another row."""
    assert printable("a\n\tb") == "a\n\tb"
    assert printable_line("a\n\tb") == r"a\x0a\x09b"


@given(st.text())
def test_json_keeps_its_value(text: str) -> None:
    """A program reads the same text, and a terminal gets no unsafe character."""
    line = printable_json(json.dumps({"body": text}, ensure_ascii=False))
    assert json.loads(line) == {"body": text}
    assert not UNSAFE.search(line)


def test_every_output_of_a_command_is_safe(capsys: pytest.CaptureFixture[str]) -> None:
    """Text, tables, JSON and errors."""
    table = OutputTable({"key": lambda item: item}, [CLIPBOARD + "\n"])
    for as_json in (False, True):
        show(CommandOutput([{"body": CLIPBOARD}], (CLIPBOARD, table)), as_json=as_json)
    print_error(f"client {CLIPBOARD!s} is not connected")
    written = capsys.readouterr()
    for line in (written.out + written.err).splitlines():
        assert not UNSAFE.search(line)
    assert (written.out + written.err).count("]52;c;") == 4
