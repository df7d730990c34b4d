"""The account of an exactly-once sink: an operator sees it, and resets it while its query runs."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; run `make spark-setup`")

from ortoo.client import Conflict
from ortoo.common.process.clock import SystemClock
from ortoo.spark.core.cluster_options import ClusterOptions
from ortoo.spark.core.link import link_to
from ortoo.spark.writing.sink_progress import SinkProgress
from tests.spark.sending import numbered, send, stored
from tests.spark.session import Broker

WAIT_S = 180.0


@pytest.fixture
def query(spark: Any, broker: Broker, topic: str, folder: Path) -> Callable[[str], Any]:
    """Starts a query that copies the topic, batch after batch, with the checkpoint of this name."""
    broker.client.admin.create_topic(f"{topic}-copy", queue_count=2)

    def start(checkpoint: str) -> Any:
        source = spark.readStream.format("ortoo").options(
            address=broker.address, subscribe=topic, startingOffsets="earliest", columns="body,born_at"
        )
        sink = (
            source.load()
            .writeStream.format("ortoo")
            .options(address=broker.address, topic=f"{topic}-copy", deliverySemantics="exactly-once", sinkId="copy")
        )
        return sink.option("checkpointLocation", str(folder / checkpoint)).start()

    return start


def bodies(spark: Any, broker: Broker, topic: str) -> list[int]:
    """The sorted bodies of a topic."""
    frame = spark.read.format("ortoo").options(address=broker.address, subscribe=topic, columns="body").load()
    return sorted(int(bytes(row.body)) for row in frame.collect())


def wait_until(found: Callable[[], bool], query: Any) -> None:
    """Wait for a condition while a query runs. Errors: AssertionError if it does not hold in time."""
    clock = SystemClock()
    until_s = clock.monotonic_s() + WAIT_S
    while not found():
        assert clock.monotonic_s() < until_s, query.lastProgress
        assert query.exception() is None, query.exception()
        threading.Event().wait(0.1)


@pytest.mark.timeout(900)
def test_a_reset_ends_the_running_query_and_lets_another_one_begin(
    spark: Any, broker: Broker, topic: str, query: Callable[[str], Any]
) -> None:
    """The query ends with the reason and keeps all of its rows. A new checkpoint begins at the first message."""
    sinks, copy = broker.client.admin.sinks, f"{topic}-copy"
    send(broker, topic, numbered(100))
    first = query("first")
    wait_until(lambda: any(one.numInputRows for one in first.recentProgress), first)
    assert stored(broker, copy) == 100
    newest = max(one.batchId for one in first.recentProgress)
    (account,) = sinks.list(copy).sinks
    assert (account.sink_id, account.query_id, account.reset) == ("copy", str(first.id), False)
    assert account.batch_id == newest
    done = sinks.reset(copy, "copy")
    assert (done.reset, done.batch_id, done.query_id) == (True, newest, str(first.id))
    send(broker, topic, numbered(50, 100))
    with pytest.raises(Exception, match=f"an operator reset the sink after batch {newest} of this query"):
        first.awaitTermination(WAIT_S)
    assert not first.isActive
    assert bodies(spark, broker, copy) == list(range(100))
    link, restarted = link_to(ClusterOptions((broker.address,))), SinkProgress("copy", str(first.id), copy)
    with pytest.raises(Conflict, match="Start a query with a new checkpoint"):
        restarted.begin(link, newest + 1)
    second = query("second")
    try:
        wait_until(lambda: stored(broker, copy) == 250 and sinks.list(copy).sinks[0].query_id == str(second.id), second)
        assert sinks.list(copy, "copy").sinks[0].reset is False
        assert bodies(spark, broker, copy) == sorted([*range(100), *range(150)])
        assert second.exception() is None
    finally:
        second.stop()
    assert bodies(spark, broker, topic) == list(range(150))
    sinks.reset(copy, "copy")
    with pytest.raises(Conflict, match=f"sink 'copy' of topic {copy}: an operator reset the sink after batch {newest}"):
        restarted.begin(link, newest + 1)
    assert not SinkProgress("copy", "third", copy).begin(link, 0)
    (account,) = sinks.list(copy).sinks
    assert (account.query_id, account.batch_id, account.reset) == ("third", -1, False)


def test_a_write_without_an_id_leaves_no_account(spark: Any, broker: Broker, topic: str) -> None:
    """No other write can repeat it, so that its account would stay forever. A job with an id has one."""
    frame = spark.sql("select cast(id as string) body, timestamp_millis(id) born_at from range(10)")
    options = {"address": broker.address, "topic": topic, "deliverySemantics": "exactly-once"}
    frame.write.format("ortoo").options(**options).mode("append").save()
    assert broker.client.admin.sinks.list(topic).sinks == ()
    frame.write.format("ortoo").options(**options, jobId="daily").mode("append").save()
    (account,) = broker.client.admin.sinks.list(topic).sinks
    assert (account.sink_id, account.query_id, account.batch_id) == ("daily", "daily", 0)
    assert stored(broker, topic) == 20
