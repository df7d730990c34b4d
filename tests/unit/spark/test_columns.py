"""The columns of a topic as a schema of Spark."""

import struct

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; run `make spark-setup`")

from pyspark.sql.types import BinaryType, StringType, StructField, StructType, TimestampType

from ortoo.common.errors import Invalid
from ortoo.spark.arrow import buffers
from ortoo.spark.arrow.batch import BatchDecoder
from ortoo.spark.core import columns
from ortoo.spark.format import table_options
from ortoo.spark.reading.batch_read import arrow_schema
from tests.unit.client.made_batches import made_batch

REQUIRED = {"topic", "enode", "queue_id", "offset", "body", "stored_at"}


def test_the_place_and_the_body_are_never_null() -> None:
    """Their schema has them as NOT NULL, also that of a table."""
    assert columns.ddl(("tag", "body")) == "`tag` string, `body` binary NOT NULL"
    table = table_options.schema_with(columns.ddl(columns.chosen_names(())), {"subscribe": "orders"})
    assert {field.name for field in table if not field.nullable} == REQUIRED
    assert table_options.of_schema(table) == {"subscribe": "orders"}
    assert [field.nullable for field in arrow_schema(table)] == [field.nullable for field in table]


@pytest.mark.parametrize("nullable", [True, False])
def test_a_schema_of_the_application_may_allow_nulls(nullable: bool) -> None:
    """Only a column that may be null cannot be declared as NOT NULL."""
    body, tag = StructField("body", BinaryType(), nullable), StructField("tag", StringType(), nullable)
    assert arrow_schema(StructType([body])).field("body").nullable == nullable
    if not nullable:
        with pytest.raises(Invalid, match="the column tag may be null"):
            arrow_schema(StructType([body, tag]))


def test_an_impossible_storage_time_is_an_error() -> None:
    """It would be a null in a column without nulls."""
    decoder = BatchDecoder(arrow_schema(StructType([StructField("stored_at", TimestampType(), False)])))
    received = made_batch(100, 10, rows=[1, 4], gathered=True)
    for last_ms, is_possible in ((7, True), (-1, False), (1 << 62, False)):
        received.row_stored_at_ms = struct.pack("<2q", 5, last_ms)
        if is_possible:
            assert decoder.decode(received).column("stored_at").null_count == 0
        else:
            with pytest.raises(Invalid, match="impossible storage time"):
                decoder.decode(received)


@pytest.mark.parametrize("first", [0, 9, 9_998, 10_000, 19_999, 123_456_789, 99_998, (1 << 62) - 1])
@pytest.mark.parametrize("rows", [0, 1, 3, 4_096, 25_000])
def test_texts_of_consecutive_numbers(first: int, rows: int) -> None:
    """They are those of each number alone, also where their length changes."""
    made = buffers.numbered("ö-", first, rows)
    made.validate(full=True)
    assert made.to_pylist() == [f"ö-{number}" for number in range(first, first + rows)]
