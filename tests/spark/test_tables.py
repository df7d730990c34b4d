"""Topics as tables of a catalog, conditions on times, and options that a read would ignore."""

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; run `make spark-setup`")

from pyspark.errors import StreamingQueryException

from ortoo.client import Message
from ortoo.spark.core import read_options
from ortoo.spark.core.link import link_to
from ortoo.spark.reading.topic_state import current_state
from ortoo.v1.admin_pb2_grpc import AdminServiceStub
from tests.spark.sending import numbered, send, stored
from tests.spark.session import Broker


def test_a_topic_is_a_table(spark: Any, broker: Broker, topic: str) -> None:
    """`CREATE TABLE … USING ortoo` takes the options of a read, and the table shows what is stored now."""
    spark.sql(
        f"create table orders using ortoo options (address '{broker.address}', subscribe '{topic}', columns 'body')"
    )
    try:
        for count in (10, 20):
            send(broker, topic, numbered(10))
            assert spark.sql("select count(body) as n from orders").first().n == count
        assert spark.table("orders").columns == ["body"]
        with pytest.raises(Exception, match="did you mean subscribe"):
            spark.sql(f"create table wrong using ortoo options (address '{broker.address}', subscribed '{topic}')")
    finally:
        spark.sql("drop table if exists orders")
        spark.sql("drop table if exists wrong")


def test_dead_letters_are_a_table_with_their_content(spark: Any, broker: Broker, topic: str) -> None:
    """The dead-letter topic of a group is a topic, so that a table shows the messages and the reasons."""
    group = f"g-{topic}"
    send(broker, topic, [Message(b"bad", "a", properties={"color": "red"})])
    with broker.client.pop_consumer(group, topic) as consumer:
        for message in consumer:
            consumer.park(message, "cannot be parsed")
            break
    spark.sql(f"create table letters using ortoo options (address '{broker.address}', subscribe '%DLQ%{group}')")
    try:
        (row,) = spark.sql("select body, tag, properties from letters").collect()
        assert (bytes(row.body), row.tag, row.properties["color"]) == (b"bad", "a", "red")
        assert row.properties["DLQ_ERROR"] == "cannot be parsed", row.properties
    finally:
        spark.sql("drop table letters")


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_times_at_the_end_of_the_calendar_are_compared_in_any_zone(
    spark: Any, broker: Broker, topic: str, zone: str
) -> None:
    """A bound without end, such as 9999-12-31, is valid in conditions and for messages."""
    send(broker, topic, numbered(10))
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame = spark.read.format("ortoo").options(address=broker.address, subscribe=topic).load()
        assert frame.where("stored_at < '9999-12-31 23:59:59'").count() == 10
        assert frame.where("stored_at < timestamp'9999-12-31 23:59:59.999999'").count() == 10
        frame = spark.read.format("ortoo").options(address=broker.address, subscribe=topic)
        frame = frame.option("startingTimestamp", "0001-01-01T00:00:00").load()
        assert frame.count() == 10
        frame = spark.read.format("ortoo").options(address=broker.address, subscribe=topic)
        frame = frame.option("endingTimestamp", "9999-12-31T23:59:59-05:00").load()
        assert frame.count() == 10
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "maxBytesPerTrigger"])
def test_a_limit_of_streams_is_refused_by_a_batch_of_spark(spark: Any, broker: Broker, topic: str, name: str) -> None:
    """A batch read would ignore it."""
    send(broker, topic, numbered(10))
    frame = spark.read.format("ortoo").options(address=broker.address, subscribe=topic).option(name, "5")
    with pytest.raises(Exception, match=rf"{name}: .*streaming queries"):
        frame.load().count()


def test_a_topic_that_was_taken_out_of_the_options_is_named_so(
    spark: Any, broker: Broker, topic: str, folder: Any
) -> None:
    """It exists, so the loss does not say that it was deleted."""
    other = f"{topic}-b"
    broker.client.admin.create_topic(other)

    def run(subscribe: str) -> None:
        options = {"address": broker.address, "subscribe": subscribe, "startingOffsets": "earliest"}
        frame = spark.readStream.format("ortoo").options(**options).load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    send(broker, topic, numbered(5))
    run(f"{topic},{other}")
    with pytest.raises(StreamingQueryException, match="the options of this query no longer name its topic"):
        run(topic)


def test_many_topics_of_a_pattern_cost_one_call(broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll lists the topics, and describes all those of the pattern at once."""
    names = [f"{topic[:60]}-{number}" for number in range(30)]
    for name in names:
        broker.client.admin.create_topic(name, queue_count=1)
    send(broker, names[0], numbered(3))
    given = {"address": broker.address, "subscribePattern": f"{topic[:60]}-.*"}
    options = read_options.parse(given, streaming=True)
    link = link_to(options.cluster)
    calls: list[str] = []
    called = link.connection.call

    async def counted(stub: Any, method: str, *arguments: Any, **named: Any) -> Any:
        calls.append(method)
        return await called(stub, method, *arguments, **named)

    monkeypatch.setattr(link.connection, "call", counted)
    monkeypatch.setattr(link.topics, "_call", lambda *given: counted(AdminServiceStub, *given))
    state = current_state(link, options)
    assert len(state.topic_ids) == 30
    assert len(state.ranges) == 60
    assert sum(span.end for span in state.ranges.values()) == stored(broker, names[0]) == 3
    assert calls == ["ListTopics", "DescribeTopics"]


def test_a_table_keeps_no_credentials(spark: Any, broker: Broker, topic: str) -> None:
    """A catalog would show them to anyone who may describe the table."""
    with pytest.raises(Exception, match="a catalog stores the options of a table as plain text"):
        spark.sql(
            f"create table secrets using ortoo options (address '{broker.address}', subscribe '{topic}', "
            "accessKey 'a', secretKey 'b')"
        )
