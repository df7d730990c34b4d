"""The streaming source without Spark: offsets, limits, restarts, losses, new queues."""

import json
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; run `make spark-setup`")

from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from ortoo.client import DataLoss, Message, Queue
from ortoo.spark.core import read_options
from ortoo.spark.core.cluster_options import ClusterOptions
from ortoo.spark.core.link import link_to
from ortoo.spark.core.offsets import SourceOffsets
from ortoo.spark.reading.stream_read import StreamReader
from tests.spark.sending import numbered, send
from tests.spark.session import Broker

SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("enode", StringType()),
        StructField("queue_id", IntegerType()),
        StructField("offset", LongType()),
        StructField("body", BinaryType()),
    ]
)
EVERYTHING = ReadMaxRows(1 << 62)
"""Spark's argument when no option limits a batch."""


def reader_of(broker: Broker, topic: str, **options: str) -> StreamReader:
    """A reader with the options of a query, which never waits for more."""
    given = {
        "address": broker.address,
        "subscribe": topic,
        "latestOffsetWaitMs": "0",
        "metadataMaxAgeMs": "0",
    } | options
    return StreamReader(read_options.parse(given, streaming=True), SCHEMA)


def rows(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
    """The bodies of a batch."""
    return [
        body
        for task in reader.partitions(start, end)
        for batch in reader.read(task)
        for body in batch.column("body").to_pylist()
    ]


def total(offsets: dict[str, Any]) -> int:
    """The sum of all next offsets."""
    return sum(SourceOffsets.of_json(offsets).queues.values())


def begun(reader: StreamReader) -> dict[str, Any]:
    """Spark's argument for the first batch of a new query, which Spark requests twice."""
    start = reader.initialOffset()
    assert reader.initialOffset() == start
    return start


@pytest.mark.parametrize("new", [0, 20])
def test_the_first_batch_of_a_query_fixes_the_start(broker: Broker, topic: str, new: int) -> None:
    """Check 6: a query that starts at the latest offset and fails in its first batch repeats it and misses nothing."""
    send(broker, topic, numbered(40))
    reader = reader_of(broker, topic)
    start = begun(reader)
    empty = reader.latestOffset(start, EVERYTHING)
    assert total(empty) == 40
    send(broker, topic, numbered(new, 40))
    end = reader.latestOffset(start, EVERYTHING)
    assert (end == empty) == (new == 0)
    send(broker, topic, numbered(60 - new, 40 + new))
    again = reader_of(broker, topic)
    assert sorted(map(int, rows(again, again.initialOffset(), end))) == list(range(40, 40 + new))
    following = again.latestOffset(end, EVERYTHING)
    assert "s" not in following
    assert sorted(map(int, rows(again, end, following))) == list(range(40 + new, 100))
    assert again.latestOffset(following, EVERYTHING) == following


def test_a_query_that_died_in_its_first_batch_goes_on_in_the_same_run(broker: Broker, topic: str) -> None:
    """Check 6: the first batch is repeated, and then the other messages are read, also with AvailableNow."""
    send(broker, topic, numbered(30))
    died = reader_of(broker, topic, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    end = died.latestOffset(begun(died), ReadMaxRows(10))
    again = reader_of(broker, topic, startingOffsets="earliest")
    again.prepareForTriggerAvailableNow()
    seen = rows(again, again.initialOffset(), end)
    assert len(seen) == 10
    seen += rows(again, end, again.latestOffset(end, EVERYTHING))
    assert sorted(map(int, seen)) == list(range(30))


def test_limits_are_kept_exactly_and_everything_is_read_once(broker: Broker, topic: str) -> None:
    """No batch is larger than maxOffsetsPerTrigger, and together they are everything."""
    send(broker, topic, numbered(5_000))
    reader = reader_of(broker, topic, startingOffsets="earliest", maxOffsetsPerTrigger="700")
    assert reader.getDefaultReadLimit() == ReadMaxRows(700)
    at, seen = begun(reader), []
    while (end := reader.latestOffset(at, ReadMaxRows(700))) != at:
        assert total(end) - total(at) == min(700, 5_000 - total(at))
        seen += rows(reader, at, end)
        at = end
    assert sorted(map(int, seen)) == list(range(5_000))


def test_bytes_are_a_limit_too(broker: Broker, topic: str) -> None:
    """`maxBytesPerTrigger` holds when small messages come before large ones."""
    small, large, limit_bytes = [Message(b"x")] * 50, [Message(b"x" * 50_000) for _ in range(80)], 500_000
    for message in small + large:
        send(broker, topic, [message])
    reader = reader_of(broker, topic, startingOffsets="earliest", maxBytesPerTrigger=str(limit_bytes))
    at, sizes = begun(reader), []
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        sizes.append(sum(len(body) for body in rows(reader, at, end)))
        at = end
    assert total(at) == len(small + large)
    assert max(sizes) <= limit_bytes
    assert len(sizes) < 16


def test_available_now_ends_where_the_topic_ended_at_its_start(broker: Broker, topic: str) -> None:
    """Check 6: later messages are left for the next run."""
    send(broker, topic, numbered(100))
    reader = reader_of(broker, topic, startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    send(broker, topic, numbered(100, 100))
    start = begun(reader)
    end = reader.latestOffset(start, EVERYTHING)
    assert total(end) == 100
    assert reader.latestOffset(end, EVERYTHING) == end


def test_offsets_are_written_the_same_way_every_time(broker: Broker, topic: str) -> None:
    """An idle query writes the same text, before and after a restart."""
    send(broker, topic, numbered(100))
    first, second = reader_of(broker, topic, startingOffsets="earliest"), reader_of(broker, topic)
    end = first.latestOffset(begun(first), EVERYTHING)
    stored = json.loads(json.dumps(end))
    for reader in (first, second):
        assert json.dumps(reader.latestOffset(stored, EVERYTHING)) == json.dumps(end)


def test_the_same_batch_has_the_same_tasks(broker: Broker, topic: str) -> None:
    """A repeated batch reads the same slices in the same tasks."""
    send(broker, topic, numbered(3_000))
    first = reader_of(broker, topic, startingOffsets="earliest", minPartitions="5")
    start = begun(first)
    end = first.latestOffset(start, EVERYTHING)
    second = reader_of(broker, topic, minPartitions="5")
    assert [t.slices for t in first.partitions(start, end)] == [t.slices for t in second.partitions(start, end)]
    assert len(first.partitions(start, end)) >= 5


def test_new_topics_of_a_pattern_are_read_from_their_first_message(broker: Broker, topic: str) -> None:
    """Check 11: a topic that appears while a query runs is read completely. A deleted one is a loss."""
    reader = reader_of(broker, "", subscribePattern=f"{topic}.*", subscribe="")
    start = reader.latestOffset(begun(reader), EVERYTHING)
    broker.client.admin.create_topic(f"{topic}-new")
    send(broker, f"{topic}-new", numbered(25))
    entered = reader.latestOffset(start, EVERYTHING)
    assert rows(reader, start, entered) == []
    end = reader.latestOffset(entered, EVERYTHING)
    assert sorted(map(int, rows(reader, entered, end))) == list(range(25))
    broker.client.admin.delete_topic(f"{topic}-new")
    with pytest.raises(DataLoss, match="the topic was deleted"):
        reader.latestOffset(end, EVERYTHING)
    lenient = reader_of(broker, "", subscribePattern=f"{topic}.*", subscribe="", failOnDataLoss="false")
    assert lenient.latestOffset(end, EVERYTHING) == end


def test_new_queues_on_old_and_new_enodes_are_read_from_their_first_message(broker: Broker, topic: str) -> None:
    """Check 11: a topic that grows while the query runs, also onto another enode, is read completely."""
    name = f"{topic[:80]}-grows"
    link = link_to(ClusterOptions((broker.address,)))
    link.run(link.admin.create_topic(name, queue_count=1, enodes=["enode-0"]))
    send(broker, name, numbered(30))
    reader = reader_of(broker, name, startingOffsets="earliest")
    end = reader.latestOffset(begun(reader), EVERYTHING)
    assert len(SourceOffsets.of_json(end).queues) == 1
    broker.client.admin.update_topic(name, read_queue_count=2, write_queue_count=2, add_enodes=["enode-1"])
    with broker.client.producer(name) as producer:  # a new one, which knows the new queues
        producer.send_many(Message(b"new", message_group=f"group {number}") for number in range(100))
    entered = reader.latestOffset(end, EVERYTHING)
    assert sum(offset == 0 for offset in SourceOffsets.of_json(entered).queues.values()) == 3
    grown = reader.latestOffset(entered, EVERYTHING)
    ends = SourceOffsets.of_json(grown).queues
    assert len(ends) == 4
    assert min(ends.values()) > 0
    assert rows(reader, entered, grown) == [b"new"] * 100


def test_a_recreated_topic_is_a_loss_and_not_a_mixture(broker: Broker, topic: str) -> None:
    """Check 10: policy `fail` raises an error with numbers. Otherwise the new topic is read from its start."""
    send(broker, topic, numbered(50))
    reader = reader_of(broker, topic, startingOffsets="earliest")
    read_so_far = reader.latestOffset(begun(reader), EVERYTHING)
    broker.client.admin.delete_topic(topic)
    with pytest.raises(DataLoss, match="the topic was deleted"):
        reader.latestOffset(read_so_far, EVERYTHING)
    broker.client.admin.create_topic(topic, queue_count=4)
    send(broker, topic, numbered(80, 1_000))
    with pytest.raises(DataLoss, match="deleted and created again"):
        reader.latestOffset(read_so_far, EVERYTHING)
    lenient = reader_of(broker, topic, failOnDataLoss="false")
    moved = lenient.latestOffset(read_so_far, EVERYTHING)
    assert rows(lenient, read_so_far, moved) == []
    end = lenient.latestOffset(moved, EVERYTHING)
    assert sorted(map(int, rows(lenient, moved, end))) == list(range(1_000, 1_080))
    skipping = reader_of(broker, topic, onDataLoss="latest")
    assert total(skipping.latestOffset(read_so_far, EVERYTHING)) == 80


def test_offsets_beyond_what_is_stored_are_a_loss(broker: Broker, topic: str) -> None:
    """Check 10: the error has the queue, the requested and the stored range. Otherwise the stored part is read."""
    send(broker, topic, numbered(50))
    reader = reader_of(broker, topic, startingOffsets="earliest")
    start = begun(reader)
    end = reader.latestOffset(start, EVERYTHING)
    offsets = SourceOffsets.of_json(end)
    queue = max(offsets.queues, key=lambda q: offsets.queues[q])
    beyond = replace(offsets, queues=dict(offsets.queues) | {queue: offsets.queues[queue] + 9}).to_json()
    with pytest.raises(DataLoss, match="9 messages"):
        reader.partitions(start, beyond)
    lenient = reader_of(broker, topic, failOnDataLoss="false")
    assert len(rows(lenient, start, beyond)) == 50


def test_small_amounts_wait_until_their_time_is_over(broker: Broker, topic: str) -> None:
    """The option minOffsetsPerTrigger holds a batch back until maxTriggerDelay, but never with AvailableNow."""
    send(broker, topic, numbered(10))
    waiting = reader_of(broker, topic, startingOffsets="earliest", minOffsetsPerTrigger="50", maxTriggerDelay="1h")
    start = begun(waiting)
    assert total(waiting.latestOffset(start, EVERYTHING)) == 0
    prompt = reader_of(broker, topic, startingOffsets="earliest", minOffsetsPerTrigger="50", maxTriggerDelay="0ms")
    assert total(prompt.latestOffset(begun(prompt), EVERYTHING)) == 10
    once = reader_of(broker, topic, startingOffsets="earliest", minOffsetsPerTrigger="50", maxTriggerDelay="1h")
    once.prepareForTriggerAvailableNow()
    assert total(once.latestOffset(begun(once), EVERYTHING)) == 10


def test_an_enode_that_is_away_stops_its_queues_and_no_others(broker: Broker, topic: str) -> None:
    """Its offsets stay in the checkpoint; messages sent before are read when it is up again."""
    send(broker, topic, numbered(400))
    reader = reader_of(broker, topic, startingOffsets="earliest")
    start = begun(reader)
    end = reader.latestOffset(start, EVERYTHING)
    away = broker.cluster.enodes[1]
    broker.run(away.stop())
    try:
        still = reader.latestOffset(end, EVERYTHING)
        assert still == end
        half = SourceOffsets.of_json(reader.latestOffset(start, EVERYTHING)).queues
        assert {q: n for q, n in half.items() if q.enode == "enode-1"} == {
            q: 0 for q in half if isinstance(q, Queue) and q.enode == "enode-1"
        }
    finally:
        broker.run(away.start())
        broker.run(broker.cluster.wait_until_alive())
    assert len(rows(reader, start, end)) == 400
