"""Features of each version of Spark, and the errors of versions that are too old."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; run `make spark-setup`")

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.sql.types import BinaryType, StructField, StructType

from ortoo.client import OrtooError
from ortoo.common.errors import Unsupported
from ortoo.spark.format import bodies
from ortoo.spark.format.source import OrtooDataSource
from tests.repo.tree import ROOT
from tests.spark.matrix import TESTS, VERSIONS, can
from tests.spark.sending import stored
from tests.spark.session import Broker

ROWS = StructType([StructField("body", BinaryType())])
NOWHERE = OrtooDataSource({"address": "127.0.0.1:1", "subscribe": "t"})
SINK = OrtooDataSource({"address": "127.0.0.1:1", "topic": "t"})


@pytest.mark.parametrize(
    ("what", "attempt"),
    [
        ("streams are read", lambda: NOWHERE.streamReader(ROWS)),
        ("streams are written", lambda: SINK.streamWriter(ROWS, False)),
        ("MessagePack is decoded", lambda: bodies.msgpack("id int")),
    ],
)
def test_a_spark_that_is_too_old_is_told_which_one_can(what: str, attempt: Callable[[], Any]) -> None:
    """The error has the required version; a newer Spark raises none."""
    first, said = TESTS[what][0], ""
    try:
        attempt()
    except Unsupported as error:
        said = str(error)
    except (OrtooError, pyspark.errors.PySparkException):
        pass  # there is no broker and no session here
    if can(pyspark.__version__, first):
        assert said == ""
    else:
        assert said.startswith(f"{what} with Spark {first} or newer")


@pytest.mark.long
def test_a_stream_of_another_source_is_written(spark: Any, broker: Broker, topic: str, folder: Path) -> None:
    """Lines of files become messages, each once."""
    (folder / "lines").mkdir()
    (folder / "lines/one.txt").write_text("".join(f"{number}\n" for number in range(200)))
    rows = spark.readStream.text(str(folder / "lines")).selectExpr("value as body", "timestamp_millis(0) as born_at")
    query = rows.writeStream.format("ortoo").options(
        address=broker.address, topic=topic, deliverySemantics="exactly-once", checkpointLocation=str(folder / "at")
    )
    query.trigger(availableNow=True).start().awaitTermination()
    assert stored(broker, topic) == 200


def test_the_page_says_what_the_matrix_tries() -> None:
    """The table of versions on the page about shipping equals the matrix."""
    page = (ROOT / "docs/spark/shipping.md").read_text()
    head, *rows = re.findall(r"^\| (.*) \|$", page, re.M)
    assert head.split(" | ")[1:] == [version.rpartition(".")[0] for version in VERSIONS]
    told = {what: [cell == "yes" for cell in cells] for what, *cells in (row.split(" | ") for row in rows)}
    assert told == {what: [can(version, first) for version in VERSIONS] for what, (first, *_) in TESTS.items()}


def test_a_write_of_another_thread_needs_an_active_session(spark: Any, broker: Broker, topic: str) -> None:
    """Spark finds the sink of a write in the active session of the thread only; the page names the way around."""
    rows = spark.range(20).selectExpr("cast(cast(id as string) as binary) body")
    writer = rows.write.format("ortoo").mode("append").options(address=broker.address, topic=topic)

    def write_in_active_session() -> None:
        spark.createDataFrame([(0,)], "n int")
        writer.save()

    with ThreadPoolExecutor(1) as threads:
        with pytest.raises(Py4JJavaError, match="DATA_SOURCE_NOT_FOUND"):
            threads.submit(writer.save).result()
        threads.submit(write_in_active_session).result()
    assert sum(end - begin for begin, end in broker.queues(topic).values()) == 20
