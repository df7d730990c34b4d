"""archive: writes topics into the lake, as a stream that is resumed from its checkpoint."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ortoo.common.errors import Conflict, Invalid
from ortoo.spark import register
from ortoo.spark.core.columns import BY_NAME, COLUMNS
from ortoo.spark.core.link import link_to
from ortoo.spark.core.offsets import SourceOffsets
from ortoo.spark.core.read_options import parse
from ortoo.spark.lake.accounts import LakeAccount, LakeAccounts, owned_by_other
from ortoo.spark.lake.checkpoint import Checkpoint
from ortoo.spark.lake.lake_sink import LakeDataSource, lake_schema
from ortoo.spark.pipeline.jobs.reconciliation import Reconciliation, counts, counts_by_date, reconcile
from ortoo.spark.pipeline.runtime.progress import ProgressLines, Say
from ortoo.spark.pipeline.runtime.settings import PipelineSettings
from ortoo.spark.reading.topic_state import current_state

REQUIRED_COLUMNS = ("topic", "enode", "queue_id", "offset", "stored_at", "body")
"""Columns that every lake needs for checks and replays."""
_POLL_S = 0.5


def archive(spark: Any, settings: PipelineSettings, say: Say, *, once: bool) -> Reconciliation | None:
    """Archive stored messages into the lake, then check the lake; without `once`, run until the query is stopped.

    Errors: Invalid for wrong settings, or the error of the query.
    """
    job, lake = settings.archive, settings.open_lake()
    _check(settings)
    continued = _accounts_to_continue(settings)
    frame = _messages(spark, settings, _columns(settings, say), _starting_offsets(settings, continued))
    from pyspark.sql.pandas.types import to_arrow_schema

    lake.create(lake_schema(to_arrow_schema(frame.schema, timezone="UTC")), settings.lake.schema_changes)
    LakeAccounts(lake).adopt(Checkpoint(settings.checkpoint))
    spark.dataSource.register(LakeDataSource)
    writer = (
        frame.writeStream.format("ortoo-lake")
        .queryName("archive")
        .option("path", lake.path)
        .option("lakeFormat", lake.format)
        .option("storageOptions", json.dumps(dict(lake.storage)))
        .option("checkpoint", str(settings.checkpoint))
        .option("continues", ",".join(account.job_id for account in continued))
        .option("checkpointLocation", str(settings.checkpoint))
    )
    trigger = {"availableNow": True} if once else {"processingTime": f"{job.interval_s} seconds"}
    query = writer.trigger(**trigger).start()
    say(f"archiving {', '.join(job.topics) or job.pattern} into {lake.format} lake {lake.path}")
    for account in continued:
        say(f"this checkpoint continues the archive of the job {account.job_id}, where the lake ends")
    progress_lines = ProgressLines(say)
    try:
        while not query.awaitTermination(_POLL_S):
            progress_lines.print_new(query)
    finally:
        query.stop()
    progress_lines.print_new(query)
    return check(spark, settings, say)


def check(spark: Any, settings: PipelineSettings, say: Say) -> Reconciliation | None:
    """Compare the lake with the offsets that its archives have read, and write the report beside the lake."""
    lake, checkpoint = settings.open_lake(), Checkpoint(settings.checkpoint)
    end = checkpoint.committed()
    accounts = LakeAccounts(lake).all()
    if end is None and not accounts:
        say("nothing has been archived yet")
        return None
    own = next((account for account in accounts if account.job_id == checkpoint.query_id), LakeAccount(""))
    others = [account for account in accounts if account is not own]
    if end is not None:
        own = own.with_batch(checkpoint.start() or SourceOffsets(), end)
    start = SourceOffsets({q: offset for account in (*others, own) for q, offset in account.begin.queues.items()})
    stop = SourceOffsets({q: offset for account in (*others, own) for q, offset in account.end.queues.items()})
    counted = counts_by_date(lake) if lake.is_remote else counts(lake.read(spark)) if lake.file_paths() else {}
    outcome = replace(reconcile(start, stop, counted), jobs=tuple(account.job_id for account in accounts))
    outcome.write(settings.output_folder("reports", "") / "reconciliation.json")
    for text in outcome.lines():
        say(text)
    return outcome


def _check(settings: PipelineSettings) -> None:
    """Check the settings. Errors: Invalid."""
    job = settings.archive
    if bool(job.topics) == bool(job.pattern):
        raise Invalid("expected either `topics` or `pattern` in the table [archive]", field="archive.topics")
    if job.on_new_checkpoint not in ("refuse", "continue"):
        raise Invalid(f"{job.on_new_checkpoint!r}; expected refuse or continue", field="archive.on_new_checkpoint")


def _accounts_to_continue(settings: PipelineSettings) -> list[LakeAccount]:
    """The accounts of other checkpoints that a new checkpoint continues. Errors: Conflict without the setting."""
    job, lake = settings.archive, settings.open_lake()
    if not lake.exists:
        return []
    accounts, checkpoint = LakeAccounts(lake), Checkpoint(settings.checkpoint)
    accounts.adopt(checkpoint)
    reads = job.topics.__contains__ if job.topics else re.compile(job.pattern).fullmatch
    others = accounts.others(checkpoint.query_id, lambda topic: bool(reads(topic)))
    if others and (job.on_new_checkpoint == "refuse" or accounts.has(checkpoint.query_id)):
        raise owned_by_other(lake, others[0], set(job.topics))
    return others


def _starting_offsets(settings: PipelineSettings, continued: Sequence[LakeAccount]) -> dict[str, str]:
    """The options for the start of a new query: after the messages of the accounts that it continues."""
    job = settings.archive
    if not continued:
        return {"startingOffsets": job.starting_offsets}
    options = {**settings.cluster_options, "subscribe": ",".join(job.topics), "subscribePattern": job.pattern}
    state = current_state(link_to(settings.cluster), parse(options, streaming=True))
    ends = {queue: (account, offset) for account in continued for queue, offset in account.end.queues.items()}
    topics = {queue.topic for queue in ends}
    starts = {}
    for queue, stored in state.ranges.items():
        if queue.topic in topics:
            account, offset = ends.get(queue, (continued[0], stored.begin))
            topic_id = state.topic_ids[queue.topic]
            is_same = account.end.topic_ids.get(queue.topic, topic_id) == topic_id
            if is_same and offset > stored.end:
                raise Conflict(
                    f"the lake has queue {queue.queue_id} of {queue.topic} on {queue.enode} up to {offset}, and the "
                    f"topic ends at {stored.end}: it was created again or truncated. Remove the account with "
                    f"`ortoo-pipeline accounts --config FILE --reset {account.job_id}`, and start at starting_offsets",
                    field="archive.on_new_checkpoint",
                )
            starts[queue] = offset if is_same else stored.begin
    chosen = job.starting_offsets if job.starting_offsets == "latest" else "earliest"
    return {"startingOffsets": json.dumps(SourceOffsets(starts).to_json()), "startingOffsetsDefault": chosen}


def _columns(settings: PipelineSettings, say: Say) -> Sequence[str]:
    """The columns to store. If the settings name none, these are all columns that an existing lake takes.

    A lake of an earlier version lacks columns, and it continues without them.
    """
    if settings.archive.columns:
        return settings.archive.columns
    names = [column.name for column in COLUMNS]
    known = settings.open_lake().column_names() if settings.lake.schema_changes == "refuse" else frozenset()
    lacking = [name for name in names if known and name not in known]
    if lacking:
        say(f"the lake has no column {', '.join(lacking)}; set schema_changes = merge to store them too")
    return [name for name in names if name not in lacking]


def _messages(spark: Any, settings: PipelineSettings, columns: Sequence[str], starts: Mapping[str, str]) -> Any:
    job = settings.archive
    if missing := [name for name in REQUIRED_COLUMNS if name not in columns]:
        raise Invalid(f"missing columns {', '.join(missing)}; a lake needs these columns", field="archive.columns")
    if unknown := [name for name in columns if name not in BY_NAME]:
        raise Invalid(f"there is no column {unknown[0]!r}", field="archive.columns")
    register(spark)
    options = {
        **settings.cluster_options,
        "subscribe": ",".join(job.topics),
        "subscribePattern": job.pattern,
        **starts,
        "columns": ",".join(columns),
        "maxOffsetsPerTrigger": str(job.max_offsets_per_trigger),
        "consumerGroup": job.consumer_group,
        "failOnDataLoss": str(job.fail_on_data_loss).lower(),
    }
    return spark.readStream.format("ortoo").options(**{name: value for name, value in options.items() if value}).load()
