"""Reads, writes and accounts of sinks wait for enodes that are down, and continue when these are back."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; run `make spark-setup`")

from pyspark.sql.types import LongType, StructField, StructType

from ortoo.client import Queue
from ortoo.client.produce.routes import Route, query_placement
from ortoo.common.errors import Invalid, NotFound, Unavailable
from ortoo.spark.core import read_options
from ortoo.spark.core.cluster_options import CLUSTER_OPTIONS, ClusterOptions
from ortoo.spark.core.link import ClusterLink, link_to
from ortoo.spark.core.options import OptionReader
from ortoo.spark.reading.batch_read import BatchReader
from ortoo.spark.reading.stream_read import StreamReader
from ortoo.spark.writing.message_writer import open_route
from tests.spark.sending import numbered, send, stored
from tests.spark.session import Broker
from tests.spark.test_sink_faults import ROWS, TASKS, Batch

OFFSET = StructType([StructField("offset", LongType())])
MESSAGES = 200
WAIT_S = 180


@pytest.fixture
def while_enodes_are_down(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], Any]:
    """Runs a call without enodes, starts the enodes when the call waits for them, and returns its result."""
    waiting = threading.Event()
    sleep = ClusterLink.sleep

    def noticed(link: ClusterLink, seconds: float) -> None:
        waiting.set()
        sleep(link, seconds)

    monkeypatch.setattr(ClusterLink, "sleep", noticed)

    def run(call: Callable[[], Any]) -> Any:
        waiting.clear()
        for enode in broker.cluster.enodes:
            broker.run(enode.kill())
        with ThreadPoolExecutor(1) as threads:
            result = threads.submit(call)
            try:
                while not waiting.wait(0.1):
                    assert not result.done(), result.result()
            finally:
                for enode in broker.cluster.enodes:
                    broker.run(enode.start())
                broker.run(broker.cluster.wait_until_alive())
            return result.result(WAIT_S)

    return run


def stream_reader(broker: Broker, topic: str) -> StreamReader:
    """A reader of a stream without Spark, from the first message on."""
    given = {"address": broker.address, "subscribe": topic, "startingOffsets": "earliest"}
    return StreamReader(read_options.parse(given, streaming=True), OFFSET)


def test_a_batch_read_waits_for_its_enodes(
    broker: Broker, topic: str, while_enodes_are_down: Callable[[Callable[[], Any]], Any]
) -> None:
    """The plan has the queues of enodes that were down when it was asked for."""
    send(broker, topic, numbered(MESSAGES))
    given = {"address": broker.address, "subscribe": topic}
    reader = BatchReader(read_options.parse(given, streaming=False), OFFSET)
    tasks = while_enodes_are_down(reader.partitions)
    assert sum(len(batch) for task in tasks for batch in reader.read(task)) == MESSAGES


def test_the_start_of_a_stream_waits_for_its_enodes(
    broker: Broker, topic: str, while_enodes_are_down: Callable[[Callable[[], Any]], Any]
) -> None:
    """A new query starts in every queue."""
    reader = stream_reader(broker, topic)
    first = while_enodes_are_down(lambda: later(reader, reader.initialOffset()))
    assert {queue for enodes in first["q"].values() for queue in enodes} == {"enode-0", "enode-1"}


def test_a_query_up_to_the_present_end_waits_for_its_enodes(
    broker: Broker, topic: str, while_enodes_are_down: Callable[[Callable[[], Any]], Any]
) -> None:
    """The end of an availableNow query has every queue, and a batch without an answer is not the last one."""
    reader = stream_reader(broker, topic)
    start = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert reader.partitions(start, start) == []  # the first batch, which does not wait for enodes
    send(broker, topic, numbered(MESSAGES))
    while_enodes_are_down(reader.prepareForTriggerAvailableNow)
    end = while_enodes_are_down(lambda: later(reader, start))
    rows = sum(len(batch) for task in reader.partitions(start, end) for batch in reader.read(task))
    assert rows == MESSAGES


def later(reader: StreamReader, start: Any) -> Any:
    """The end of the next batch, planned with a state that is not older than this call."""
    reader._cached = None
    return reader.latestOffset(start, reader.getDefaultReadLimit())


def test_an_exactly_once_sink_waits_for_its_enodes(
    broker: Broker, topic: str, while_enodes_are_down: Callable[[Callable[[], Any]], Any]
) -> None:
    """Tasks ask whether their batch is committed, and the driver commits it; both wait, and all rows are stored."""
    batch = Batch(broker, topic, 0)
    written = while_enodes_are_down(batch.write_all)
    while_enodes_are_down(lambda: batch.commit(written))
    assert all(task.skipped for task in batch.write_all())
    assert stored(broker, topic) == TASKS * ROWS


def test_a_write_waits_for_the_only_enode_of_its_topic(
    broker: Broker, topic: str, while_enodes_are_down: Callable[[Callable[[], Any]], Any]
) -> None:
    """A topic whose enodes are down has a route later; a topic that does not exist or is read-only is an error."""
    link = link_to(ClusterOptions((broker.address,)))
    name = f"{topic[:80]}-alone"
    broker.client.admin.create_topic(name, queue_count=1, enodes=["enode-0"])

    def route() -> Route:
        while link.run(query_placement(link.connection, name)).writable:  # the snode has not noticed yet
            link.run(link.clock.sleep(0.1))
        return open_route(link, name)

    assert while_enodes_are_down(route).writable == (Queue(name, "enode-0", 0),)
    with pytest.raises(NotFound):
        open_route(link, "no-such-topic")
    broker.client.admin.update_topic(name, permission="read_only")
    with pytest.raises(NotFound, match="read-only"):
        open_route(link, name)


def test_the_wait_ends_after_the_time_of_the_option(broker: Broker, topic: str) -> None:
    """`unavailableTimeoutMs` limits the wait, and a number of attempts replaces it."""
    reader = OptionReader({"address": broker.address, "unavailableTimeoutMs": "100ms"}, CLUSTER_OPTIONS)
    link = link_to(ClusterOptions.of(reader))
    tries = []

    def attempt() -> None:
        tries.append(1)
        raise Unavailable("the enode is down")

    with pytest.raises(Unavailable, match="the enode is down"):
        link.when_available(attempt)
    assert tries == [1]
    both = {"address": broker.address, "unavailableTimeoutMs": "1s", "callAttempts": "2"}
    with pytest.raises(Invalid, match="callAttempts and unavailableTimeoutMs are given"):
        ClusterOptions.of(OptionReader(both, CLUSTER_OPTIONS))
    attempts = ClusterOptions.of(OptionReader({"address": broker.address, "callAttempts": "2"}, CLUSTER_OPTIONS))
    assert (attempts.call_attempts, attempts.unavailable_timeout_ms) == (2, 0)
