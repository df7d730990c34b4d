"""The tables of columns in the documents: `make docs` writes them from the code, a test compares them."""

from collections.abc import Mapping
from pathlib import Path

from ortoo.common.records.columns import COLUMNS, MESSAGE_COLUMNS
from ortoo.spark.core import columns as spark
from ortoo.spark.writing import write_options
from tests.repo.tree import ROOT

SINK_MEANINGS = {
    "body": "1 byte to 4 MiB",
    "topic": "the topic of the row; the option `topic` overrides this column",
    "enode": "with `queue_id`, the exact destination",
    "queue_id": "with `enode`, the exact destination",
    "message_id": "the message's id; made by the server if it is absent",
    "born_at": "when the message was made; the time of writing if it is absent",
    "message_group": "rows of one group go to one queue in the order of their partition",
    "properties": "no null values",
}
"""Meanings that differ between reading and writing."""


def format_rows() -> list[str]:
    """The fields of a record batch."""
    return [f"| {one.number} | `{one.name}` | {one.layout} | {one.presence} |" for one in COLUMNS]


def reading_rows() -> list[str]:
    """The columns of a read."""
    return [f"| `{one.name}` | {one.ddl} | {one.description} |" for one in spark.COLUMNS]


def writing_rows() -> list[str]:
    """The columns of a sink."""
    meanings = {one.name: one.field.meaning for one in spark.MESSAGE_TABLE if one.field is not None} | SINK_MEANINGS
    return [f"| `{name}` | {' or '.join(kinds)} | {meanings[name]} |" for name, kinds in write_options.COLUMNS.items()]


def limit_rows() -> list[str]:
    """The limits of texts that do not count towards the common limit."""
    return [
        f"| `{one.name}` | {one.rule.bytes_max:,} bytes |"
        for one in MESSAGE_COLUMNS
        if one.rule is not None and not one.shares_text_limit
    ]


TABLES = (
    ("docs/formats/record-batch.md", "| Number | Field | Layout | Present |", format_rows),
    ("docs/formats/record-batch.md", "| Text | Limit |", limit_rows),
    ("docs/spark/reading.md", "| column | type | content |", reading_rows),
    ("docs/spark/writing.md", "| column | type | content |", writing_rows),
)
"""The page and the head of each table, and the function that makes its rows."""


def with_rows(page: str, head: str, rows: list[str]) -> str:
    """A page with other rows under the head of a table."""
    lines = page.split("\n")
    first = lines.index(head) + 2
    end = next(at for at in range(first, len(lines)) if not lines[at].startswith("|"))
    return "\n".join([*lines[:first], *rows, *lines[end:]])


def pages() -> Mapping[Path, str]:
    """The text of each page with its current tables."""
    written: dict[Path, str] = {}
    for name, head, rows in TABLES:
        file = ROOT / name
        written[file] = with_rows(written.get(file) or file.read_text(encoding="utf-8"), head, rows())
    return written


if __name__ == "__main__":
    for file, text in pages().items():
        file.write_text(text, encoding="utf-8")
