"""The document of the record batch, the code's table and the proto name the same columns."""

from pathlib import Path

from ortoo.common.records.columns import COLUMNS
from ortoo.v1 import record_pb2

DOCUMENT = Path(__file__).parents[4] / "docs" / "formats" / "record-batch.md"


def test_the_document_has_the_codes_table() -> None:
    """The document has the same fields as the code, in the same order."""
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| ") and line[2].isdecimal()]
    documented = [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in rows]
    assert documented[: len(COLUMNS)] == [
        (str(column.number), f"`{column.name}`", column.layout, column.presence) for column in COLUMNS
    ]


def test_the_proto_has_the_codes_columns() -> None:
    """Numbers and names are the proto's, none left out."""
    fields = record_pb2.RecordBatch.DESCRIPTOR.fields
    assert [(column.number, column.name) for column in COLUMNS] == [(field.number, field.name) for field in fields]
