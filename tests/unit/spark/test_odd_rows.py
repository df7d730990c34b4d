"""Rare rows and times: without a time, with large texts."""

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; run `make spark-setup`")

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from ortoo.client import Queue
from ortoo.common.errors import Invalid
from ortoo.common.records.view import RecordBatchView
from ortoo.spark.pipeline.jobs.replay import message_columns
from ortoo.spark.writing.lanes import _named
from ortoo.spark.writing.record_encoder import sealed_batch
from ortoo.spark.writing.rows import message_rows
from ortoo.spark.writing.write_options import WriteOptions, parse


def write_options(semantics: str) -> WriteOptions:
    """The options of a sink for rows with a time."""
    fields = [StructField("body", StringType()), StructField("born_at", TimestampType())]
    options = {"address": "localhost:1", "topic": "orders", "deliverySemantics": semantics}
    return parse(options, StructType([*fields, StructField("tag", StringType()), StructField("keys", StringType())]))


@pytest.mark.parametrize("semantics", ["idempotent", "exactly-once"])
def test_a_row_without_a_time_is_refused_where_it_must_be_the_same_again(semantics: str) -> None:
    """The time of writing would differ in a repeated task, which would be refused forever."""
    times = pa.array([1, None], pa.timestamp("us", "UTC"))
    rows = pa.RecordBatch.from_arrays([pa.array(["a", "b"]), times], names=["body", "born_at"])
    with pytest.raises(Invalid, match=r"coalesce\(born_at"):
        message_rows(rows, write_options(semantics))
    assert message_rows(rows, write_options("at-least-once")).num_rows == 2


def test_a_replay_has_a_time_for_rows_older_than_their_column() -> None:
    """Older rows of a lake have null in a column that was added later."""
    assert "coalesce(born_at, stored_at) as born_at" in message_columns(["body", "stored_at", "born_at"], "")
    assert "stored_at as born_at" in message_columns(["body", "stored_at"], "")


def test_large_texts_are_what_they_were() -> None:
    """A session with spark.sql.execution.arrow.useLargeVarTypes has texts with offsets of twice the width."""
    columns = [pa.array(texts, pa.large_string()) for texts in (["a", "b"], ["red", None], ["k", "l"])]
    rows = message_rows(
        pa.RecordBatch.from_arrays(columns, names=["body", "tag", "keys"]), write_options("at-least-once")
    )
    view = RecordBatchView(sealed_batch(rows, now_ms=1).records)
    assert [(message.tag, message.keys) for message in (view.message(at) for at in range(2))] == [
        ("red", ("k",)), (None, ("l",))
    ]  # fmt: skip


def test_a_queue_without_its_enode_is_refused() -> None:
    """It would silently go to any queue, although its row names one; a row with neither may go anywhere."""
    queues = (Queue("orders", "enode-0", 0), Queue("orders", "enode-0", 1))

    def rows(enode: str | None, queue_id: int | None) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict(
            {"enode": pa.array([enode, "enode-0"]), "queue_id": pa.array([queue_id, 1], pa.int32())}
        )

    with pytest.raises(Invalid, match="has a queue but no enode"):
        _named(rows(None, 0), queues, "orders")
    assert list(_named(rows(None, None), queues, "orders")) == [-1, 1]
