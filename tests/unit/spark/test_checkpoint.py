"""The offsets of a streaming query in its checkpoint."""

import json
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; run `make spark-setup`")

from ortoo.client import Queue
from ortoo.spark.core.offsets import SourceOffsets
from ortoo.spark.lake.checkpoint import Checkpoint


def at(offset: int, start: SourceOffsets | None = None) -> SourceOffsets:
    """The offsets of one queue."""
    return SourceOffsets({Queue("orders", "enode-0", 0): offset}, {"orders": 7}, start)


@pytest.mark.parametrize("start", [at(3), None])
def test_the_start_is_known_until_its_batch_is_deleted(tmp_path: Path, start: SourceOffsets | None) -> None:
    """It is in the end of a first batch that has messages, and it is the end of a first batch that is empty."""
    (tmp_path / "offsets").mkdir()
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.start() is None
    assert checkpoint.oldest_known() is None
    for batch_id, end in enumerate((at(10, start), at(20))):
        (tmp_path / "offsets" / str(batch_id)).write_text(f"v1\n{{}}\n{json.dumps(end.to_json())}\n")
    assert checkpoint.start() == checkpoint.oldest_known() == (start or at(10))
    assert checkpoint.before(0) == (start or SourceOffsets())
    assert checkpoint.planned(0) == checkpoint.before(1) == at(10)
    assert checkpoint.planned(0).start is None
    (tmp_path / "offsets" / "0").unlink()
    assert checkpoint.start() is None
    assert checkpoint.oldest_known() == at(20)
    assert checkpoint.before(1) == SourceOffsets()
