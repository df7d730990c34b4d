"""A lake in an object store, and what other readers than Spark find in one."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; run `make spark-setup`")
pytest.importorskip("moto", reason="moto is not installed; run `make spark-setup`")
pytest.importorskip("duckdb", reason="DuckDB is not installed; run `make spark-setup`")
pytest.importorskip("polars", reason="polars is not installed; run `make spark-setup`")

import duckdb
import polars

from ortoo.spark.lake.table import Lake
from ortoo.spark.pipeline.jobs.archive import archive
from ortoo.spark.pipeline.jobs.compact import compact
from ortoo.spark.pipeline.running.settings import ArchiveSettings, CompactSettings, LakeSettings, PipelineSettings
from tests.spark.object_store import BUCKET, object_store
from tests.spark.sending import send, varied
from tests.spark.session import Broker

COUNTS = 'count(*), count(distinct (enode, queue_id, "offset")), sum(octet_length(body)), count(tag)'


def of_duckdb(lake: Lake) -> tuple[int, ...]:
    """The rows, the places, the bytes of all bodies and the tags of a lake, counted by DuckDB."""
    messages = lake.table().to_pyarrow_dataset()
    found = duckdb.sql(f"select {COUNTS} from messages").fetchall()
    assert messages is not None
    return tuple(map(int, found[0]))


def of_polars(lake: Lake) -> tuple[int, ...]:
    """The same, counted by polars."""
    messages = polars.scan_delta(lake.path, storage_options=dict(lake.storage))
    column = polars.col
    found = messages.select(
        rows=polars.len(),
        places=polars.struct("enode", "queue_id", "offset").n_unique(),
        size=column("body").bin.size().sum(),
        tags=column("tag").count(),
    )
    return tuple(map(int, found.collect().row(0)))


@pytest.mark.parametrize("where", ["folder", "object store"])
def test_a_lake_is_the_same_for_every_reader_wherever_it_is(
    spark: Any, broker: Broker, topic: str, folder: Path, where: str
) -> None:
    """B-170: the pipeline fills, checks and compacts a lake behind S3, too; DuckDB and polars count what was sent."""
    sent = varied(1_000)
    expected = (len(sent), len(sent), sum(len(each.body) for each in sent), sum(each.tag is not None for each in sent))
    said: list[str] = []
    with object_store() as store:
        path, options = (f"s3://{BUCKET}/{topic}", store) if where == "object store" else (str(folder / "lake"), {})
        settings = PipelineSettings(
            address=broker.address,
            lake=LakeSettings(path, storage_options=tuple(f"{name}={value}" for name, value in options.items())),
            archive=ArchiveSettings(
                topics=(topic,), max_offsets_per_trigger=400, checkpoint_path=str(folder / "checkpoint")
            ),
            compact=CompactSettings(open_days=0),
        )
        for part in (sent[:600], sent[600:]):
            send(broker, topic, part)
            outcome = archive(spark, settings, said.append, once=True)
            assert outcome is not None
            assert outcome.right
        assert f"reconciled: {len(sent):,} rows from 8 queues, each message once" in said
        lake = settings.the_lake()
        assert of_duckdb(lake) == of_polars(lake) == expected
        before, after = compact(settings, said.append)
        assert before > after
        assert of_duckdb(lake) == of_polars(lake) == expected
