"""compact: merges small files of a date into large files, and removes duplicates in plain lakes."""

import datetime
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.spark.lake.accounts import LakeAccounts
from ortoo.spark.lake.table import DATE, Lake
from ortoo.spark.pipeline.runtime.progress import Say
from ortoo.spark.pipeline.runtime.settings import PipelineSettings

_KEY = ("topic", "enode", "queue_id", "offset", "stored_at")
"""Identifies a message; `stored_at` distinguishes a topic that was created again and starts at the same offsets."""


def compact(settings: PipelineSettings, say: Say) -> tuple[int, int]:
    """Merge the files of each date, except the newest dates; returns the number of files before and after."""
    lake, job = settings.open_lake(), settings.compact
    today = datetime.datetime.fromtimestamp(SystemClock().now_ms() / 1000, datetime.UTC).date()
    newest = str(today - datetime.timedelta(days=job.open_days))
    before = lake.file_paths()
    dates = sorted({_date(path) for path in before})
    closed = [date for date in dates if date <= newest]
    unfinished = tuple(LakeAccounts(lake).unfinished_files()) if lake.format == "parquet" else ()
    for date in closed:
        if lake.format == "delta":
            lake.table().optimize.compact(partition_filters=[(DATE, "=", date)], target_size=job.target_bytes)
        else:
            _compact_plain(lake, date, unfinished)
    if lake.format == "delta" and job.vacuum_hours:
        removed = lake.table().vacuum(job.vacuum_hours, dry_run=False, enforce_retention_duration=False, full=True)
        say(f"vacuumed: {len(removed):,} files that no version of the last {job.vacuum_hours} hours needs")
    after = lake.file_paths()
    say(f"compacted {len(closed)} of {len(dates)} dates: {len(before):,} files became {len(after):,}")
    return len(before), len(after)


def _compact_plain(lake: Lake, date: str, unfinished: tuple[str, ...]) -> None:
    """Rewrite one date: write the new file under a name that readers skip, then replace the old files by it.

    Files of batches that are not added completely are left out, because their archive will write them again.
    """
    folder = lake.folder / f"{DATE}={date}"
    old = [file for file in sorted(folder.glob("*.parquet")) if not file.name.startswith(unfinished)]
    if len(old) < 2:
        return
    table = pa.concat_tables([pq.read_table(file, partitioning=None) for file in old], promote_options="default")
    table = _without_duplicates(table)
    name = f"compacted-{Randomness().id_text()}"
    waiting = folder / f"_{name}.new"
    pq.write_table(table, waiting, compression="zstd")
    # A crash between the steps leaves every message twice until the next compaction, but loses none.
    _sync(waiting)
    waiting.rename(folder / f"{name}.parquet")
    _sync(folder)
    for file in old:
        file.unlink()


def _sync(path: Path) -> None:
    """Sync a file, or the names in a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _without_duplicates(table: Any) -> Any:
    numbered = table.append_column("#", pa.array(range(len(table)), pa.int64()))
    first = numbered.group_by(list(_KEY)).aggregate([("#", "min")]).column("#_min").combine_chunks()
    return table if len(first) == len(table) else table.take(first.sort())


def _date(path: str) -> str:
    return Path(path).parent.name.removeprefix(f"{DATE}=")
