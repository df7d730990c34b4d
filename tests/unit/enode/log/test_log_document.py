"""The document of the log's format matches the code."""

import re
import struct
from pathlib import Path
from typing import get_type_hints

import pytest

from ortoo.enode.changes.codec import PackedColumn, Repeated, _CodecSource, _declaration
from ortoo.enode.changes.kinds import KINDS
from ortoo.enode.log.frame import FIELDS, FrameKind

DOCUMENT = Path(__file__).parents[4] / "docs" / "formats" / "log.md"


def test_the_header_table_is_that_of_the_code() -> None:
    """Every field with its place, width and meaning, in order."""
    at = 0
    rows = []
    for name, code, meaning in FIELDS:
        width = struct.calcsize("<" + code)
        rows.append(f"| {at} | {width} | `{name}` | {meaning} |\n")
        at += width
    assert "".join(rows) in DOCUMENT.read_text()


def test_every_kind_of_frame_is_described() -> None:
    """The table of kinds names all of them."""
    for kind in FrameKind:
        assert f"| {int(kind)} `{kind.name.lower()}` |" in DOCUMENT.read_text()


WORDS = {"B": "u8", "?": "u8", "H": "u16", "I": "u32", "Q": "u64", "q": "i64"}
SAME_AS = {33: 32}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_change_is_described_with_its_numbers(kind: int) -> None:
    """The types of all numbers of a change, in the order of its bytes, match its declaration."""
    section = DOCUMENT.read_text().partition("## State changes")[2].partition("###")[0]
    described = dict(re.findall(r"^\| (\d+) \| [^|]+ \| (.+) \|$", section, re.MULTILINE))
    change = KINDS[kind]
    assert set(described) == {str(kind) for kind in KINDS}
    codes = _CodecSource(change)._codes
    for hint in get_type_hints(change, include_extras=True).values():
        wire = _declaration(hint)[1]
        codes += wire.codes.replace("16s", "") if isinstance(wire, Repeated | PackedColumn) else ""
    body = described[str(SAME_AS.get(kind, kind))]
    assert re.findall(r"\b[ui]\d+\b", body) == [WORDS[code] for code in codes]
