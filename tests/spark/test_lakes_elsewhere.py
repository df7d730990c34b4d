"""A lake in an object store."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; run `make spark-setup`")
pytest.importorskip("moto", reason="moto is not installed; run `make spark-setup`")
pytest.importorskip("duckdb", reason="DuckDB is not installed; run `make spark-setup`")
pytest.importorskip("polars", reason="polars is not installed; run `make spark-setup`")

from ortoo.spark.pipeline.jobs.archive import archive
from ortoo.spark.pipeline.jobs.compact import compact
from ortoo.spark.pipeline.runtime.settings import ArchiveSettings, CompactSettings, LakeSettings, PipelineSettings
from tests.spark.object_store import BUCKET, object_store
from tests.spark.other_readers import expected_counts, of_duckdb, of_polars
from tests.spark.sending import send, varied
from tests.spark.session import Broker


def test_a_lake_in_an_object_store_is_the_same_for_every_reader(
    spark: Any, broker: Broker, topic: str, folder: Path
) -> None:
    """The pipeline fills, checks and compacts a lake behind S3; DuckDB and polars count the sent messages."""
    sent = varied(1_000)
    said: list[str] = []
    with object_store() as store:
        settings = PipelineSettings(
            address=broker.address,
            lake=LakeSettings(
                f"s3://{BUCKET}/{topic}", storage_options=tuple(f"{name}={value}" for name, value in store.items())
            ),
            archive=ArchiveSettings(
                topics=(topic,), max_offsets_per_trigger=400, checkpoint_path=str(folder / "checkpoint")
            ),
            compact=CompactSettings(open_days=0),
        )
        for part in (sent[:600], sent[600:]):
            send(broker, topic, part)
            outcome = archive(spark, settings, said.append, once=True)
            assert outcome is not None
            assert outcome.is_complete
        assert f"reconciled: {len(sent):,} rows from 8 queues, each message once" in said
        lake = settings.open_lake()
        assert of_duckdb(lake) == of_polars(lake) == expected_counts(sent)
        before, after = compact(settings, said.append)
        assert before > after
        assert of_duckdb(lake) == of_polars(lake) == expected_counts(sent)
