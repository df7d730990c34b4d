"""The document of the log's format and the code say the same."""

import struct
from pathlib import Path

from ortoo.enode.log.frame import FIELDS, Kind

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
    for kind in Kind:
        assert f"| {int(kind)} `{kind.name.lower()}` |" in DOCUMENT.read_text()
