"""The modules that each process of Spark imports. A query starts about five processes, and each pays for them."""

import subprocess
import sys

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; run `make spark-setup`")

from ortoo.client import Message
from tests.spark.sending import send
from tests.spark.session import Broker

LOOK_UP = "import pyspark_ortoo"
SCHEMA = """
from ortoo.spark.format.source import OrtooDataSource
OrtooDataSource({"address": "h:1", "subscribe": "t"}).schema()
"""
SOURCE = """
from ortoo.spark.core import columns, read_options
from pyspark.sql.types import *
types = {"string": StringType(), "int": IntegerType(), "bigint": LongType(), "binary": BinaryType(),
         "timestamp": TimestampType(), "array<string>": ArrayType(StringType()),
         "map<string,string>": MapType(StringType(), StringType())}
schema = StructType([StructField(name, types[columns.BY_NAME[name].ddl]) for name in columns.chosen_names(())])
options = {"address": %r, "subscribe": %r, "tags": %r}
"""
STREAM = (
    SOURCE
    + """
from ortoo.spark.reading.stream_read import StreamReader
reader = StreamReader(read_options.parse(options, streaming=True), schema)
"""
)
PLAN = (
    STREAM
    + """
reader.initialOffset()
end = reader.latestOffset(reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit()),
                          reader.getDefaultReadLimit())
"""
)
READ = (
    SOURCE
    + """
from ortoo.spark.reading.batch_read import BatchReader
reader = BatchReader(read_options.parse(options, streaming=False), schema)
assert sum(len(batch) for task in reader.partitions() for batch in reader.read(task)) == 20
"""
)
SINK = """
import gc
from pyspark.sql.types import *
from ortoo.spark.format.source import OrtooDataSource
schema = StructType([StructField("body", BinaryType())])
OrtooDataSource({"address": "h:1", "topic": "t"}).streamWriter(schema, False)
assert len(gc.get_objects()) < 2_000, len(gc.get_objects())
"""
CLIENT = ("grpc", "google.protobuf", "ortoo.client.core.connection")
OTHER_PARTS = ("ortoo.client.app", "ortoo.client.produce.producer", "ortoo.client.pop", "ortoo.client.push.consumer")
READING = ("ortoo.client.read", "ortoo.client.core.received", "ortoo.common.records.view")


def imported(program: str) -> set[str]:
    """The modules of an interpreter that has run a program."""
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys\nprint(*sys.modules)"],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return set(done.stdout.split())


@pytest.mark.parametrize("program", [LOOK_UP, SCHEMA, STREAM % ("h:1", "t", "*")])
def test_processes_that_only_look_at_options_import_no_client(program: str) -> None:
    """Spark looks the format up, asks for its schema and pickles the reader, each in a process of its own."""
    assert not imported(program) & {*CLIENT, *OTHER_PARTS, "pyarrow.compute"}


def test_the_process_that_commits_batches_does_not_collect_modules() -> None:
    """Spark collects the garbage of this process after each batch, so its modules must be out of the collection."""
    assert "pyspark.sql.types" in imported(SINK)


def test_a_planner_imports_the_calls_about_topics_alone(broker: Broker, topic: str) -> None:
    """The process that plans a stream imports no producer, no consumer and no other call of operators."""
    modules = imported(PLAN % (broker.address, topic, "*"))
    assert set(CLIENT) < modules
    assert not modules & {*OTHER_PARTS, *READING, "ortoo.client.admin.admin", "pyarrow.compute"}


@pytest.mark.parametrize("tags", ["*", "a"])
def test_a_read_does_not_import_pandas(broker: Broker, topic: str, tags: str) -> None:
    """Arrow imports an installed pandas to convert a Python value, which costs a worker more than all other imports."""
    pytest.importorskip("pandas", reason="pandas is not installed; run `make spark-setup`")
    messages = [
        Message(b"%d" % n, "ab"[n % 2] if tags == "a" else None, (f"k{n}",), properties={"n": str(n)})
        for n in range(40 if tags == "a" else 20)
    ]
    send(broker, topic, messages)
    assert "pandas" not in imported(READ % (broker.address, topic, tags))
