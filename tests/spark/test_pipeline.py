"""The jobs: archive, compact, replay, trace and lag, resumed, repeated and checked."""

import datetime
import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; run `make spark-setup`")
pytest.importorskip("duckdb", reason="DuckDB is not installed; run `make spark-setup`")
pytest.importorskip("polars", reason="polars is not installed; run `make spark-setup`")

from ortoo.client import ConsumerSettings, Message, Queue
from ortoo.spark.core.offsets import SourceOffsets
from ortoo.spark.lake.table import Lake
from ortoo.spark.pipeline.jobs.archive import archive, check
from ortoo.spark.pipeline.jobs.compact import compact
from ortoo.spark.pipeline.jobs.lag import lag
from ortoo.spark.pipeline.jobs.reconciliation import QueueCount, reconcile
from ortoo.spark.pipeline.jobs.replay import message_columns, replay
from ortoo.spark.pipeline.jobs.trace import trace
from ortoo.spark.pipeline.runtime.settings import (
    ArchiveSettings,
    CompactSettings,
    LakeSettings,
    PipelineSettings,
    ReplaySettings,
)
from tests.spark.other_readers import expected_counts, of_duckdb, of_polars
from tests.spark.sending import numbered, send, varied
from tests.spark.session import Broker

FORMATS = pytest.mark.parametrize("lake_format", ["delta", "parquet"])
UNREACHABLE = 'address = "127.0.0.1:1"\nunavailable_timeout_ms = 1000'


@pytest.fixture
def settings(broker: Broker, topic: str, folder: Path, request: pytest.FixtureRequest) -> PipelineSettings:
    """A lake in the test's folder, in the format of the test's parameter."""
    kind = getattr(request.node, "callspec", None)
    lake_format = kind.params.get("lake_format", "delta") if kind else "delta"
    return PipelineSettings(
        address=broker.address,
        lake=LakeSettings(str(folder / "lake"), lake_format),
        archive=ArchiveSettings(topics=(topic,), max_offsets_per_trigger=400, consumer_group=f"archive-{topic}"[:100]),
        compact=CompactSettings(open_days=0),
        replay=ReplaySettings(topic=f"{topic[:90]}-back", where="`offset` % 2 = 0", create_queue_count=2, tasks=2),
    )


def bodies(frame: Any) -> list[bytes]:
    """All bodies of a frame, sorted."""
    return sorted(bytes(row.body) for row in frame.select("body").collect())


def lose_commit(settings: PipelineSettings) -> None:
    """Simulate a crash of Spark after the sink's commit and before its own."""
    commits = settings.checkpoint / "commits"
    newest = max(commits.glob("[0-9]*"), key=lambda file: int(file.name))
    newest.unlink()
    (commits / f".{newest.name}.crc").unlink(missing_ok=True)


@FORMATS
def test_an_archive_holds_every_message_once_however_often_it_is_run(
    spark: Any, broker: Broker, topic: str, settings: PipelineSettings, lake_format: str
) -> None:
    """Check 7 and 16: runs continue where the last one ended, and a repeated batch adds nothing."""
    said: list[str] = []
    lake = Lake(settings.lake.path, lake_format)
    sent = 0
    for count in (500, 300):
        send(broker, topic, numbered(count, sent))
        sent += count
        outcome = archive(spark, settings, said.append, once=True)
        assert outcome is not None
        assert (outcome.is_complete, outcome.rows) == (True, sent)
    lose_commit(settings)
    outcome = archive(spark, settings, said.append, once=True)
    assert outcome is not None
    assert (outcome.is_complete, outcome.rows) == (True, sent)
    assert bodies(lake.read(spark)) == sorted(b"%d" % n for n in range(sent))
    assert any("batch 0: 400 rows" in line for line in said), said
    assert said[2].endswith("lag 0"), said
    assert any("reconciled: 800 rows from 8 queues" in line for line in said)
    report = json.loads((Path(f"{settings.lake.path}_reports") / "reconciliation.json").read_text())
    assert report["right"] is True
    assert broker.client.admin.describe_lag(settings.archive.consumer_group, topic).lag_messages == 0


@pytest.mark.parametrize("mark", ["", "x-replayed-from"])
def test_a_replay_leaves_out_the_properties_that_only_servers_write(spark: Any, mark: str) -> None:
    """An archived retry or dead letter is replayed with the properties of its producer alone."""
    written = {"RETRY_TOPIC": "t", "RECONSUME_TIMES": "1", "ORIGIN_ENODE": "e", "DLQ_REASON": "attempts"}
    rows = [(b"a", {"k": "v", **written}), (b"b", {"k": "DLQ_"}), (b"c", None)]
    frame = spark.createDataFrame(rows, "body binary, properties map<string,string>").selectExpr(
        "body", "properties", "'t' as topic", "'e' as enode", "0 as queue_id", "1 as `offset`", "now() as stored_at"
    )
    sent = frame.selectExpr(*message_columns(frame.columns, mark)).collect()
    marked = {mark: "t/e/0/1"} if mark else {}
    assert [row.properties for row in sent] == [{"k": "v", **marked}, {"k": "DLQ_", **marked}, marked]


@FORMATS
def test_an_archive_that_is_compacted_and_replayed_is_the_same_again(
    spark: Any, broker: Broker, topic: str, settings: PipelineSettings, lake_format: str
) -> None:
    """Check 16: archive, compact, replay to a new topic, archive that. The bodies are equal.

    The same job again adds nothing. DuckDB and polars count the sent messages in a Delta lake.
    """
    sent = varied(700)
    send(broker, topic, sent)
    said: list[str] = []
    archive(spark, settings, said.append, once=True)
    lake = Lake(settings.lake.path, lake_format)
    before = bodies(lake.read(spark))
    assert len(before) == len(sent)

    def counted_elsewhere() -> bool:
        return lake_format != "delta" or of_duckdb(lake) == of_polars(lake) == expected_counts(sent)

    assert counted_elsewhere()
    compact(settings, said.append)
    assert counted_elsewhere()
    assert set(Counter(Path(path).parent for path in lake.file_paths()).values()) == {1}
    assert bodies(lake.read(spark)) == before
    outcome = check(spark, settings, said.append)
    assert outcome is not None
    assert outcome.is_complete

    count = replay(spark, replace(settings, replay=replace(settings.replay, dry_run=True)), said.append)
    assert replay(spark, settings, said.append) == count
    assert replay(spark, settings, said.append) == 0
    assert "was done before and the lake has no newer rows, so nothing was added" in said[-1]
    again = replace(
        settings,
        lake=LakeSettings(f"{settings.lake.path}-back", lake_format),
        archive=ArchiveSettings(topics=(settings.replay.topic,)),
    )
    outcome = archive(spark, again, said.append, once=True)
    assert outcome is not None
    assert (outcome.is_complete, outcome.rows) == (True, count)
    back = Lake(again.lake.path, lake_format).read(spark)
    assert bodies(back) == bodies(lake.read(spark).where("`offset` % 2 = 0"))
    row = back.first()
    assert row.properties["x-replayed-from"].startswith(f"{topic}/enode-")
    by_group = back.where("message_group is not null").orderBy("enode", "queue_id", "offset").collect()
    places: dict[str, list[int]] = {}
    for row in by_group:
        places.setdefault(row.message_group, []).append(int(row.properties["x-replayed-from"].rpartition("/")[2]))
    assert all(offsets == sorted(offsets) for offsets in places.values())


def test_a_copy_keeps_the_columns_of_its_original_and_expires_with_it(
    spark: Any, broker: Broker, topic: str, settings: PipelineSettings
) -> None:
    """An archive stores every column. A message of the replay whose expiry time has passed reaches no group."""
    lasting = Message(
        b"lasting",
        "tag",
        ("key",),
        message_group="g",
        priority=3,
        born_at_ms=1_700_000_000_001,
        born_host="10.0.0.1",
        trace_context=f"00-{1:032x}-{1:016x}-01",
        expire_at_ms=4_000_000_000_000,
    )
    sent = [
        Message(b"expired", message_group="g", born_at_ms=1_700_000_000_000, expire_at_ms=1_700_000_060_000),
        lasting,
        Message(b"eternal", message_group="g", born_at_ms=1_700_000_000_002),
    ]
    send(broker, topic, sent)
    said: list[str] = []
    outcome = archive(spark, settings, said.append, once=True)
    assert outcome is not None
    assert outcome.rows == 3
    everything = replace(settings, replay=replace(settings.replay, where="", mark_property=""))
    assert replay(spark, everything, said.append) == 3
    copies = settings.replay.topic
    options = {"address": broker.address, "subscribe": copies, "columns": "body,expire_at,priority"}
    rows = spark.read.format("ortoo").options(**options).load().orderBy("body").collect()
    times = [row.expire_at and int(row.expire_at.replace(tzinfo=datetime.UTC).timestamp() * 1000) for row in rows]
    assert times == [None, 1_700_000_060_000, 4_000_000_000_000]
    assert [row.priority for row in rows] == [None, None, 3]
    with broker.client.consumer("readers", copies, ConsumerSettings(from_beginning=True)) as consumer:
        received = [message.message() for message in islice(consumer, 2)]
    assert sorted(received, key=lambda message: message.body) == [sent[2], lasting]


def test_reports_are_pages_with_pictures(
    spark: Any, broker: Broker, topic: str, settings: PipelineSettings, folder: Path
) -> None:
    """Trace and lag write a page with a picture, and tables for programs."""
    send(broker, topic, numbered(300))
    said: list[str] = []
    archive(spark, settings, said.append, once=True)
    (row,) = trace(spark, settings, said.append)
    assert (row.topic, row.messages) == (topic, 300)
    assert 0 <= row.p50 <= row.p99 <= row.slowest
    with broker.client.consumer("slow", topic, ConsumerSettings(from_beginning=True)) as consumer:
        for message in consumer:
            consumer.ack(message)
            break
    lag(settings, said.append)
    moments = {(m.group, m.topic): m for m in lag(settings, said.append)}
    assert moments["slow", topic].lag < 300
    assert moments[settings.archive.consumer_group, topic].lag == 0
    reports = Path(f"{settings.lake.path}_reports")
    for name in ("trace.html", "trace.png", "trace.csv", "lag.html", "lag.png", "lag.csv"):
        assert (reports / name).stat().st_size > 100, name
    assert topic in (reports / "trace.html").read_text()


def test_views_show_groups_and_deliveries(spark: Any, broker: Broker, topic: str) -> None:
    """Lag per group and queue, and queues of retries and dead letters, as tables."""
    send(broker, topic, numbered(10))
    with broker.client.consumer(f"g-{topic}", topic, ConsumerSettings(from_beginning=True)) as consumer:
        for batch in consumer.batches():
            consumer.ack(batch)
            break
    source = spark.read.format("ortoo").options(address=broker.address)
    groups = source.option("view", "groups").option("groups", f"g-{topic}").option("subscribe", topic).load()
    rows = groups.collect()
    assert {(row.group, row.topic) for row in rows} == {(f"g-{topic}", topic)}
    assert sum(row.end_offset for row in rows) == 10
    deliveries = spark.read.format("ortoo").options(address=broker.address, view="deliveries").load()
    assert set(deliveries.columns) >= {"group", "state", "messages"}
    assert deliveries.where("messages < 0").count() == 0


def test_differences_are_counted_queue_by_queue() -> None:
    """Missing and duplicate rows are distinguished, even when the numbers cancel out."""
    a, b = Queue("t", "e", 0), Queue("t", "e", 1)
    start, end = SourceOffsets({a: 10, b: 0}), SourceOffsets({a: 20, b: 5})
    held = {a: QueueCount(10, 8, 10), b: QueueCount(5, 5, 0)}
    outcome = reconcile(start, end, held)
    assert not outcome.is_complete
    assert [(check.missing, check.duplicates) for check in outcome.checks] == [(2, 2), (0, 0)]
    assert next(iter(outcome.lines())).startswith("DIFFERENT: queue 0 of t on e, offsets 10 to 20: 2 missing, 2 dup")


@pytest.mark.parametrize(
    ("job", "text", "code", "said"),
    [
        ("lag", 'addres = "x"', 2, "did you mean address"),
        ("archive", "", 2, "missing path of the lake"),
        ("lag", f'{UNREACHABLE}\n[lag]\noutput_path = "FOLDER"', 1, "no answer from 127.0.0.1:1"),
    ],
)
def test_exit_codes_tell_wrong_settings_from_failures(folder: Path, job: str, text: str, code: int, said: str) -> None:
    """0 done, 1 failed, 2 wrong settings, 3 different; the reason is one line."""
    config = folder / "pipeline.toml"
    config.write_text(text.replace("FOLDER", str(folder)))
    command = [sys.executable, "-m", "ortoo.spark.pipeline", job, "--config", str(config), "--once"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    reason = [line for line in done.stderr.strip().splitlines() if not line.startswith("{")]  # without log lines
    assert len(reason) == 1
