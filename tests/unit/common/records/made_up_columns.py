"""A program that runs with additional columns, one for each layout, added to the table of columns and nowhere else.

`python -m tests.unit.common.records.made_up_columns` sends their values through each codec. The module `columns` is
imported from its source with more lines in `COLUMNS`, before any other module reads the table.
"""

import importlib.util
import sys
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MODULE = "ortoo.common.records.columns"
ADDED = """
    MessageColumn[str | None](101, "made_text", Layout.TEXTS, Presence.IF_USED, "a text", TextRule("text")),
    MessageColumn[str | None](102, "made_word", Layout.DICTIONARY, Presence.IF_USED, "a word", TextRule("word")),
    MessageColumn[tuple[str, ...]](103, "made_list", Layout.LISTS, Presence.IF_USED, "texts", TextRule("key")),
    MessageColumn[int | None](104, "made_time_ms", Layout.TIMES, Presence.IF_USED, "a time"),
    MessageColumn[int | None](105, "made_rank", Layout.INT32, Presence.ALL_OR_NONE, "a number of all rows"),
    MessageColumn[int](106, "made_flag", Layout.INT8, Presence.IF_NOT_ZERO, "a small number", number_max=9),
    MessageColumn[Mapping[str, str]](107, "made_map", Layout.MAPS, Presence.IF_USED, "a map", TextRule("key")),
"""
END = ')\n"""Every field of a record batch, in the order of the numbers."""\n'
NAMES = ("made_text", "made_word", "made_list", "made_time_ms", "made_rank", "made_flag", "made_map")
COUNT = 200


class _MoreColumns(Loader):
    """Runs the source of the table with the additional lines."""

    def __init__(self, source: str) -> None:
        self._source = source

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Let Python make the module."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Run the changed source."""
        exec(compile(self._source, "columns.py with more columns", "exec"), module.__dict__)


def add_columns() -> None:
    """Import the table with the additional columns."""
    spec = importlib.util.find_spec(MODULE)
    assert spec is not None
    assert spec.origin is not None
    with open(spec.origin, encoding="utf-8") as file:
        source = file.read()
    assert source.count(END) == 1
    assert MODULE not in sys.modules
    changed = importlib.util.spec_from_loader(MODULE, _MoreColumns(source.replace(END, ADDED + END)))
    assert changed is not None
    assert changed.loader is not None
    module = sys.modules[MODULE] = importlib.util.module_from_spec(changed)
    changed.loader.exec_module(module)


def fields_of(row: int) -> dict[str, Any]:
    """The values of a row; some rows have none where a column allows it."""
    return {
        "made_text": f"text {row}" if row % 3 else None,
        "made_word": f"word {row % 4}" if row % 5 else None,
        "made_list": tuple(f"item {n}" for n in range(row % 3)),
        "made_time_ms": 1_000 + row if row % 2 else None,
        "made_rank": row,
        "made_flag": row % 10,
        "made_map": {"name": f"value {row}"} if row % 2 else {},
        "born_at_ms": row,
    }


def main() -> None:
    """Send values of the additional columns through each codec; an assertion fails where one loses them."""
    add_columns()
    import numpy as np

    from ortoo.common.arrays.batch_check import check
    from ortoo.common.arrays.few_rows import FEW_ROWS_MAX, gather_few
    from ortoo.common.arrays.gather import gather, write_table
    from ortoo.common.arrays.message_table import concat_tables, take_rows
    from ortoo.common.arrays.opened_batch import OpenedBatch
    from ortoo.common.filters.projection import columns_of, project
    from ortoo.common.records.batch import Message, encode, open_batch, split_messages
    from ortoo.common.records.columns import MESSAGE_COLUMNS

    assert [column.name for column in MESSAGE_COLUMNS][-len(NAMES) :] == list(NAMES)
    sent = [Message(b"body %d" % row, **fields_of(row)) for row in range(COUNT)]
    sealed = encode(sent, now_ms=1)
    assert list(open_batch(sealed)) == sent, "the writer or the reader loses a column"
    assert open_batch(sealed).messages(range(COUNT)) == sent, "the reader of single rows loses a column"
    assert [len(part) for part in split_messages([*sent, Message(b"without a rank")])] == [COUNT, 1]

    opened = check(sealed)
    every = np.arange(COUNT, dtype="<i4")
    assert write_table(take_rows(opened, every)) == sealed, "the arrays lose a column"
    joined = concat_tables([take_rows(opened, every[:50]), take_rows(opened, every[50:])])
    assert list(open_batch(write_table(joined))) == sent, "the concatenation of tables loses a column"
    many = every[::2]
    assert len(many) > FEW_ROWS_MAX
    assert list(open_batch(gather(opened, many))) == sent[::2], "gather loses a column"
    few = [3, 8, 150]
    assert list(open_batch(gather_few(OpenedBatch(sealed).fields, few))) == [sent[row] for row in few]
    projected = open_batch(project(sealed, columns_of(["body", *NAMES])))
    for column in MESSAGE_COLUMNS[-len(NAMES) :]:
        of_rows = [getattr(message, column.name) for message in sent]
        assert list(projected.values(column)) == of_rows, "a projection loses a column"
    if "spark" in sys.argv[1:]:
        assert list(open_batch(through_spark(sealed))) == sent, "Spark loses a column"


def through_spark(sealed: Any) -> Any:
    """The batch after it was decoded as rows of Spark's schema and encoded again."""
    import pyarrow as pa

    from ortoo.client import Queue, ReceivedBatch
    from ortoo.spark.arrow.batch import BatchDecoder
    from ortoo.spark.core.columns import COLUMNS, chosen_names
    from ortoo.spark.writing import write_options
    from ortoo.spark.writing.record_encoder import sealed_batch

    kinds = {
        "string": pa.string(),
        "binary": pa.binary(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "tinyint": pa.int8(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "array<string>": pa.list_(pa.field("element", pa.string())),
        "map<string,string>": pa.map_(pa.string(), pa.string()),
    }
    named = {name.removesuffix("_ms") for name in NAMES}
    assert named <= set(write_options.COLUMNS)
    assert named - {"made_rank"} <= set(chosen_names(()))
    schema = pa.schema([(column.name, kinds[column.ddl]) for column in COLUMNS])
    place = Queue("topic", "enode", 0)
    received = ReceivedBatch(place, sealed, topic_id=7, first_offset=0, next_offset=COUNT, stored_at_ms=9)
    rows = BatchDecoder(schema).decode(received)
    return sealed_batch(rows.drop_columns(["message_id"]), now_ms=1)


if __name__ == "__main__":
    main()
