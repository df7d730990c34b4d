"""Queries on one frame, one after another, give what the same queries on a plain DataFrame give."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; run `make spark-setup`")

from pyspark.sql.datasource import DataSource, DataSourceReader

from ortoo.client import Message
from tests.spark.random_queries import COLUMNS, RandomQueries
from tests.spark.sending import send
from tests.spark.session import Broker

MESSAGES = 160
QUERIES, QUERIES_LONG = 20, 100
TAGS = (None, "a", "b", "c")
OPTIONS: Mapping[str, Mapping[str, str]] = {
    "all": {},
    "tags": {"tags": "a || b"},
    "sql": {"sql": "n >= 40 AND TAGS <> 'c'"},
}


def wanted(options: str, tag: str | None, number: int) -> bool:
    """The filter of the options, in Python."""
    return options == "all" or (tag in ("a", "b") and (options == "tags" or number >= 40))


def sent_rows(broker: Broker, topic: str, options: str) -> Sequence[tuple[Any, ...]]:
    """The matching messages, sent and acknowledged here, as rows of `COLUMNS`."""
    messages = [
        Message(b"%d" % number, TAGS[number * 7 % 11 % 4], properties={"n": str(number)}) for number in range(MESSAGES)
    ]
    return [
        (
            receipt.queue.enode, receipt.queue.queue_id, receipt.offset, message.tag, message.body,
            datetime.fromtimestamp(receipt.stored_at_ms / 1000, UTC),
        )
        for number, (message, receipt) in enumerate(zip(messages, send(broker, topic, messages), strict=True))
        if wanted(options, message.tag, number)
    ]  # fmt: skip


@pytest.fixture
def session(spark: Any) -> Iterator[Any]:
    """The session of all tests, without generated code, because each query runs once.

    A separate session would stay the active one, in which Spark looks up the sources of all later tests.
    """
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    yield spark
    spark.conf.unset("spark.sql.codegen.wholeStage")


@pytest.mark.parametrize(
    ("options", "seed", "queries"),
    [(name, seed, QUERIES) for seed, name in enumerate(OPTIONS)]
    + [pytest.param(name, 10 + seed, QUERIES_LONG, marks=pytest.mark.long) for seed in range(3) for name in OPTIONS],
)
def test_many_queries_on_one_frame_give_what_a_plain_frame_gives(
    session: Any, broker: Broker, topic: str, options: str, seed: int, queries: int
) -> None:
    """No query changes the rows of another one, with Spark's push-down on and off, with and without a filter."""
    sys.stdout.write(f"seed {seed}, options {OPTIONS[options]}\n")
    rows = sent_rows(broker, topic, options)
    given = {"address": broker.address, "subscribe": topic, "columns": COLUMNS, **OPTIONS[options]}
    frame = session.read.format("ortoo").options(**given).load()
    plain = session.createDataFrame(rows, frame.schema).coalesce(1).cache()
    assert RandomQueries(frame, plain, seed).first_difference(queries) == "", f"seed {seed}"
    plain.unpersist()


def test_a_source_that_pushes_filters_is_found_out(session: Any) -> None:
    """The sequences detect that Spark applies a pushed filter to other queries.

    A Spark without this defect fails here. The page about push-down must be updated then.
    """
    rows = [
        (f"enode-{n % 2}", n % 4, n // 8, TAGS[n % 4], b"%d" % n, datetime(2026, 1, 1, tzinfo=UTC)) for n in range(80)
    ]

    class PushingReader(DataSourceReader):
        def __init__(self) -> None:
            self.tags: set[str | None] = set(TAGS)

        def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
            for each in filters:
                if type(each).__name__ == "EqualTo" and each.attribute == ("tag",):
                    self.tags = self.tags & {each.value}
                else:
                    yield each

        def read(self, partition: Any) -> Iterator[tuple[Any, ...]]:
            del partition
            return (row for row in rows if row[3] in self.tags)

    class PushingSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "pushing"

        def schema(self) -> str:
            return "enode string, queue_id int, offset bigint, tag string, body binary, stored_at timestamp"

        def reader(self, schema: Any) -> DataSourceReader:
            del schema
            return PushingReader()

    session.dataSource.register(PushingSource)
    found = []
    for seed in range(3):
        frame = session.read.format("pushing").load()
        plain = session.createDataFrame(rows, frame.schema).coalesce(1).cache()
        found.append(RandomQueries(frame, plain, seed, push_down=["true"]).first_difference(QUERIES_LONG))
        plain.unpersist()
    assert all(found), found
