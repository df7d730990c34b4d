"""Lakes without a running Spark: later columns, statistics, notes, stores behind a URL."""

import datetime
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; run `make spark-setup`")
pytest.importorskip("deltalake", reason="deltalake is not installed; run `make spark-setup`")

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from ortoo.common.errors import Conflict, Invalid
from ortoo.spark.lake.lake_sink import LakeWriter, lake_schema, statistics
from ortoo.spark.lake.table import Lake
from ortoo.spark.pipeline.jobs import compact as compacting
from ortoo.spark.pipeline.jobs.compact import compact
from ortoo.spark.pipeline.runtime.settings import LakeSettings, PipelineSettings

UTC = datetime.UTC
FIELDS = [StructField("stored_at", TimestampType()), StructField("offset", LongType())]
NARROW, WIDE = StructType(FIELDS), StructType([*FIELDS, StructField("tag", StringType())])
FORMATS = pytest.mark.parametrize("lake_format", ["delta", "parquet"])


def write(lake: Lake, schema: StructType, batch_id: int, changes: str = "refuse") -> None:
    """One batch of two days, as Spark would write it."""
    writer = LakeWriter(lake, schema)
    days = [datetime.datetime(2026, 1, day, 12, 0, 0, 250_000, UTC) for day in (1, 2)]
    columns: dict[str, Any] = {"stored_at": days, "offset": [batch_id * 2, batch_id * 2 + 1], "tag": ["a", None]}
    lake.create(lake_schema(writer._rows), changes)
    rows = pa.RecordBatch.from_pydict({name: columns[name] for name in schema.names}, schema=writer._rows)
    for _ in range(2):  # a repeated batch changes nothing
        writer.commit([writer.write(iter([rows]))], batch_id)


@FORMATS
def test_columns_of_a_lake_may_be_null(tmp_path: Path, lake_format: str) -> None:
    """A read that declares columns as NOT NULL continues a lake of an earlier snapshot, which has no such columns."""
    lake = Lake(str(tmp_path / "lake"), lake_format)
    write(lake, StructType([StructField(field.name, field.dataType, nullable=False) for field in FIELDS]), 0)
    assert all(field.nullable for path in lake.file_paths() for field in pq.read_schema(path))
    if lake_format == "delta":
        assert all(field.nullable for field in lake.table().schema().fields)


@FORMATS
def test_columns_that_come_later_are_merged_or_refused(tmp_path: Path, lake_format: str) -> None:
    """A new column is an error with the setting, or it becomes a column of the lake."""
    lake = Lake(str(tmp_path / "lake"), lake_format)
    write(lake, NARROW, 0)
    with pytest.raises(Invalid, match=r"no column tag; set schema_changes = merge"):
        write(lake, WIDE, 1)
    write(lake, WIDE, 1, "merge")
    write(lake, NARROW, 2)  # a column that is left out is null
    other = StructType([FIELDS[0], StructField("offset", StringType())])
    with pytest.raises(Invalid, match="column offset has type"):
        lake.create(lake_schema(LakeWriter(lake, other)._rows), "merge")
    paths = lake.file_paths()
    tables = [pq.read_table(path.removeprefix("file://"), partitioning=None) for path in paths]
    table = pa.concat_tables(tables, promote_options="default")
    assert sorted(zip(table["offset"].to_pylist(), table["tag"].to_pylist(), strict=True)) == [
        (0, None), (1, None), (2, "a"), (3, None), (4, None), (5, None)
    ]  # fmt: skip
    if lake_format == "delta":
        assert {field.name for field in lake.table().schema().fields} == {"stored_at", "offset", "dt", "tag"}


def test_a_lake_may_lie_behind_a_url_and_tells_what_is_in_its_files(tmp_path: Path) -> None:
    """A Delta table by URL, as in an object store; each file has its row count and bounds."""
    place = (tmp_path / "store").as_uri()
    (tmp_path / "store").mkdir()
    lake = Lake(place, "delta", (("timeout", "30s"),))
    write(lake, WIDE, 0)
    actions = lake.table().get_add_actions(flatten=True)
    rows = pa.table(actions).to_pylist()
    assert sorted((row["partition.dt"], row["num_records"], row["min.offset"], row["max.offset"]) for row in rows) == [
        ("2026-01-01", 1, 0, 0), ("2026-01-02", 1, 1, 1)
    ]  # fmt: skip
    assert {row["null_count.tag"] for row in rows} == {0, 1}
    assert lake.read_note("start.json") is None
    for text in ("one", "two"):
        lake.write_note("start.json", text)
        assert lake.read_note("start.json") == text
    with pytest.raises(Invalid, match="set format = delta"):
        Lake(place, "parquet")


def test_bounds_of_times_are_rounded_outwards(tmp_path: Path) -> None:
    """Delta keeps milliseconds, and the bounds must include all values of a file."""
    moment = datetime.datetime(2026, 1, 1, 0, 0, 0, 1_234, UTC)
    file = tmp_path / "f.parquet"
    pq.write_table(pa.table({"at": pa.array([moment], pa.timestamp("us", tz="UTC")), "body": [b"x"]}), file)
    found = json.loads(statistics(pq.read_metadata(file)))
    assert (found["minValues"], found["maxValues"]) == (
        {"at": "2026-01-01T00:00:00.001Z"}, {"at": "2026-01-01T00:00:00.002Z"}
    )  # fmt: skip
    assert found["nullCount"] == {"at": 0, "body": 0}


@FORMATS
def test_a_batch_that_comes_again_with_other_messages_is_refused(tmp_path: Path, lake_format: str) -> None:
    """A checkpoint that was restored from an old copy splits its batches differently; new messages are not dropped."""
    lake = Lake(str(tmp_path / "lake"), lake_format)
    for batch_id in range(3):
        write(lake, NARROW, batch_id)
    writer, day = LakeWriter(lake, NARROW), datetime.datetime(2026, 1, 2, 12, tzinfo=UTC)
    for offsets in ([3], [3, 5]):  # stored messages, split differently, are no loss
        again = pa.RecordBatch.from_pydict({"stored_at": [day] * len(offsets), "offset": offsets}, schema=writer._rows)
        writer.commit([writer.write(iter([again]))], 1)
    more = pa.RecordBatch.from_pydict({"stored_at": [day] * 3, "offset": [3, 5, 7]}, schema=writer._rows)
    other_day = pa.RecordBatch.from_pydict({"stored_at": [day.replace(day=3)], "offset": [7]}, schema=writer._rows)
    for batch_id, rows in ((1, more), (2, more), (2, other_day)):
        with pytest.raises(Conflict, match="lacks 1 messages of the repeated batch: the checkpoint is older"):
            writer.commit([writer.write(iter([rows]))], batch_id)


@FORMATS
def test_dates_are_those_of_utc_whatever_the_zone_of_the_session(tmp_path: Path, lake_format: str) -> None:
    """Spark's times have the session's zone; neither folders nor types of columns depend on it."""
    lake = Lake(str(tmp_path / "lake"), lake_format)
    writer = LakeWriter(lake, NARROW)
    lake.create(lake_schema(writer._rows))
    moment = datetime.datetime(2026, 1, 2, 1, tzinfo=UTC)
    for batch_id, zone in enumerate(("America/New_York", "UTC", "Asia/Tokyo")):
        times = pa.array([moment], pa.timestamp("us", zone))
        rows = pa.RecordBatch.from_arrays([times, pa.array([batch_id])], names=["stored_at", "offset"])
        writer.commit([writer.write(iter([rows]))], batch_id)
    assert {Path(path).parent.name for path in lake.file_paths()} == {"dt=2026-01-02"}
    lake.create(lake_schema(writer._rows))  # as the next run of an archive does


def test_compacting_removes_files_behind_what_replaces_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut during it loses nothing: the new file and its name are synced before the first old one is deleted."""
    settings = PipelineSettings(lake=LakeSettings(path=str(tmp_path / "lake"), format="parquet"))
    lake = settings.open_lake()
    for batch_id in range(2):
        write(lake, NARROW, batch_id)
    done = list[str]()
    monkeypatch.setattr(compacting, "_KEY", ("offset",))
    monkeypatch.setattr(os, "fsync", lambda descriptor: done.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    unlink = Path.unlink

    def removed(path: Path) -> None:
        done.append(f"gone {path}")
        unlink(path)

    monkeypatch.setattr(Path, "unlink", removed)
    old = sorted((tmp_path / "lake" / "dt=2026-01-01").glob("*.parquet"))
    assert compact(settings, lambda text: None) == (4, 2)
    new, folder, *gone = done[:4]
    assert re.fullmatch(r".*/dt=2026-01-01/_compacted-\w+\.new", new)
    assert [folder, *gone] == [str(old[0].parent), *(f"gone {file}" for file in old)]


def test_what_a_topic_holds_that_was_created_again_is_no_repetition(tmp_path: Path) -> None:
    """Its messages have the positions of older ones on the same day; compacting drops only true duplicates."""
    settings = PipelineSettings(lake=LakeSettings(path=str(tmp_path / "lake"), format="parquet"))
    lake = settings.open_lake()
    names = ("topic", "enode", "queue_id", "offset", "stored_at", "body")
    folder = tmp_path / "lake" / "dt=2026-01-02"
    folder.mkdir(parents=True)
    before, after = (datetime.datetime(2026, 1, 2, hour, tzinfo=UTC) for hour in (1, 2))
    for number, (moment, body) in enumerate(((before, b"old"), (after, b"new"), (after, b"new"))):
        row = dict(zip(names, ("orders", "enode-0", 0, 0, moment, body), strict=True))
        pq.write_table(pa.Table.from_pylist([row]), folder / f"{number}.parquet")
    assert compact(settings, lambda text: None) == (3, 1)
    table = pq.read_table(lake.file_paths()[0], partitioning=None)
    assert sorted(table["body"].to_pylist()) == [b"new", b"old"]
