"""Reads while the broker restarts, is down, or has nothing new, and messages of a client with another protocol."""

import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; run `make spark-setup`")

from pyspark.sql.types import LongType, StructField, StructType

from bench import processes
from ortoo.client import DataLoss, Message, Queue, Unavailable
from ortoo.common.process.clock import SystemClock
from ortoo.spark.core import read_options
from ortoo.spark.reading import stream_read, topic_state
from ortoo.spark.reading.batch_read import BatchReader
from ortoo.spark.reading.stream_read import StreamReader
from tests.official.client import official
from tests.spark.sending import send
from tests.spark.session import Broker, broker_of

IDLE_S = 30
OFFSET = StructType([StructField("offset", LongType())])


def reader_of(broker: Broker, topic: str, **options: str) -> BatchReader:
    """A batch reader without Spark."""
    given = {"address": broker.address, "subscribe": topic} | options
    return BatchReader(read_options.parse(given, streaming=False), OFFSET)


def large(count: int) -> list[Message]:
    """Messages that fill several batches, in all queues."""
    return [Message(b"%d " % number + b"x" * 4_000, message_group=f"{number % 100}") for number in range(count)]


def test_a_restart_in_the_middle_of_a_read_costs_nothing_but_time(broker: Broker, topic: str) -> None:
    """Check 9: an enode is killed and restarted during a read. Each row arrives once, without an error."""
    send(broker, topic, large(4_000))
    reader = reader_of(broker, topic)
    rows = 0
    for number, task in enumerate(reader.partitions()):
        for at, batch in enumerate(reader.read(task)):
            rows += len(batch)
            if at == 0 and number < 2:
                broker.run(broker.cluster.enodes[number].restart())
    assert rows == 4_000


def test_what_retention_took_is_a_loss_with_numbers(folder: Path) -> None:
    """Check 10: a query whose next messages were deleted during a pause reports their number and continues."""
    settings = {"STORE_SEGMENT_BYTES": 64 << 10, "STORE_HEADROOM_BYTES": 0}
    with broker_of(folder, enodes=1, environ={"enode": settings}) as small:
        small.client.admin.create_topic("short", queue_count=1)
        queue = Queue("short", "enode-0", 0)
        for first in range(0, 400, 20):
            send(small, "short", [Message(b"%d " % (first + n) + b"x" * 4_000) for n in range(20)])
        tasks = {policy: reader_of(small, "short", onDataLoss=policy) for policy in ("fail", "earliest", "latest")}
        planned = {policy: reader.partitions() for policy, reader in tasks.items()}
        (enode,) = small.cluster.enodes
        # It keeps most of the messages, so that some of them are left when the deletion is seen.
        enode.environ |= {"STORE_RETENTION_BYTES": 1 << 20, "STORE_RETENTION_INTERVAL_MS": 50}
        small.run(enode.restart())
        small.run(small.cluster.wait_until_alive())
        with small.client.producer("short") as producer:
            while small.queues("short").get(queue, (0, 0))[0] == 0:
                producer.send(Message(b"x" * 4_000))
        with pytest.raises(DataLoss, match=r"the offsets 0 to \d+ \(\d+ messages\): the queue holds .* retention"):
            list(tasks["fail"].read(planned["fail"][0]))
        found = [offset for batch in tasks["earliest"].read(planned["earliest"][0]) for offset in batch[0].to_pylist()]
        assert 0 < len(found) < 400
        assert found == list(range(400 - len(found), 400))
        assert list(tasks["latest"].read(planned["latest"][0])) == []


def test_a_broker_that_stays_away_is_an_error_that_says_what_to_do(broker: Broker, topic: str) -> None:
    """Check 9: after the configured time the task fails with queue, offset and option."""
    send(broker, topic, large(200))
    reader = reader_of(broker, topic, fetchTimeoutMs="500ms")
    tasks = reader.partitions()
    away = broker.cluster.enodes[0]
    broker.run(away.stop())
    try:
        with pytest.raises(Unavailable, match=r"on enode-0 could not be read at offset .* fetchTimeoutMs"):
            for task in tasks:
                list(reader.read(task))
    finally:
        broker.run(away.start())
        broker.run(broker.cluster.wait_until_alive())
    patient = reader_of(broker, topic)  # the snode may need longer than that time to reconnect to the enode
    assert sum(len(batch) for task in tasks for batch in patient.read(task)) == 200


def test_an_idle_query_asks_the_broker_seldom(broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check 8: Spark would poll a hundred times a second, but the broker gets fewer than 15 requests."""
    calls = []
    asked = topic_state.current_state

    def counted(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        return asked(*arguments, **options)

    monkeypatch.setattr(stream_read, "current_state", counted)
    given = {"address": broker.address, "subscribe": topic}
    reader = StreamReader(read_options.parse(given, streaming=True), OFFSET)
    at = reader.latestOffset(reader.initialOffset(), None)
    assert reader.partitions(at, at) == []  # the first batch, which does not wait for messages
    clock = SystemClock()
    began_s, polls = clock.monotonic_s(), 0
    while clock.monotonic_s() - began_s < 2.0:
        assert reader.latestOffset(at, None) == at
        polls += 1
    assert polls < 20
    assert len(calls) / 2 < 15


@pytest.mark.long
def test_an_idle_query_uses_hardly_any_processor(spark: Any, broker: Broker, topic: str, folder: Path) -> None:
    """Check 8: without writes for 30 s, source, workers and broker use less than 5 % of a core."""
    send(broker, topic, [Message(b"one")])
    source = spark.readStream.format("ortoo").options(address=broker.address, subscribe=topic)
    frame = source.option("startingOffsets", "earliest").load()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint")).start()
    clock = SystemClock()
    try:
        query.processAllAvailable()
        batches = sorted(file.name for file in (folder / "checkpoint/offsets").iterdir())
        (jvm,) = (each for each in processes.descendants(os.getpid()) if processes.name_of(each) == "java")
        watched = {role.folder.name: [role.pid] for role in broker.cluster.roles}
        watched["spark's Python"] = list(processes.descendants(jvm))
        used = {name: sum(map(processes.cpu_s, ids)) for name, ids in watched.items()}
        began_s = clock.monotonic_s()
        assert not query.awaitTermination(IDLE_S)
        seconds = clock.monotonic_s() - began_s
        shares = {name: (sum(map(processes.cpu_s, ids)) - used[name]) / seconds for name, ids in watched.items()}
        assert sorted(file.name for file in (folder / "checkpoint/offsets").iterdir()) == batches
        assert sum(shares.values()) < 0.05, shares
    finally:
        query.stop()


def test_what_the_official_client_of_another_language_sent_is_read(spark: Any, broker: Broker, topic: str) -> None:
    """Messages of a Node.js producer with RocketMQ's protocol have all columns in Spark."""

    async def produce() -> list[str]:
        async with official("node", broker.address) as client:
            await client("producer", name="p", topics=[topic])
            plain = await client("send", name="p", topic=topic, body=b"plain")
            full = await client(
                "send",
                name="p",
                topic=topic,
                body=bytes(range(256)),
                tag="red",
                keys=["k1", "k2"],
                properties={"colour": "rouge", "größe": "12"},
                message_group="customer-7",
            )
            return [str(plain["message_id"]), str(full["message_id"])]

    plain, full = broker.run(produce())
    frame = spark.read.format("ortoo").options(address=broker.address, subscribe=topic).load()
    rows = {row.message_id: row for row in frame.collect()}
    assert set(rows) == {plain, full}
    assert (bytes(rows[plain].body), rows[plain].tag, rows[plain]["keys"]) == (b"plain", None, [])
    row = rows[full]
    assert (bytes(row.body), row.tag, sorted(row["keys"])) == (bytes(range(256)), "red", ["k1", "k2"])
    assert row.properties == {"colour": "rouge", "größe": "12"}
    assert (row.message_group, row.topic) == ("customer-7", topic)
    assert row.born_at is not None
    assert row.born_at <= row.stored_at
