"""Lakes and checkpoints of earlier versions continue: the archive adds newer messages, and a replay has all of them."""

import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; run `make spark-setup`")
pytest.importorskip("deltalake", reason="deltalake is not installed; run `make spark-setup`")

from ortoo.spark.pipeline.jobs.archive import archive
from ortoo.spark.pipeline.jobs.replay import replay
from ortoo.spark.pipeline.runtime.settings import ArchiveSettings, LakeSettings, PipelineSettings, ReplaySettings
from tests.repo.tree import ROOT
from tests.spark.sending import numbered, send, stored
from tests.spark.session import broker_of

SAMPLE = ROOT / "tests/golden/lakes/366d21ae"
TOPIC, BACK = "orders", "orders-back"
OLD, NEW = 40, 25


@pytest.mark.parametrize(("lake_format", "changes"), [("delta", "refuse"), ("parquet", "merge")])
def test_a_lake_of_an_earlier_version_continues(spark: Any, folder: Path, lake_format: str, changes: str) -> None:
    """The lake has each old and each new message once, and a replay has all of them."""
    sample = folder / "sample"
    shutil.copytree(SAMPLE, sample)
    with broker_of(sample, enodes=1) as broker:
        # The answer comes when the snode knows this topic, and thus that the enode is alive.
        broker.client.admin.ensure_topic(BACK, queue_count=1)
        send(broker, TOPIC, numbered(NEW))
        settings = PipelineSettings(
            address=broker.address,
            lake=LakeSettings(str(sample / lake_format), lake_format, schema_changes=changes),
            archive=ArchiveSettings(topics=(TOPIC,)),
            replay=ReplaySettings(topic=BACK, create_queue_count=1),
        )
        lines: list[str] = []
        outcome = archive(spark, settings, lines.append, once=True)
        assert outcome is not None
        assert outcome.is_complete, lines
        assert any("no column" in line for line in lines) == (changes == "refuse"), lines
        rows = settings.open_lake().read(spark).select("enode", "queue_id", "offset", "body").collect()
        assert len(rows) == len({tuple(row[:3]) for row in rows}) == OLD + NEW
        assert {bytes(row.body) for row in rows} >= {b"%d" % number for number in range(NEW)}
        assert replay(spark, settings, lines.append) == OLD + NEW
        assert replay(spark, settings, lines.append) == 0
        assert stored(broker, BACK) == OLD + NEW
