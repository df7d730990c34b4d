"""Streaming queries in Spark: its requests to the source, and its progress reports."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; run `make spark-setup`")

from pyspark.errors import PySparkException, StreamingQueryException

from ortoo.client import Message
from tests.spark.sending import numbered, send
from tests.spark.session import Broker


class Queries:
    """Runs one query after another from one checkpoint."""

    def __init__(self, spark: Any, broker: Broker, folder: Path) -> None:
        """`folder` has the checkpoint."""
        self._spark, self._broker, self._folder = spark, broker, folder

    def start(self, options: dict[str, str], *, available_now: bool = True) -> Any:
        """A query that counts."""
        given = {"address": self._broker.address, "columns": "offset", "startingOffsets": "earliest"} | options
        frame = self._spark.readStream.format("ortoo").options(**given).load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(self._folder / "checkpoint"))
        return (writer.trigger(availableNow=True) if available_now else writer).start()

    def batches(self, **options: str) -> list[int]:
        """Process everything that is stored; returns the row count of each batch that had any."""
        query = self.start(options)
        query.awaitTermination()
        return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


@pytest.fixture
def queries(spark: Any, broker: Broker, folder: Path) -> Queries:
    """The queries of a test."""
    return Queries(spark, broker, folder)


def test_bytes_alone_limit_batches_and_the_group_reaches_the_end(queries: Queries, broker: Broker, topic: str) -> None:
    """`maxBytesPerTrigger` needs no other limit, and the group is at the end when a query has ended."""
    group = f"shown-{topic}"[:100]
    send(broker, topic, [Message(b"x" * 1_000) for _ in range(1_000)])
    rows = queries.batches(subscribe=topic, maxBytesPerTrigger="256k", consumerGroup=group)
    assert sum(rows) == 1_000
    assert len(rows) >= 3
    assert broker.client.admin.describe_lag(group, topic).lag_messages == 0


def test_a_batch_of_one_moves_its_group_and_shows_how_far_it_is(queries: Queries, broker: Broker, topic: str) -> None:
    """A running query moves its group behind each batch, and its progress shows the lag."""
    group = f"shown-{topic}"[:100]
    query = queries.start({"subscribe": topic, "consumerGroup": group}, available_now=False)
    try:
        query.processAllAvailable()
        send(broker, topic, numbered(1))
        query.processAllAvailable()
        while broker.client.admin.describe_lag(group, topic).lag_messages:
            assert not query.awaitTermination(0.1)
        shown = [json.loads(progress.sources[0].latestOffset)["metrics"] for progress in query.recentProgress]
        assert shown[-1]["maxOffsetsBehindLatest"] == 0
        assert set(shown[-1]) >= {"minOffsetsBehindLatest", "avgOffsetsBehindLatest"}
        assert [shown[-1][name] for name in ("losses", "lostMessages", "retries")] == [0, 0, 0]
    finally:
        query.stop()


def test_a_start_beyond_the_end_is_refused(queries: Queries, broker: Broker, topic: str) -> None:
    """A stream does not wait silently until the topic has grown that far."""
    send(broker, topic, numbered(10))
    start = json.dumps({topic: {"enode-0": {"0": 1_000}}})
    with pytest.raises(StreamingQueryException, match="cannot start at 1000"):
        queries.batches(subscribe=topic, startingOffsets=start)


def test_a_deleted_topic_of_a_pattern_is_a_loss(queries: Queries, broker: Broker, topic: str) -> None:
    """`failOnDataLoss` applies to patterns; a new topic of the same name is read from its start."""
    other = f"{topic[:80]}-2"
    broker.client.admin.create_topic(other, queue_count=1)
    for name in (topic, other):
        send(broker, name, numbered(100))
    pattern = {"subscribePattern": f"{topic[:80]}.*"}
    assert sum(queries.batches(**pattern)) == 200
    broker.client.admin.delete_topic(other)
    with pytest.raises(StreamingQueryException, match="the topic was deleted"):
        queries.batches(**pattern)
    broker.client.admin.create_topic(other, queue_count=1)
    send(broker, other, numbered(30))
    with pytest.raises(StreamingQueryException, match="deleted and created again"):
        queries.batches(**pattern)
    assert sum(queries.batches(**pattern, onDataLoss="earliest")) == 30
    assert queries.batches(**pattern) == []


def test_a_topic_of_any_name_can_have_offsets(spark: Any, broker: Broker) -> None:
    """A topic may be called `q` or `v`, like a field of the checkpoint."""
    for name in ("q", "v"):
        broker.client.admin.create_topic(name, queue_count=1)
        send(broker, name, numbered(50))
        queue, (_, end) = max(broker.queues(name).items(), key=lambda item: item[1])
        start = json.dumps({name: {queue.enode: {str(queue.queue_id): end - 1}}})
        frame = spark.read.format("ortoo").options(
            address=broker.address, subscribe=name, startingOffsets=start, startingOffsetsDefault="latest"
        )
        assert frame.load().count() == 1


def test_a_stream_reads_what_the_broker_is_asked_for(queries: Queries, broker: Broker, topic: str) -> None:
    """Tags and conditions filter streams too; offsets advance over messages that do not match."""
    send(broker, topic, [Message(b"x", "red" if n % 10 == 0 else "blue") for n in range(500)])
    assert sum(queries.batches(subscribe=topic, tags="red")) == 50
    send(broker, topic, [Message(b"x", "blue") for _ in range(10)])
    assert queries.batches(subscribe=topic, tags="red") == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"onDataLoss": "latest", "failOnDataLoss": "true"}, "onDataLoss.*contradicts failOnDataLoss=true"),
        ({"maxTriggerDelay": "15min"}, "maxTriggerDelay.*minOffsetsPerTrigger"),
        ({"maxBytesPerTrigger": "much"}, "maxBytesPerTrigger.*64k, 512m or 1g"),
        ({"tags": "red", "sql": "a = 1"}, "tags and sql are given"),
    ],
)
def test_options_that_contradict_one_another_start_no_query(
    queries: Queries, broker: Broker, options: dict[str, str], said: str
) -> None:
    """Spark shows the error with the option, before a checkpoint exists."""
    with pytest.raises(PySparkException, match=f"(?s){said}"):
        queries.start({"subscribe": "whatever"} | options)
