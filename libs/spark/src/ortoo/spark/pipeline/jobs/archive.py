"""archive: writes topics into the lake, as a stream that is resumed from its checkpoint."""

import json
from pathlib import Path
from typing import Any

from ortoo.common.errors import Invalid
from ortoo.spark import register
from ortoo.spark.core.columns import BY_NAME, COLUMNS
from ortoo.spark.core.offsets import SourceOffsets
from ortoo.spark.lake.lake_sink import LakeDataSource, lake_schema
from ortoo.spark.lake.table import Lake
from ortoo.spark.pipeline.jobs.reconciliation import Reconciliation, counts, counts_by_date, reconcile
from ortoo.spark.pipeline.runtime.progress import ProgressLines, Say
from ortoo.spark.pipeline.runtime.settings import PipelineSettings

REQUIRED_COLUMNS = ("topic", "enode", "queue_id", "offset", "stored_at", "body")
"""Columns that every lake needs for checks and replays."""
_POLL_S = 0.5


def archive(spark: Any, settings: PipelineSettings, say: Say, *, once: bool) -> Reconciliation | None:
    """Archive stored messages into the lake, then check the lake; without `once`, run until the query is stopped.

    Errors: Invalid for wrong settings, or the error of the query.
    """
    job, lake = settings.archive, settings.open_lake()
    frame = _messages(spark, settings)
    from pyspark.sql.pandas.types import to_arrow_schema

    lake.create(lake_schema(to_arrow_schema(frame.schema, timezone="UTC")), settings.lake.schema_changes)
    spark.dataSource.register(LakeDataSource)
    writer = (
        frame.writeStream.format("ortoo-lake")
        .queryName("archive")
        .option("path", lake.path)
        .option("lakeFormat", lake.format)
        .option("storageOptions", json.dumps(dict(lake.storage)))
        .option("checkpointLocation", str(settings.checkpoint))
    )
    trigger = {"availableNow": True} if once else {"processingTime": f"{job.interval_s} seconds"}
    query = writer.trigger(**trigger).start()
    say(f"archiving {', '.join(job.topics) or job.pattern} into {lake.format} lake {lake.path}")
    progress_lines = ProgressLines(say)
    try:
        while not query.awaitTermination(_POLL_S):
            progress_lines.print_new(query)
            recorded_start(lake, settings.checkpoint)
    finally:
        query.stop()
    progress_lines.print_new(query)
    return check(spark, settings, say)


def check(spark: Any, settings: PipelineSettings, say: Say) -> Reconciliation | None:
    """Compare the lake with the offsets that the query has read, and write a report to a folder beside the lake.

    Returns None if no batch was committed yet.
    """
    lake = settings.open_lake()
    start, end = recorded_start(lake, settings.checkpoint), committed_offsets(settings.checkpoint)
    if start is None or end is None:
        say("nothing has been archived yet")
        return None
    counted = counts_by_date(lake) if lake.is_remote else counts(lake.read(spark)) if lake.file_paths() else {}
    outcome = reconcile(start, end, counted)
    outcome.write(settings.output_folder("reports", "") / "reconciliation.json")
    for text in outcome.lines():
        say(text)
    return outcome


def _messages(spark: Any, settings: PipelineSettings) -> Any:
    job = settings.archive
    if bool(job.topics) == bool(job.pattern):
        raise Invalid("expected either `topics` or `pattern` in the table [archive]", field="archive.topics")
    columns = list(job.columns) or [column.name for column in COLUMNS]
    if missing := [name for name in REQUIRED_COLUMNS if name not in columns]:
        raise Invalid(f"missing columns {', '.join(missing)}; a lake needs these columns", field="archive.columns")
    if unknown := [name for name in columns if name not in BY_NAME]:
        raise Invalid(f"there is no column {unknown[0]!r}", field="archive.columns")
    register(spark)
    options = {
        "address": settings.address,
        "subscribe": ",".join(job.topics),
        "subscribePattern": job.pattern,
        "startingOffsets": job.starting_offsets,
        "columns": ",".join(columns),
        "maxOffsetsPerTrigger": str(job.max_offsets_per_trigger),
        "consumerGroup": job.consumer_group,
        "failOnDataLoss": str(job.fail_on_data_loss).lower(),
    }
    return spark.readStream.format("ortoo").options(**{name: value for name, value in options.items() if value}).load()


def committed_offsets(checkpoint: Path) -> SourceOffsets | None:
    """The offsets at which the newest committed batch in the checkpoint ends; None before the first commit."""
    committed = _numbers(checkpoint / "commits")
    planned = _numbers(checkpoint / "offsets")
    known = [number for number in committed if number in planned]
    return _offsets(checkpoint, max(known)) if known else None


def recorded_start(lake: Lake, checkpoint: Path) -> SourceOffsets | None:
    """The offsets at which the query started; None before its first batch.

    The first call stores them in the lake, because Spark deletes old batches from the checkpoint.
    """
    if (note := lake.read_note("start.json")) is not None:
        return SourceOffsets.of_json(json.loads(note))
    planned = _numbers(checkpoint / "offsets")
    if 0 not in planned:
        return None
    start = _offsets(checkpoint, 0)
    lake.write_note("start.json", json.dumps(start.to_json()))
    return start


def _numbers(folder: Path) -> set[int]:
    return {int(file.name) for file in folder.glob("*") if file.name.isdecimal()}


def _offsets(checkpoint: Path, number: int) -> SourceOffsets:
    """Read a checkpoint file: a version, a line about the batch, and the offsets of the only source as JSON."""
    lines = (checkpoint / "offsets" / str(number)).read_text().splitlines()
    return SourceOffsets.of_json(json.loads(lines[2]))
