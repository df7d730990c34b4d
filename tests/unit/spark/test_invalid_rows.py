"""Invalid rows are separated from the others, whatever their number and places."""

import json

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; run `make spark-setup`")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StringType, StructField, StructType

from ortoo.client import NotFound, Queue
from ortoo.client.produce.routes import Route
from ortoo.common.records.message import BODY_BYTES_MAX
from ortoo.spark.writing.invalid_rows import SendableRows
from ortoo.spark.writing.write_options import parse

TEXT = StructType([StructField(name, StringType()) for name in ("body", "tag", "topic")])
INVALID_TOPIC = "broken"


class Rows:
    """The rows of a task, and the topics that were looked up."""

    def __init__(self) -> None:
        """Only the topic `t` and the topic for invalid rows exist."""
        self.looked_up: list[str] = []
        options = parse({"address": "localhost:1", "invalidRowsTopic": INVALID_TOPIC}, TEXT)
        self.rows = SendableRows(options, self._route)

    def _route(self, topic: str) -> Route:
        self.looked_up.append(topic)
        if topic not in ("t", INVALID_TOPIC):
            raise NotFound(f"there is no topic {topic!r}")
        return Route(1, (Queue(topic, "a", 0),))

    def sent(self, *rows: tuple[str | None, str | None, str | None]) -> tuple[list[str], list[dict[str, str]]]:
        """The bodies of the valid rows, and the properties and rows of the invalid ones."""
        columns = [pa.array(list(column), pa.string()) for column in zip(*rows, strict=True)]
        valid: list[str] = []
        invalid: list[dict[str, str]] = []
        for messages in self.rows.messages(pa.RecordBatch.from_arrays(columns, names=TEXT.names), 1):
            for message in messages.to_pylist():
                if message["topic"] == INVALID_TOPIC:
                    invalid.append(dict(message["properties"]) | {"row": message["body"].decode()})
                else:
                    valid.append(message["body"].decode())
        return valid, invalid


BODY = st.sampled_from([None, "", "x", "y"])
ROWS = st.lists(st.tuples(BODY, st.sampled_from([None, "red", "a|b"]), st.sampled_from(["t", "t", None, "none"])))


@given(ROWS.filter(bool))
def test_each_row_is_sent_or_kept_with_its_reason(rows: list[tuple[str | None, str | None, str | None]]) -> None:
    """The order of the rows is kept in both topics, and an unknown topic is looked up once."""
    task = Rows()
    valid, invalid = task.sent(*rows)
    expected = [row for row in rows if row[0] and row[1] != "a|b" and row[2] == "t"]
    assert valid == [row[0] for row in expected]
    kept = [tuple(json.loads(one["row"]).values()) for one in invalid]
    assert kept == [row for row in rows if row not in expected]
    assert all(one["INVALID_REASON"] for one in invalid)
    assert task.looked_up.count("none") <= 1


def test_the_copy_of_a_long_row_is_cut() -> None:
    """A body beyond the maximum does not fail the task: its copy has the largest possible part, and the length."""
    valid, (copy,) = Rows().sent(("x" * (BODY_BYTES_MAX + 1), None, "t"), ("y", None, "t"))
    assert valid == ["y"]
    assert len(copy["row"]) == BODY_BYTES_MAX
    assert int(copy["INVALID_ROW_BYTES"]) > BODY_BYTES_MAX
