"""The documents about Spark: every option is documented, and the tutorial runs unchanged."""

import ast
import inspect
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; run `make spark-setup`")

import pyspark

from ortoo.client import Message
from ortoo.common.process.settings import load
from ortoo.spark.core.columns import COLUMNS
from ortoo.spark.core.read_options import KNOWN as READ_OPTIONS
from ortoo.spark.core.read_options import STREAM_ONLY
from ortoo.spark.demo import wind
from ortoo.spark.pipeline import app as command
from ortoo.spark.pipeline.runtime.settings import PipelineSettings
from ortoo.spark.writing.write_options import COLUMNS as SINK_COLUMNS
from ortoo.spark.writing.write_options import KNOWN as WRITE_OPTIONS
from tests.repo.tree import ROOT
from tests.spark.session import SHORT_LIVED, Broker, java_found

DOCS = ROOT / "docs/spark"
TUTORIAL = (DOCS / "tutorial.md").read_text()

KAFKA_OPTIONS = set(
    re.findall(
        r"\S+",
        """
        kafka.bootstrap.servers kafka.group.id assign subscribe subscribePattern
        startingTimestamp startingOffsetsByTimestamp startingOffsets startingOffsetsByTimestampStrategy
        endingTimestamp endingOffsetsByTimestamp endingOffsets failOnDataLoss kafkaConsumer.pollTimeoutMs
        fetchOffset.numRetries fetchOffset.retryIntervalMs maxOffsetsPerTrigger minOffsetsPerTrigger maxTriggerDelay
        minPartitions maxRecordsPerPartition groupIdPrefix includeHeaders topic
        spark.sql.streaming.kafka.useDeprecatedOffsetFetching
        spark.kafka.consumer.cache.capacity spark.kafka.consumer.cache.timeout
        spark.kafka.consumer.cache.evictorThreadRunInterval spark.kafka.consumer.cache.jmx.enable
        spark.kafka.consumer.fetchedData.cache.timeout spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval
        spark.kafka.producer.cache.timeout spark.kafka.producer.cache.evictorThreadRunInterval
        spark.kafka.clusters.*
            """,
    )
)
"""The options in the guide to Spark's Kafka connector."""


def blocks(language: str, page: str = TUTORIAL) -> list[str]:
    """A page's blocks in one language, in order."""
    return re.findall(rf"```{language}\n(.*?)```", page, re.S)


def named(page: str, heading: str) -> set[str]:
    """The names in the first column of the tables under a heading."""
    section = (DOCS / page).read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def test_every_option_and_column_is_described() -> None:
    """The tables of the documents and of the code name the same things."""
    assert named("reading.md", "Options") == set(READ_OPTIONS)
    assert named("reading.md", "Columns") == {column.name for column in COLUMNS}
    assert named("writing.md", "Options") == set(WRITE_OPTIONS)
    assert named("writing.md", "Columns") == set(SINK_COLUMNS)


def test_the_page_says_which_options_are_for_streams() -> None:
    """The options that a batch read refuses are those marked in the table."""
    rows = re.findall(r"^\| `(\w+)` \| .* \| streams only; ", (DOCS / "reading.md").read_text(), re.M)
    assert set(rows) == set(STREAM_ONLY)


@pytest.mark.long
def test_the_reports_for_spark_are_true(folder: Path) -> None:
    """The programs on the page about push-down print the output shown there, without Ortoo."""
    if not java_found():
        pytest.skip("NO JAVA, so Spark was NOT tested; run `make spark-setup`, which finds or installs Java 17")
    page = (DOCS / "pushdown.md").read_text()
    programs, (printed, error) = blocks("python", page), blocks("text", page)
    assert "ortoo" not in "".join(programs)
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(programs)],
        cwd=folder,
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    version, *lines = done.stdout.splitlines()
    assert version == f"Spark {pyspark.__version__}"
    assert lines == printed.splitlines()[1:]
    assert error.strip() in done.stderr.splitlines()


def test_each_option_of_kafkas_source_has_its_row() -> None:
    """Every documented option of Spark's Kafka connector is on the page, with an existing option of Ortoo."""
    rows = [line.split("|")[1:4] for line in (DOCS / "kafka.md").read_text().splitlines() if line.startswith("| ")][1:]
    theirs = {name for row in rows for name in re.findall(r"`([\w.*]+)`", row[0])}
    assert theirs >= KAFKA_OPTIONS
    columns = {column.name for column in COLUMNS}
    for row in rows:
        assert row[1].strip(), row
        ours = set(re.findall(r"`(\w+)`", row[1]))
        assert ours <= {*READ_OPTIONS, *WRITE_OPTIONS, *columns}, row
        if row[1].strip() == "the same":
            same = set(re.findall(r"`(\w+)`", row[0]))
            assert same <= {*READ_OPTIONS, *WRITE_OPTIONS}, row
        if row[1].strip() == "none":
            assert row[2].strip(), f"{row}: why not?"


def test_the_settings_in_the_documents_are_the_settings_there_are(folder: Path) -> None:
    """The long example has every setting with its default; the tutorial's and the manifest's are accepted."""
    page = (DOCS / "pipeline.md").read_text()
    example = re.findall(r"```toml\n(.*?)```", page, re.S)[0]
    file = folder / "pipeline.toml"
    file.write_text(example)
    loaded = load(PipelineSettings, environ_prefix="X_", environ={}, file=file)
    assert set(loaded.origins.values()) == {"file"} | ({"default"} if "default" in loaded.origins.values() else set())
    unsaid = {name for name, origin in loaded.origins.items() if origin == "default"}
    assert unsaid == {"archive.pattern"}
    manifest = (ROOT / "deploy/k8s/spark/config.yaml").read_text().split("pipeline.toml: |\n")[1]
    for text in (blocks("toml")[0], "\n".join(line.removeprefix("    ") for line in manifest.splitlines())):
        file.write_text(text)
        load(PipelineSettings, environ_prefix="X_", environ={}, file=file)


def test_the_tutorial_runs_as_it_stands(
    spark: Any, broker: Broker, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its programs and commands print the documented output, with a broker of this test.

    The program has a separate Spark; the commands run in the shared one.
    """
    del spark
    broker.client.admin.create_topic("orders")
    with broker.client.producer("orders") as producer:
        texts = ('{"id": %d, "shop": "shop-%d", "euros": %d}' % (n, n % 3, n * 7 % 50) for n in range(1, 201))  # noqa: UP031
        producer.send_many([Message(text.encode()) for text in texts])
    broker.client.admin.create_topic("large-orders")
    environ = os.environ | {
        "ORTOO_ADDRESS": broker.address,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_CONF_DIR": str(folder),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "ORTOO_PIPELINE_SPARK_MASTER": "local[2]",
    }
    defaults = f"spark.driver.extraJavaOptions {SHORT_LIVED}\nspark.sql.shuffle.partitions 2\n"
    (folder / "spark-defaults.conf").write_text(defaults)
    (folder / "orders.py").write_text("\n".join(blocks("python")))
    text = blocks("toml")[0].replace("localhost:8081", broker.address)
    # The shared Spark was started in another folder.
    (folder / "pipeline.toml").write_text(text.replace('"lake/orders"', f'"{folder / "lake/orders"}"'))

    def run(*words: str) -> str:
        done = subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr[-3000:]}"
        return done.stdout

    said = run(sys.executable, "orders.py")
    assert "orders: 200" in said
    assert "large orders: " in said
    jobs = [line.split() for line in blocks("bash")[-1].splitlines() if line.startswith("ortoo-pipeline")]
    outputs = list[str]()
    monkeypatch.chdir(folder)
    for name in ("ORTOO_ADDRESS", "ORTOO_PIPELINE_SPARK_MASTER"):
        monkeypatch.setenv(name, environ[name])
    handler = signal.getsignal(signal.SIGTERM)
    capsys.readouterr()
    for words in jobs:
        assert command.main(words[1:]) == 0, words
        outputs.append(capsys.readouterr().out)
    signal.signal(signal.SIGTERM, handler)
    assert "reconciled: 200 rows" in outputs[0]
    assert "the next run adds only newer rows" in outputs[2]
    assert "archive" in outputs[3]


def test_the_report_over_two_live_topics_is_what_a_batch_finds(spark: Any, broker: Broker, folder: Path) -> None:
    """The windowed join and the custom state of the page give the same rows as a batch."""
    pytest.importorskip("pandas", reason="pandas is not installed; run `make spark-setup`")
    days = [f"2026-01-{day:02} {hour:02}:00:00" for day in (1, 2) for hour in range(24)]
    bodies = {
        "flights": [
            {"origin": origin, "time_hour": at, "dep_delay": float(number * 7 % 60)}
            for number, at in enumerate(days) for origin in ("EWR", "JFK", "LGA") for _ in range(number % 3)
        ],
        "weather": [{"origin": origin, "time_hour": at, "wind_speed": float(number * 5 % 40)}
                    for number, at in enumerate(days) for origin in ("EWR", "JFK")],
    }  # fmt: skip
    late = "2026-02-01 00:00:00"  # closes the windows before it
    bodies["flights"].append({"origin": "EWR", "time_hour": late, "dep_delay": 0.0})
    bodies["weather"].append({"origin": "EWR", "time_hour": late, "wind_speed": 0.0})
    for topic, rows in bodies.items():
        broker.client.admin.create_topic(topic)
        with broker.client.producer(topic) as producer:
            producer.send_many([Message(json.dumps(row).encode()) for row in rows])
    report, live, state = re.findall(r"```python\n(.*?)```", (DOCS / "joins.md").read_text(), re.S)
    _, *of_demo = ast.parse(inspect.getsource(wind.delays_by_wind)).body[0].body  # type: ignore[attr-defined]
    of_page = ast.parse(report).body[-1].body
    assert [*map(ast.dump, of_demo)] == [*map(ast.dump, of_page)]
    names: dict[str, Any] = {"__name__": "__main__", "spark": spark, "checkpoint": str(folder / "checkpoint")}
    report = report.replace('format("ortoo")', f'format("ortoo").option("address", "{broker.address}")')
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    exec(report + live + state, names)
    names["query"].awaitTermination()
    names["late"].awaitTermination()
    for changed in ("spark.sql.streaming.stateStore.providerClass", "spark.sql.shuffle.partitions"):
        spark.conf.unset(changed)
    counted = {row.origin: tuple(row)[1:] for row in spark.table("late").orderBy("flights").collect()}
    delays = {origin: [row["dep_delay"] for row in bodies["flights"] if row["origin"] == origin] for origin in counted}
    assert counted == {origin: (len(each), sum(float(str(d)) > 15 for d in each)) for origin, each in delays.items()}
    assert set(counted) == {"EWR", "JFK", "LGA"}
    found = spark.table("report").collect()
    whole = names["delays_by_wind"](names["topic"](spark.read, "flights"), names["topic"](spark.read, "weather"))
    expected = whole.where(f"window.end < '{late}'").collect()
    assert len(expected) > 8
    assert sorted(map(str, found)) == sorted(map(str, expected))
