"""Topics as tables: complete rows, exact bounds, and errors before any task runs."""

import datetime
import json
import sys
from collections.abc import Callable
from statistics import median
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; run `make spark-setup`")
pytest.importorskip("msgpack", reason="msgpack is not installed; run `make spark-setup`")


import msgpack
from pyspark.sql import functions as sf
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType, TimestampType

from ortoo.client import Message, OrtooError, Receipt
from ortoo.common.process.clock import SystemClock
from ortoo.spark.arrow.batch import BatchDecoder
from ortoo.spark.core.cluster_options import ClusterOptions
from ortoo.spark.core.group_offsets import commit_group, ensure_group
from ortoo.spark.core.link import link_to
from ortoo.spark.format import bodies
from ortoo.spark.reading.batch_read import arrow_schema
from tests.spark.sending import numbered, send, varied
from tests.spark.session import Broker

Read = Callable[..., Any]


@pytest.fixture
def read(spark: Any, broker: Broker, topic: str) -> Read:
    """Reads the test's topic with options."""

    def load(**options: object) -> Any:
        return spark.read.format("ortoo").options(**({"address": broker.address, "subscribe": topic} | options)).load()

    return load


def offsets_json(broker: Broker, topic: str, offset: int) -> str:
    """Every queue of a topic at one offset, as an option."""
    tree: dict[str, dict[str, dict[str, int]]] = {topic: {}}
    for queue in broker.queues(topic):
        tree[topic].setdefault(queue.enode, {})[str(queue.queue_id)] = offset
    return json.dumps(tree)


def places(receipts: list[Receipt]) -> dict[tuple[str, int, int], int]:
    """The key of each message by its position."""
    return {(r.queue.enode, r.queue.queue_id, r.offset): number for number, r in enumerate(receipts)}


def test_every_column_of_every_message_is_as_it_was_sent(read: Read, broker: Broker, topic: str) -> None:
    """Check 2: ids, tags, keys, binary bodies, times to the millisecond, groups, properties."""
    sent = varied(3_000)
    found = places(send(broker, topic, sent))
    rows = read().collect()
    assert len(rows) == len(sent)
    for row in rows:
        number = found.pop((row.enode, row.queue_id, row.offset))
        message = sent[number]
        assert bytes(row.body) == message.body
        assert (row.tag, tuple(row["keys"]), row.message_group) == (message.tag, message.keys, message.message_group)
        assert row.properties == dict(message.properties)
        assert (row.born_host, row.trace_context) == (message.born_host, message.trace_context)
        assert message.born_at_ms is not None
        assert round(row.born_at.replace(tzinfo=datetime.UTC).timestamp() * 1000) == message.born_at_ms
        assert row.message_id == message.message_id or (message.message_id is None and row.enode in row.message_id)
        assert row.topic == topic
    assert found == {}


def test_empty_topics_and_large_bodies_are_read(read: Read, broker: Broker, topic: str) -> None:
    """Check 2: no rows from an empty topic. A body of 4 MiB arrives whole."""
    assert read().count() == 0
    body = bytes(range(256)) * (4 << 12)
    send(broker, topic, [Message(body), Message(b"small")])
    assert {bytes(row.body) for row in read(columns="body").collect()} == {body, b"small"}


def test_reading_needs_no_registration_after_installation(spark: Any, broker: Broker, topic: str) -> None:
    """Check 1: format("ortoo") is found by its module's name, and `register` does the same."""
    import ortoo.spark
    from pyspark_ortoo import DefaultSource

    assert DefaultSource.name() == "ortoo"
    ortoo.spark.register(spark)
    assert spark.read.format("ortoo").options(address=broker.address, subscribe=topic).load().count() == 0


def test_bounds_are_offsets_words_or_mixtures(read: Read, broker: Broker, topic: str) -> None:
    """JSON for all queues, for some with a default, and -1 and -2 as words."""
    receipts = send(broker, topic, numbered(4_000))
    total = {queue: end for queue, (_, end) in broker.queues(topic).items()}
    one = max(total, key=lambda queue: total[queue])
    assert sum(total.values()) == len(receipts)
    below = sum(min(end, 10) for end in total.values())
    assert read(endingOffsets=offsets_json(broker, topic, -1)).count() == 4_000
    clipped = {topic: {}}  # type: ignore[var-annotated]
    for queue, end in total.items():
        clipped[topic].setdefault(queue.enode, {})[str(queue.queue_id)] = min(end, 10)
    assert read(endingOffsets=json.dumps(clipped)).count() == below
    partly = json.dumps({topic: {one.enode: {str(one.queue_id): 7}}})
    assert read(startingOffsets=partly).count() == 4_000 - 7
    assert read(startingOffsets=partly, startingOffsetsDefault="latest").count() == total[one] - 7
    assert read(startingOffsets=offsets_json(broker, topic, -2)).count() == 4_000
    assert read(startingOffsets="latest").count() == 0


def test_bounds_by_time_find_the_first_message_stored_then(read: Read, broker: Broker, topic: str) -> None:
    """At, between, before the first and after the last message, with both strategies."""
    first = send(broker, topic, numbered(800))
    second = send(broker, topic, numbered(800, 800))
    begin, border, end = first[0].stored_at_ms, second[0].stored_at_ms, second[-1].stored_at_ms
    assert min(r.stored_at_ms for r in first) <= border
    assert read(startingTimestamp=begin - 1_000).count() == 1_600
    since = sum(r.stored_at_ms >= border for r in first + second)
    assert read(startingTimestamp=border, startingOffsetsByTimestampStrategy="latest").count() == since
    assert read(endingTimestamp=border).count() == 1_600 - since
    assert read(startingTimestamp=end + 60_000, startingOffsetsByTimestampStrategy="latest").count() == 0
    with pytest.raises(Exception, match="has no message stored at or after"):
        read(startingTimestamp=end + 60_000).count()
    assert read(startingTimestamp="2020-01-01T00:00:00+00:00").count() == 1_600


def test_a_read_can_begin_where_a_group_is(read: Read, broker: Broker, topic: str) -> None:
    """Check 3: queues start at the group's offset, or at the default if it has none."""
    send(broker, topic, numbered(2_000))
    ends = {queue: end for queue, (_, end) in broker.queues(topic).items()}
    one = max(ends, key=lambda queue: ends[queue])
    link = link_to(ClusterOptions((broker.address,)))
    ensure_group(link, f"g-{topic}"[:100])
    commit_group(link, f"g-{topic}"[:100], {one: 5})
    start = {"startingOffsets": f"group:{f'g-{topic}'[:100]}"}
    assert read(**start).count() == 2_000 - 5
    assert read(**start, startingOffsetsDefault="latest").count() == ends[one] - 5


def test_mistakes_are_named_before_any_task_runs(read: Read) -> None:
    """Check 3: Spark shows the error with the option and the probable name."""
    with pytest.raises(Exception, match="did you mean maxOffsetsPerTrigger"):
        read(maxOffsetPerTrigger="1")
    with pytest.raises(
        Exception, match=r"maxOffsetsPerTrigger.*only with streaming queries \(a batch read is bounded by"
    ):
        read(maxOffsetsPerTrigger="1").count()


def test_a_dataframe_is_a_snapshot(read: Read, broker: Broker, topic: str) -> None:
    """Check 4: counting twice during sends gives one number, and a new load sees more."""
    send(broker, topic, numbered(1_000))
    frame = read()
    assert frame.count() == 1_000
    send(broker, topic, numbered(500))
    assert frame.count() == 1_000
    assert read().count() == 1_500


def test_a_frame_with_fixed_ends_is_a_snapshot_whatever_the_session_sets(
    spark: Any, broker: Broker, topic: str
) -> None:
    """With Spark's push-down on, each condition plans the frame again; given ends keep it unchanged.

    A time that Python cannot represent is an error of Spark, which does not occur with push-down off.
    """
    send(broker, topic, numbered(100))
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    reads = session.read.format("ortoo").options(address=broker.address, subscribe=topic)
    ends = json.dumps(
        {topic: {e: {str(q.queue_id): n for q, (_, n) in broker.queues(topic).items() if q.enode == e}
                 for e in ("enode-0", "enode-1")}}
    )  # fmt: skip
    moving, fixed = reads.load(), reads.option("endingOffsets", ends).load()
    late = "stored_at < '9999-12-31 23:00:00'"

    def counts() -> list[int]:
        return [each.where("offset >= 0").count() for each in (moving, fixed)]

    assert [moving.where(late).count(), *counts()] == [100, 100, 100]
    send(broker, topic, numbered(100, 100))
    assert counts() == [100, 100]
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    assert counts() == [200, 100]
    with pytest.raises(Exception, match="date value out of range"):
        moving.where(late).count()


def test_a_projection_reads_only_its_columns(read: Read, spark: Any, broker: Broker, topic: str) -> None:
    """Check 13: by the option and by a schema. A wrong type is refused."""
    send(broker, topic, numbered(10))
    assert read(columns="offset,body").columns == ["offset", "body"]
    source = spark.read.format("ortoo").options(address=broker.address, subscribe=topic)
    frame = source.schema("body binary, topic string").load()
    assert frame.columns == ["body", "topic"]
    assert {bytes(row.body) for row in frame.collect()} == {b"%d" % n for n in range(10)}
    with pytest.raises(Exception, match="the column offset is bigint"):
        source.schema("offset int").load().count()


def test_what_is_not_asked_for_does_not_leave_the_broker(broker: Broker, topic: str) -> None:
    """Check 13: a read of two small columns fetches less than a tenth of the bytes, for the same rows."""
    send(broker, topic, [Message(b"x" * 500, properties={"n": str(n)}) for n in range(4_000)])
    narrow = StructType([StructField("offset", LongType()), StructField("born_at", TimestampType())])
    wide = StructType([*narrow, StructField("body", BinaryType()), StructField("queue_id", IntegerType())])
    found = {}
    for name, kinds in {"narrow": narrow, "wide": wide}.items():
        decoder = BatchDecoder(arrow_schema(kinds))
        received = [
            each
            for queue, (begin, end) in broker.queues(topic).items()
            for each in link_to(ClusterOptions((broker.address,))).fetch(queue, begin, end, decoder.fields)
        ]
        rows = [decoder.decode(each).select(["offset", "born_at"]) for each in received]
        found[name] = sum(each.size_bytes for each in received), rows
    assert found["narrow"][1] == found["wide"][1]
    assert found["narrow"][0] < found["wide"][0] / 10


@pytest.mark.long
def test_bodies_alone_are_read_faster_than_all_columns(read: Read, broker: Broker, topic: str) -> None:
    """Check 13: `columns=body` takes at most two thirds of the time of all columns (median of several turns)."""
    described = [
        Message(b"x" * 200, "tag", (f"key-{n}",), properties={"region": "west", "n": str(n)}) for n in range(100_000)
    ]
    for _ in range(4):
        send(broker, topic, described)
    clock = SystemClock()
    seconds: dict[str, list[float]] = {"": [], "body": []}
    for turn in range(6):
        for columns, taken in seconds.items():
            began_s = clock.monotonic_s()
            read(columns=columns).write.format("noop").mode("overwrite").save()
            if turn:  # the first turn warms up workers and the JVM
                taken.append(clock.monotonic_s() - began_s)
    ratio = median(seconds[""]) / median(seconds["body"])
    sys.stdout.write(f"bodies alone are read {ratio:.2f} times as fast as all columns: {seconds}\n")
    assert ratio >= 1.5


def test_the_broker_sends_what_a_tag_or_a_condition_wants(read: Read, broker: Broker, topic: str) -> None:
    """One message in a hundred, by tag and by properties; all offsets are passed, and few bytes are sent."""
    send(broker, topic, [Message(b"x" * 300, "rare" if n % 100 == 0 else "often", properties={"n": str(n)})
                         for n in range(4_000)])  # fmt: skip
    assert read(tags="rare").count() == 40
    assert read(tags="rare || often", columns="offset").count() == 4_000
    places = ("enode", "queue_id", "offset", "stored_at")
    assert sorted(read(tags="rare").select(*places).collect()) == sorted(
        read().where("tag = 'rare'").select(*places).collect()
    )
    rows = read(sql="n >= 100 AND n < 300 AND TAGS = 'rare'").collect()
    assert sorted(int(row.properties["n"]) for row in rows) == [100, 200]
    assert read(tags="nobody").count() == 0
    with pytest.raises(Exception, match="sql_expression"):
        read(sql="n >=").count()
    fetched = {}
    for wanted in ("rare", "*"):
        fetched[wanted] = sum(
            each.size_bytes
            for queue, (begin, end) in broker.queues(topic).items()
            for each in link_to(ClusterOptions((broker.address,))).fetch(queue, begin, end, filter=wanted)
        )
    assert fetched["rare"] < fetched["*"] / 20


def test_bodies_are_decoded_by_spark(read: Read, broker: Broker, topic: str) -> None:
    """An invalid body affects only its own row; `null` ends no worker."""
    good = [json.dumps({"id": n, "name": f"n {n}", "more": [1]}, indent=n % 2 or None).encode() for n in range(50)]
    bad = [b"null", b'}\n{"id":99', b'{"id":7,"name":"x"', b"\xff\xfe{"]
    send(broker, topic, [Message(body) for body in [*good, *bad]])
    frame = read(columns="body")
    value = frame.select("body", bodies.json("id bigint, name string", on_invalid="null").alias("value"))
    rows = {bytes(row.body): row.value for row in value.collect()}
    assert [rows[body] for body in bad] == [None] * 4
    assert [(rows[body].id, rows[body].name) for body in good] == [(n, f"n {n}") for n in range(50)]
    sampled = frame.select(bodies.json(sample=good[0], on_invalid="null").alias("value"))
    assert sampled.where("value.more[0] = 1").count() == 50
    for body in bad:
        with pytest.raises(Exception, match=r"MALFORMED_RECORD|INVALID_UTF8"):
            frame.where(sf.col("body") == sf.lit(body)).select(bodies.json("id bigint, name string")).collect()
    texts = {how: frame.select(bodies.text(on_invalid=how).alias("t")).collect() for how in ("null", "replace")}
    assert sum(row.t is None for row in texts["null"]) == 1
    assert sum("\ufffd" in row.t for row in texts["replace"]) == 1
    with pytest.raises(Exception, match="Spark decodes bodies"):
        read(bodyFormat="json", valueSchema="id bigint")


def test_bodies_of_other_formats_are_decoded_by_spark(spark: Any) -> None:
    """MessagePack is decoded over Arrow, Avro and protobuf by Spark, whose errors name the required package."""
    packed = [msgpack.packb({"id": 1, "tags": ["a"]}), msgpack.packb({"more": 1}), msgpack.packb({"id": "x"}), b"\xc1"]
    frame = spark.createDataFrame([(n, body) for n, body in enumerate(packed)], "n int, body binary")
    value = bodies.msgpack("id bigint, tags array<string>", on_invalid="null").alias("value")
    rows = {row.n: row.value for row in frame.select("n", value).collect()}
    assert (rows[0].id, rows[0].tags, rows[1].id, rows[2], rows[3]) == (1, ["a"], None, None, None)
    with pytest.raises(Exception, match="not MessagePack"):
        frame.select(bodies.msgpack("id bigint")).collect()
    with pytest.raises(Exception, match="spark-avro"):
        frame.select(bodies.avro('"long"')).collect()
    with pytest.raises(FileNotFoundError):
        bodies.protobuf("Order", "/no/such/file")
    with pytest.raises(OrtooError, match="expected fail or null"):
        bodies.json("a int", on_invalid="replace")


def test_topics_are_found_by_pattern_and_queues_by_assignment(
    read: Read, spark: Any, broker: Broker, topic: str
) -> None:
    """Several topics by a regular expression; some queues of one topic."""
    broker.client.admin.create_topic(f"{topic}-b", queue_count=1)
    send(broker, topic, numbered(400))
    send(broker, f"{topic}-b", numbered(30))

    def counted(**options: str) -> int:
        source = spark.read.format("ortoo").options(address=broker.address, columns="offset", **options)
        return int(source.load().count())

    assert counted(subscribePattern=f"{topic}.*") == 430
    held = sum(end for queue, (_, end) in broker.queues(topic).items() if queue.queue_id == 2)
    assert counted(assign=json.dumps({topic: [2]})) == held
