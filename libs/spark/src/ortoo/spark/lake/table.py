"""One lake: where it is, how files are added to it, and how Spark reads it.

Both kinds have one folder a day (`dt=2026-01-31`) and remember which batches of which query they hold, so that a batch
that comes again adds nothing. A Delta table does so in its log, atomically. A plain folder does so by the names of its
files: `q<query>-b<batch>-<n>.parquet`; a reader may see half of a batch while it is being added.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ortoo.common.errors import Invalid
from ortoo.common.process.clock import SystemClock

DATE = "dt"
STAGING = "_staging"
NOTES = "_ortoo"


@dataclass(frozen=True, slots=True)
class NewFile:
    """A Parquet file that a task has written, not yet part of the lake."""

    path: str
    """Relative to the lake's folder."""
    date: str
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Lake:
    """A lake in a local or mounted folder."""

    path: str
    format: str
    """delta or parquet."""

    def __post_init__(self) -> None:
        if self.format not in ("delta", "parquet"):
            raise Invalid(f"{self.format!r}; expected delta or parquet", field="lake.format")

    @property
    def folder(self) -> Path:
        """Where it is."""
        return Path(self.path)

    @property
    def exists(self) -> bool:
        """Whether it was created."""
        return (self.folder / ("_delta_log" if self.format == "delta" else NOTES)).exists()

    def create(self, schema: Any) -> None:
        """Create it for rows of a pyarrow schema (with the date) unless it is there."""
        (self.folder / NOTES).mkdir(parents=True, exist_ok=True)
        if self.format == "delta":
            from deltalake import DeltaTable

            DeltaTable.create(self.path, schema, mode="ignore", partition_by=[DATE])

    def new_file(self, date: str, name: str) -> str:
        """Where a task writes a file: in its place for Delta, whose log decides, beside the lake otherwise."""
        path = f"{DATE}={date}/{name}.parquet" if self.format == "delta" else f"{STAGING}/{date}/{name}.parquet"
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        return path

    def add(self, query_id: str, batch_id: int, files: Sequence[NewFile], schema: Any) -> bool:
        """Make files part of the lake, all or none; False if this batch is in it already."""
        return (self._add_delta if self.format == "delta" else self._add_plain)(query_id, batch_id, files, schema)

    def file_paths(self) -> list[str]:
        """All files of the lake now."""
        if self.format == "delta":
            from deltalake import DeltaTable

            return sorted(DeltaTable(self.path).file_uris())
        return sorted(str(file) for file in self.folder.glob(f"{DATE}=*/*.parquet"))

    def read(self, spark: Any) -> Any:
        """The lake as a Spark frame, as it is now. Errors: Invalid when it is empty."""
        paths = self.file_paths()
        if not paths:
            raise Invalid(f"the lake {self.path} is empty; run `ortoo-pipeline archive` first", field="lake.path")
        return spark.read.option("basePath", self.path).parquet(*paths)

    def _add_delta(self, query_id: str, batch_id: int, files: Sequence[NewFile], schema: Any) -> bool:
        from deltalake import CommitProperties, DeltaTable, Transaction
        from deltalake.transaction import AddAction

        table = DeltaTable(self.path)
        done = table.transaction_version(query_id)
        if done is not None and done >= batch_id:
            return False
        now_ms = SystemClock().now_ms()
        actions = [
            AddAction(
                file.path, file.size_bytes, {DATE: file.date}, now_ms, True, json.dumps({"numRecords": file.rows})
            )
            for file in files
        ]
        table.create_write_transaction(
            actions,
            mode="append",
            schema=schema,
            partition_by=[DATE],
            commit_properties=CommitProperties(app_transactions=[Transaction(query_id, batch_id)]),
        )
        return True

    def _add_plain(self, query_id: str, batch_id: int, files: Sequence[NewFile], schema: Any) -> bool:
        del schema
        mark = self.folder / NOTES / f"q{query_id}"
        if mark.exists() and int(mark.read_text()) >= batch_id:
            for file in files:
                (self.folder / file.path).unlink(missing_ok=True)
            return False
        prefix = f"q{query_id}-b{batch_id}-"
        for half_done in self.folder.glob(f"{DATE}=*/{prefix}*.parquet"):
            half_done.unlink()
        for number, file in enumerate(files):
            target = self.folder / f"{DATE}={file.date}" / f"{prefix}{number}.parquet"
            target.parent.mkdir(exist_ok=True)
            (self.folder / file.path).rename(target)
        waiting = mark.with_suffix(".new")
        waiting.write_text(str(batch_id))
        waiting.replace(mark)
        return True

    def size_bytes(self) -> int:
        """How large all files are."""
        return sum(os.path.getsize(path.removeprefix("file://")) for path in self.file_paths())
