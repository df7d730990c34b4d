"""Codecs of messages follow the table of columns: none has a list of its own, and generated files are current."""

import ast
import fnmatch
from collections.abc import Iterator
from pathlib import Path

import pytest

from ortoo.common.records.columns import MESSAGE_COLUMNS
from tests.repo import column_pages, column_types
from tests.repo.tree import Tree

CODECS = (
    "libs/common/src/ortoo/common/records/*.py",
    "libs/common/src/ortoo/common/arrays/*.py",
    "libs/common/src/ortoo/common/filters/*.py",
    "libs/spark/src/ortoo/spark/arrow/*.py",
    "libs/spark/src/ortoo/spark/writing/*.py",
    "libs/spark/src/ortoo/spark/core/columns.py",
)
"""The modules that read, write, copy, filter or check columns."""
TABLE = "libs/common/src/ortoo/common/records/columns.py"
NAMES = {name for column in MESSAGE_COLUMNS for name in (column.name, column.name.removesuffix("_ms"))}

# Module and name, with the reason why the name is written there.
EXCEPTIONS = {
    ("records/message.py", "tag"): "an argument by position, and a slot",
    ("records/message.py", "keys"): "an argument by position, and a slot",
    ("records/message.py", "properties"): "the field of an error about all texts of a message",
    ("records/batch.py", "tag"): "a slot of Message, which is measured for each message",
    ("records/batch.py", "keys"): "a slot of Message, which is measured for each message",
    ("records/writer.py", "properties"): "the limit of the number of entries, and its error",
    ("records/text_rules.py", "tag"): "the word for this text in errors",
    ("filters/property_values.py", "tag"): "conditions are about tags and properties",
    ("filters/property_values.py", "properties"): "conditions are about tags and properties",
    ("filters/message_filter.py", "tag"): "the filter selects by tag",
    ("filters/selection.py", "expire_at_ms"): "expired messages are not selected",
    ("writing/lanes.py", "message_group"): "the group of a message chooses its queue",
    ("writing/rows.py", "tag"): "an option of the sink overrides the column",
    ("writing/rows.py", "message_group"): "an option of the sink overrides the column",
    ("writing/rows.py", "properties"): "additional columns of a frame become properties",
    ("writing/rows.py", "born_at"): "a repeatable task needs this time in every row",
    ("writing/invalid_rows.py", "properties"): "the copy of an invalid row has its reason in properties",
    ("writing/invalid_rows.py", "born_at"): "the copy of an invalid row has the row's time",
    ("writing/column_encoder.py", "keys"): "the field of an error",
    ("writing/column_encoder.py", "properties"): "the field of an error",
    ("writing/write_options.py", "tag"): "an option of the sink",
    ("writing/write_options.py", "message_group"): "an option of the sink",
    ("writing/write_options.py", "properties"): "a value of the option extraColumns",
    ("writing/write_options.py", "born_at"): "a repeatable task needs this time in every row",
}


def names_in(source: str) -> Iterator[tuple[int, str]]:
    """The names of columns that are written in a module as text, attribute or keyword, with their lines."""
    tree = ast.parse(source)
    calls = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in NAMES:
            yield node.lineno, node.value
        elif isinstance(node, ast.Attribute) and node.attr in NAMES and id(node) not in calls:  # not dict.keys()
            yield node.lineno, node.attr
        elif isinstance(node, ast.keyword) and node.arg in NAMES:
            yield node.value.lineno, node.arg


def written_by_hand(tree: Tree) -> dict[tuple[str, str], list[str]]:
    """The names of columns in codecs: module and name -> places."""
    found: dict[tuple[str, str], list[str]] = {}
    for file in tree.named(".py"):
        if file == TABLE or not any(fnmatch.fnmatchcase(file, pattern) for pattern in CODECS):
            continue
        module = "/".join(Path(file).parts[-2:])
        for line, name in names_in(tree.text(file)):
            found.setdefault((module, name), []).append(f"{file}:{line}: {name}")
    return found


def test_no_codec_names_a_column(tree: Tree) -> None:
    """A codec with names of columns forgets the next column. It iterates over MESSAGE_COLUMNS instead."""
    found = written_by_hand(tree)
    assert [place for key, places in found.items() if key not in EXCEPTIONS for place in places] == []
    assert sorted(EXCEPTIONS.keys() - found.keys()) == [], "these exceptions are not needed any more"


@pytest.mark.parametrize("line", ['x = {"trace_context": 1}', "y = table.priority", "f(expire_at_ms=3)"])
def test_the_rule_on_names_of_columns_fires(tmp_path: Path, line: str) -> None:
    """A text, an attribute and a keyword are found, in a codec and not elsewhere."""
    codec = "libs/common/src/ortoo/common/arrays/new_codec.py"
    planted = {codec: f"\n{line}\n", "libs/cli/src/ortoo/cli/output.py": line, TABLE: line}
    [places] = written_by_hand(Tree.planted(tmp_path, planted)).values()
    assert [place.rsplit(":", 1)[0] for place in places] == [f"{codec}:2"]


def test_the_stubs_are_current() -> None:
    """`make docs` writes the types of attributes from the table."""
    for file, text in column_types.stubs().items():
        assert file.read_text(encoding="utf-8") == text, f"{file} is not current; run `make docs`"


def test_the_tables_in_the_documents_are_current() -> None:
    """`make docs` writes the columns of the format and of Spark from the table."""
    for file, text in column_pages.pages().items():
        assert file.read_text(encoding="utf-8") == text, f"{file} is not current; run `make docs`"
