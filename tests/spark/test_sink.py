"""Topics as sinks: the message of a row, and the number of copies that are stored."""

import datetime
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; run `make spark-setup`")

from ortoo.client import OrtooError
from ortoo.spark.writing.write_options import parse
from tests.spark.sending import numbered, send, stored
from tests.spark.session import Broker

UTC = datetime.UTC
Rows = Callable[[str], list[Any]]


@pytest.fixture
def rows(spark: Any, broker: Broker) -> Rows:
    """All rows of a topic."""

    def load(topic: str) -> list[Any]:
        return list(spark.read.format("ortoo").options(address=broker.address, subscribe=topic).load().collect())

    return load


def write(frame: Any, broker: Broker, topic: str, **options: object) -> None:
    """Write a frame to a topic."""
    given = {"address": broker.address, "topic": topic} | options
    frame.write.format("ortoo").options(**{name: value for name, value in given.items() if value}).mode("append").save()


def test_every_column_becomes_what_it_says(spark: Any, broker: Broker, topic: str, rows: Rows) -> None:
    """Bodies, tags, keys, groups, properties, ids and times make the round trip, nulls included."""
    frame = spark.sql(
        """
        select cast(concat('body ', id) as binary) body,
               if(id % 2 = 0, concat('tag', id % 3), null) tag,
               transform(sequence(1, cast(1 + id % 3 as int)), n -> concat('key', id, '-', n)) `keys`,
               if(id % 5 = 0, concat('group', id % 4), null) message_group,
               if(id % 3 = 0, map('id', cast(id as string), 'ü', 'ö'), null) properties,
               if(id % 7 = 0, concat('own-', id), null) message_id,
               timestamp_millis(1700000000000 + id) born_at,
               concat('00-', id) trace_context, 'host' born_host,
               if(id % 4 = 0, cast(id % 3 as int), null) priority
        from range(1500)
        """
    )
    write(frame, broker, topic)
    found = {int(bytes(row.body).split()[1]): row for row in rows(topic)}
    assert len(found) == 1_500
    for number, row in found.items():
        assert row.tag == (f"tag{number % 3}" if number % 2 == 0 else None)
        assert row["keys"] == [f"key{number}-{n}" for n in range(1, 2 + number % 3)]
        assert row.message_group == (f"group{number % 4}" if number % 5 == 0 else None)
        assert row.properties == ({"id": str(number), "ü": "ö"} if number % 3 == 0 else {})
        assert row.message_id == f"own-{number}" or number % 7
        assert round(row.born_at.replace(tzinfo=UTC).timestamp() * 1000) == 1_700_000_000_000 + number
        assert (row.trace_context, row.born_host) == (f"00-{number}", "host")
    of_group = [row for row in found.values() if row.message_group == "group1"]
    assert len({(row.enode, row.queue_id) for row in of_group}) == 1


def test_messages_of_a_group_keep_the_order_of_their_rows(spark: Any, broker: Broker, topic: str, rows: Rows) -> None:
    """Within a partition, rows of one message group are stored one after another in one queue."""
    frame = spark.range(0, 20_000, 1, 1).selectExpr("cast(id as string) body", "concat('g', id % 17) message_group")
    write(frame, broker, topic)
    by_group: dict[str, list[tuple[int, int]]] = {}
    for row in rows(topic):
        by_group.setdefault(row.message_group, []).append((row.offset, int(bytes(row.body))))
    assert len(by_group) == 17
    for placed in by_group.values():
        bodies = [body for _, body in sorted(placed)]
        assert bodies == sorted(bodies)


def test_options_beat_columns_and_extra_columns_become_properties(
    spark: Any, broker: Broker, topic: str, rows: Rows
) -> None:
    """Check 12: the option `topic` overrides the column. Extra columns are refused, or become properties."""
    frame = spark.sql("select 'x' body, 'elsewhere' topic, 'a' tag, 7 number, cast(null as string) nothing")
    with pytest.raises(Exception, match="a message has no column 'number'"):
        write(frame, broker, topic)
    write(frame, broker, topic, tag="b", extraColumns="properties")
    (row,) = rows(topic)
    assert (row.topic, row.tag, row.properties) == (topic, "b", {"number": "7"})


def test_rows_go_to_the_topics_and_queues_they_name(spark: Any, broker: Broker, topic: str, rows: Rows) -> None:
    """A column names the topic of each row, two others its queue."""
    broker.client.admin.create_topic(f"{topic}-b")
    frame = spark.sql(
        f"select cast(id as string) body, concat('{topic}', if(id % 2 = 0, '', '-b')) topic,"
        " 'enode-1' enode, cast(id % 3 as int) queue_id from range(300)"
    )
    write(frame, broker, "")
    for name, parity in ((topic, 0), (f"{topic}-b", 1)):
        placed = {int(bytes(row.body)): (row.enode, row.queue_id) for row in rows(name)}
        assert placed == {number: ("enode-1", number % 3) for number in range(300) if number % 2 == parity}


@pytest.mark.parametrize(
    ("schema", "options", "said"),
    [
        ("id bigint", {}, "no column `body`"),
        ("body bigint", {}, "expected binary or string"),
        ("body string, tag int", {}, "expected string"),
        ("body string", {"topic": ""}, "missing topic"),
        ("body string", {"topic": "a topic"}, "only letters"),
        ("body string", {"deliverySemantics": "exactly-once"}, "needs the column born_at"),
        ("body string, born_at timestamp, topic string", {"deliverySemantics": "exactly-once", "topic": ""}, "single"),
        ("body string", {"deliverySemantic": "exactly-once"}, "did you mean deliverySemantics"),
        ("body string, kesy array<string>", {}, "did you mean keys"),
    ],
)
def test_wrong_columns_and_options_are_refused(spark: Any, schema: str, options: dict[str, str], said: str) -> None:
    """Each mistake is reported with the column or option and the expected value, before any task runs."""
    kinds = spark.createDataFrame([], schema).schema
    with pytest.raises(OrtooError, match=said):
        parse({"address": "localhost:1", "topic": "t"} | options, kinds)


def test_rows_that_nobody_may_send_store_nothing(spark: Any, broker: Broker, topic: str) -> None:
    """An empty body, a tag with a bar and an unknown topic are reported."""
    for sql, target, said in (
        ("select '' body", topic, "a body is empty"),
        ("select 'x' body, 'a|b' tag", topic, "separate tags"),
        ("select 'x' body", "no-such-topic", "no-such-topic"),
    ):
        with pytest.raises(Exception, match=said):
            write(spark.sql(sql), broker, target)
    assert stored(broker, topic) == 0


INVALID = (
    ("body", "a body is empty"),
    ("body", "a body is null"),
    ("tag", "separate tags"),
    ("topic", "no-such-topic"),
    ("priority", "is not from"),
    ("properties", "RETRY_TOPIC"),
)
"""Expected (field, part of the reason) of the invalid rows."""


@pytest.mark.parametrize("semantics", ["at-least-once", "idempotent"])
def test_invalid_rows_are_stored_in_a_topic_of_their_own(
    spark: Any, broker: Broker, topic: str, rows: Rows, semantics: str
) -> None:
    """Each invalid row becomes a message with its reason; all others are written, and a repetition adds nothing."""
    invalid_topic = f"{topic}-invalid"
    broker.client.admin.create_topic(invalid_topic)
    frame = spark.sql(
        f"""
        select case id when 100 then '' when 101 then null else concat('body ', id) end body,
               case id when 102 then 'a|b' else 'tag' end tag,
               case id when 103 then 'no-such-topic' else '{topic}' end topic,
               case id when 104 then -1 else 1 end priority,
               case id when 105 then map('RETRY_TOPIC', 'x') else map('id', cast(id as string)) end properties,
               timestamp_millis(1700000000000 + id) born_at
        from range(0, 2000, 1, 2)
        """
    )
    given = {"invalidRowsTopic": invalid_topic, "deliverySemantics": semantics}
    given |= {"jobId": topic} if semantics == "idempotent" else {}
    for _ in range(2 if semantics == "idempotent" else 1):
        write(frame, broker, "", **given)
    assert stored(broker, topic) == 2_000 - len(INVALID)
    found = {json.loads(bytes(row.body))["born_at"]: row for row in rows(invalid_topic)}
    assert len(found) == len(INVALID)
    for (_, row), (field, reason) in zip(sorted(found.items()), INVALID, strict=True):
        assert field in row.properties.get("INVALID_FIELD", field)
        assert reason in row.properties["INVALID_REASON"]


def test_a_job_that_is_run_twice_adds_nothing(spark: Any, broker: Broker, topic: str) -> None:
    """Check 16: the same `jobId` with the same rows stores them once."""
    frame = spark.sql("select cast(id as string) body, timestamp_millis(id) born_at from range(30000)")
    for semantics in ("idempotent", "exactly-once", "exactly-once"):
        write(frame, broker, topic, deliverySemantics=semantics, jobId="backfill-7")
        assert stored(broker, topic) == 30_000
    with pytest.raises(Exception, match="belongs to another query"):
        write(frame, broker, topic, deliverySemantics="exactly-once", jobId="backfill-8", sinkId="backfill-7")


def stream(spark: Any, broker: Broker, source: str, target: str, folder: Path, **options: object) -> None:
    """Copy the current messages of a topic to another one."""
    frame = (
        spark.readStream.format("ortoo")
        .options(address=broker.address, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=700)
        .load()
        .select("body", "tag", "keys", "properties", "born_at")
    )
    query = (
        frame.writeStream.format("ortoo")
        .options(address=broker.address, topic=target, **options)
        .option("checkpointLocation", str(folder / f"checkpoint-{target}"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def test_a_repeated_batch_is_stored_once_or_only_once_more(
    spark: Any, broker: Broker, topic: str, folder: Path
) -> None:
    """Check 7: after the commit of a batch is lost, exactly-once and idempotent sinks are unchanged."""
    send(broker, topic, numbered(1_000))
    expected = {
        "exactly-once": [1_000, 1_000],
        "idempotent": [1_000, 1_000],
        "at-least-once": [1_000, 1_300],
    }
    for semantics, counts in expected.items():
        target = f"{topic}-{semantics}"
        broker.client.admin.create_topic(target, queue_count=2)
        for count in counts:
            stream(spark, broker, topic, target, folder, deliverySemantics=semantics)
            assert stored(broker, target) == count, semantics
            commits = folder / f"checkpoint-{target}" / "commits"
            newest = max(commits.glob("[0-9]*"), key=lambda file: int(file.name))
            newest.unlink()
            (commits / f".{newest.name}.crc").unlink(missing_ok=True)


def test_a_sink_whose_checkpoint_was_deleted_is_refused(spark: Any, broker: Broker, topic: str, folder: Path) -> None:
    """Check 7: a new query with the id of an old sink would duplicate everything, so it is refused."""
    send(broker, topic, numbered(500))
    target = f"{topic}-copy"
    broker.client.admin.create_topic(target)
    stream(spark, broker, topic, target, folder, deliverySemantics="exactly-once", sinkId="copy")
    shutil.rmtree(folder / f"checkpoint-{target}")
    with pytest.raises(Exception, match="belongs to another query"):
        stream(spark, broker, topic, target, folder, deliverySemantics="exactly-once", sinkId="copy")
    assert stored(broker, target) == 500


def test_a_write_in_foreach_batch_is_repeated_with_its_batch(
    spark: Any, broker: Broker, topic: str, folder: Path
) -> None:
    """The identity comes from Spark's query and batch: a repeated batch adds nothing, and the next one is written."""
    target = f"{topic}-copy"
    broker.client.admin.create_topic(target)
    source = spark.readStream.format("ortoo").options(
        address=broker.address, subscribe=topic, startingOffsets="earliest", columns="body,born_at"
    )
    failures = [True]

    def each(sink: dict[str, str], fails: bool) -> Callable[[Any, int], None]:
        def step(frame: Any, number: int) -> None:
            write(frame, broker, target, deliverySemantics="exactly-once", **sink)
            if fails and not frame.isEmpty() and failures:
                failures.pop()
                raise OSError("the driver died after the write")

        return step

    def run(sink: dict[str, str], name: str, *, fails: bool) -> None:
        writer = source.load().writeStream.foreachBatch(each(sink, fails))
        query = writer.option("checkpointLocation", str(folder / name)).trigger(availableNow=True).start()
        query.awaitTermination()

    for name, sink in (("a", {}), ("b", {"sinkId": "b"}), ("c", {"jobId": "c", "sinkId": "c"})):
        failures[:] = [True]
        send(broker, topic, numbered(20))
        with pytest.raises(Exception, match="the driver died after the write"):
            run(sink, name, fails=True)
        run(sink, name, fails=True)
        sent_before = stored(broker, target)
        send(broker, topic, numbered(10))
        run(sink, name, fails=False)
        assert stored(broker, target) == sent_before + 10, name
        assert sent_before % 10 == 0
    assert stored(broker, target) == (20 + 10) + (50 + 10) + (80 + 10)


def test_batches_of_a_job_have_numbers(spark: Any, broker: Broker, topic: str) -> None:
    """`batchId` continues a job: each number is written once, and only the newest one may be repeated."""
    frame = spark.sql("select cast(id as string) body, timestamp_millis(id) born_at from range(100)")
    for number, count in ((0, 100), (1, 200), (1, 200)):
        write(frame, broker, topic, deliverySemantics="exactly-once", jobId="j", batchId=str(number))
        assert stored(broker, topic) == count
    with pytest.raises(Exception, match="restored from an old copy"):
        write(frame, broker, topic, deliverySemantics="exactly-once", jobId="j", batchId="0")
    with pytest.raises(Exception, match="only with jobId"):
        write(frame, broker, topic, deliverySemantics="exactly-once", batchId="1")


def test_a_checkpoint_that_was_restored_from_an_old_copy_is_refused(
    spark: Any, broker: Broker, topic: str, folder: Path
) -> None:
    """Its batches have numbers that the sink has committed, and other rows, which would be missing."""
    target = f"{topic}-copy"
    broker.client.admin.create_topic(target)
    kept, used = folder / "kept", folder / f"checkpoint-{target}"
    for step in range(4):
        send(broker, topic, numbered(20))
        stream(spark, broker, topic, target, folder, deliverySemantics="exactly-once")
        if not step:
            shutil.copytree(used, kept)
    shutil.rmtree(used)
    shutil.copytree(kept, used)
    send(broker, topic, numbered(20))
    with pytest.raises(Exception, match="restored from an old copy"):
        stream(spark, broker, topic, target, folder, deliverySemantics="exactly-once")
    assert stored(broker, target) == 80


def test_a_repeated_task_with_other_rows_is_refused_however_early_they_differ(
    spark: Any, broker: Broker, topic: str
) -> None:
    """The enode compares the last batches of a task and queue. Each one depends on all earlier ones."""
    name = f"{topic[:80]}-one"
    broker.client.admin.create_topic(name, queue_count=1, enodes=["enode-0"])

    def rows(changed: int, count: int) -> Any:
        return spark.range(0, count, 1, 1).selectExpr(
            f"concat(if(id = {changed}, 'other', 'body'), id) body", "timestamp_millis(id) born_at"
        )

    batch, job = 4_096, {"deliverySemantics": "idempotent", "jobId": "j"}
    write(rows(-1, 8 * batch), broker, name, **job)
    with pytest.raises(Exception, match="wrote other rows"):
        write(rows(batch + 1, 10 * batch), broker, name, **job)
    with pytest.raises(Exception, match="an earlier attempt stored more rows"):
        write(rows(-1, 2 * batch), broker, name, **job)
    assert stored(broker, name) == 8 * batch
    write(rows(-1, 10 * batch), broker, name, **job)
    assert stored(broker, name) == 10 * batch
