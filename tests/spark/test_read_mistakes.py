"""Mistakes in a read are reported before any task runs, with the option and the expected value."""

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; run `make spark-setup`")

from pyspark.sql.types import LongType, StructField, StructType

from ortoo.client import OrtooError
from ortoo.spark.core import read_options
from ortoo.spark.reading.batch_read import BatchReader
from tests.spark.session import Broker

SCHEMA = StructType([StructField("offset", LongType())])


@pytest.fixture(scope="module")
def topic(broker: Broker) -> str:
    """One empty topic for all tests."""
    broker.client.admin.create_topic("mistakes", queue_count=4)
    return "mistakes"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "no-such-topic"}, "no-such-topic"),
        (
            {"startingOffsets": '{"other": {"enode-0": {"0": 1}}}'},
            "the topic 'other' is not among the topics of this read",
        ),
        ({"startingOffsets": '{"mistakes": {"enode-0": {"99": 1}}}'}, "has no queue 99"),
        ({"startingOffsets": '{"mistakes": {"enode-0": {"0": 99}}}'}, "reading cannot start at 99"),
        ({"startingOffsets": '{"mistakes": {"enode-0": {"0": -3}}}'}, "is not an offset"),
        ({"startingOffsets": '{"mistakes": [1]}'}, "expected an object such as"),
        ({"endingOffsets": '{"mistakes": {"enode-0": {"0": 99}}}'}, "endingOffsets 99 is beyond the end 0"),
        ({"endingOffsets": '{"mistakes": {"enode-0": {"0": -2}}}'}, "cannot end at the earliest"),
        ({"startingOffsets": "{not json"}, "invalid JSON"),
        ({"startingOffsets": "sometimes"}, "expected earliest, latest"),
        ({"startingOffsets": "group:"}, "missing group name"),
        ({"endingOffsets": "earliest"}, "cannot end at the earliest"),
        ({"startingTimestamp": "yesterday"}, "expected milliseconds since 1970"),
        ({"assign": '{"mistakes": [77]}', "subscribe": ""}, "has no queue 77"),
        ({"assign": '{"mistakes": 7}', "subscribe": ""}, "expected a list"),
        ({"subscribe": ""}, "expected one of"),
        ({"subscribePattern": "t.*"}, "subscribe and subscribePattern are given"),
        ({"subscribePattern": "(", "subscribe": ""}, "not a regular expression"),
        ({"columns": "topic,bodi"}, "did you mean body"),
        ({"columns": "topic,topic"}, "is given twice"),
        ({"maxOffsetPerTrigger": "1"}, "did you mean maxOffsetsPerTrigger"),
        ({"minPartitions": "many"}, "expected a whole number"),
        ({"fetchTimeoutMs": "soon"}, "expected milliseconds"),
        ({"bodyFormat": "json"}, "Spark decodes bodies; use .*ortoo.spark.format.bodies"),
        ({"valueSchema": "a int"}, "ortoo.spark.format.bodies.json"),
        ({"failOnDataLoss": "true", "onDataLoss": "earliest"}, "this option contradicts"),
        ({"startingOffsets": "latest", "startingTimestamp": "1"}, "startingTimestamp and startingOffsets are given"),
        ({"startingOffsetsByTimestampStrategy": "latest"}, "has an effect only"),
        ({"startingOffsetsDefault": "latest"}, "has an effect only"),
        ({"filterPushdown": "true"}, "filterPushdown.*was removed, because Spark .* the option tags or sql"),
        ({"filterpushdown": "false"}, "filterPushdown.*was removed"),
        ({"tags": "a", "sql": "b = 1"}, "tags and sql are given"),
        ({"groups": "g"}, "only with views"),
        ({"accessKey": "a"}, "both accessKey and secretKey"),
        ({"tls": "false", "tlsCaFile": "x"}, "only with tls=true"),
        ({"tlsCaFile": "/no/such/file"}, "tlsCaFile: /no/such/file cannot be read"),
        ({"subscribe": "no topic"}, "only letters, digits"),
        ({"failOnDataLoss": "maybe"}, "expected true or false"),
        ({"address": "localhost"}, "is not host:port"),
        ({"address": ""}, "missing address"),
    ],
)
def test_a_wrong_option_is_named_with_what_was_expected(
    broker: Broker, topic: str, options: dict[str, str], said: str
) -> None:
    """Check 3: each mistake, and each option without effect, is an error of the plan."""
    given = {"address": broker.address, "subscribe": topic} | options
    with pytest.raises(OrtooError, match=said):
        BatchReader(read_options.parse(given, streaming=False), SCHEMA).partitions()


@pytest.mark.parametrize("name", read_options.STREAM_ONLY)
def test_an_option_of_streams_is_refused_by_a_batch(name: str) -> None:
    """A batch read would ignore it silently. The schema is requested before the kind of read is known."""
    given = {"address": "127.0.0.1:1", "subscribe": "t", name: "1"}
    with pytest.raises(OrtooError, match=f"{name}.*only with streaming queries"):
        read_options.parse(given, streaming=False)
    other = {"minOffsetsPerTrigger": "1"} if name == "maxTriggerDelay" else {}
    read_options.parse(given | other, streaming=False, for_schema=True)
    read_options.parse(given | other, streaming=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"maxTriggerDelay": "1h"}, "has an effect only with minOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "3"}, "above maxOffsetsPerTrigger"),
        ({"maxBytesPerTrigger": "1 gallon"}, "such as 64k"),
        ({"filterPushdown": "true"}, "filterPushdown.*was removed"),
    ],
)
def test_a_wrong_option_of_a_stream_is_named(options: dict[str, str], said: str) -> None:
    """The same for options of streams."""
    with pytest.raises(OrtooError, match=said):
        read_options.parse({"address": "127.0.0.1:1", "subscribe": "t"} | options, streaming=True)


def test_a_stream_has_no_end(broker: Broker, topic: str) -> None:
    """Ending offsets are for batches."""
    given = {"address": broker.address, "subscribe": topic, "endingOffsets": '{"mistakes": {"enode-0": {"0": 1}}}'}
    with pytest.raises(OrtooError, match="a stream has no end"):
        read_options.parse(given, streaming=True)


def test_an_empty_read_has_no_tasks_and_a_task_without_slices_no_rows(broker: Broker, topic: str) -> None:
    """Check 2: Spark gives an empty plan one task whose value is None, which reads nothing."""
    reader = BatchReader(read_options.parse({"address": broker.address, "subscribe": topic}, streaming=False), SCHEMA)
    assert reader.partitions() == []
    assert list(reader.read(None)) == []
