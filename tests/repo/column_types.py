"""The stubs of modules whose attributes are the columns of messages: `make docs` writes them, a test compares them."""

from collections.abc import Mapping
from pathlib import Path

from ortoo.common.records.columns import MESSAGE_COLUMNS, RARE_COLUMNS, Layout
from tests.repo.tree import ROOT

HEAD = """# Generated from the table of columns by `make docs`. Do not edit.
"""
COMMON = "libs/common/src/ortoo/common"
ARRAYS = {
    Layout.INT8: "NDArray[np.int8]",
    Layout.INT32: "Int32s",
    Layout.TIMES: "Int64s",
    Layout.TEXTS: "TextArrays",
    Layout.DICTIONARY: "DictionaryArrays",
    Layout.LISTS: "ListArrays",
    Layout.MAPS: "MapArrays",
}


def type_text(kind: object) -> str:
    """A type as it is written in code."""
    text = kind.__name__ if isinstance(kind, type) and not hasattr(kind, "__args__") else str(kind)
    return text.replace("collections.abc.", "")


def message_fields() -> str:
    """The stub of `records/message_fields.py`."""
    types = [(column.name, type_text(column.value_type)) for column in RARE_COLUMNS]
    fields = "".join(f"    {name}: {kind} = ...\n" for name, kind in types)
    arguments = "".join(f"    {name}: {kind}\n" for name, kind in types)
    attributes = "".join(f"    @property\n    def {name}(self) -> {kind}: ...\n" for name, kind in types)
    return f"""{HEAD}from collections.abc import Mapping
from typing import Final, NamedTuple, TypedDict, Unpack

class RareFields(NamedTuple):
{fields}
class RareArguments(TypedDict, total=False):
{arguments}
NO_RARE_FIELDS: Final[RareFields]

class ColumnFields:
    __slots__ = ()
    rare: RareFields
{attributes}
def rare_fields(**given: Unpack[RareArguments]) -> RareFields: ...
def exclusive_columns(rare: RareFields) -> int: ...
"""


def column_attributes() -> str:
    """The stub of `arrays/column_attributes.py`."""
    attributes = "".join(
        f"    @property\n    def {column.name}(self) -> {ARRAYS[column.layout]} | None: ...\n"
        for column in MESSAGE_COLUMNS
    )
    return f"""{HEAD}import numpy as np
from numpy.typing import NDArray

from ortoo.common.arrays.opened_batch import DictionaryArrays, Int32s, Int64s, ListArrays, MapArrays, TextArrays

class ColumnAttributes:
    __slots__ = ()
{attributes.rstrip()}
"""


def stubs() -> Mapping[Path, str]:
    """The text of each stub."""
    folder = ROOT / COMMON
    return {
        folder / "records/message_fields.pyi": message_fields(),
        folder / "arrays/column_attributes.pyi": column_attributes(),
    }


if __name__ == "__main__":
    for file, text in stubs().items():
        file.write_text(text, encoding="utf-8")
