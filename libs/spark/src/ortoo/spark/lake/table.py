"""One lake: its location, adding files, and reading it with Spark.

Both formats have one folder per day (`dt=2026-01-31`) and record which batches of which query they hold, so that a
repeated batch adds nothing. A Delta table records them atomically in its log, in a folder or in an object store. A
plain folder records them in file names, `q<query>-b<batch>-<n>.parquet`. Readers of a plain folder may see half of a
batch while the batch is being added.
"""

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ortoo.client import Queue
from ortoo.common.errors import Conflict, Invalid
from ortoo.common.process.clock import SystemClock

DATE = "dt"
STAGING = "_staging"
NOTES = "_ortoo"
MESSAGE_KEY = ("topic", "enode", "queue_id", "offset")
"""The columns that identify the message of a row."""


@dataclass(frozen=True, slots=True)
class NewFile:
    """A Parquet file that a task has written and that is not part of the lake yet."""

    path: str
    """Relative to the lake's folder."""
    date: str
    size_bytes: int
    statistics: str
    """Statistics of its columns, in Delta's JSON format."""


@dataclass(frozen=True, slots=True)
class Lake:
    """A lake of messages: Parquet files in a folder, or a Delta table in a folder or an object store."""

    path: str
    format: str
    """delta or parquet."""
    storage: tuple[tuple[str, str], ...] = ()
    """Options of an object store, by delta-rs's names; others are read from the environment."""

    def __post_init__(self) -> None:
        if self.format not in ("delta", "parquet"):
            raise Invalid(f"{self.format!r}; expected delta or parquet", field="lake.format")
        if self.is_remote and self.format != "delta":
            raise Invalid("a lake in an object store must be a Delta table; set format = delta", field="lake.format")

    @property
    def is_remote(self) -> bool:
        """Whether the path is a URL, so that the lake is in an object store."""
        return "://" in self.path

    @property
    def folder(self) -> Path:
        """The folder of a local lake."""
        return Path(self.path)

    def table(self) -> Any:
        """The current version of the Delta table."""
        from deltalake import DeltaTable

        return DeltaTable(self.path, storage_options=dict(self.storage))

    @property
    def exists(self) -> bool:
        """Whether it was created before."""
        if self.format == "parquet":
            return (self.folder / NOTES).exists()
        from deltalake import DeltaTable

        return bool(DeltaTable.is_deltatable(self.path, dict(self.storage)))

    def column_names(self) -> frozenset[str]:
        """The columns of the lake; empty if it does not exist or has no file yet."""
        if not self.exists:
            return frozenset()
        if self.format == "delta":
            return frozenset(field.name for field in self.table().schema().fields)
        import pyarrow.parquet as pq

        return frozenset(name for path in self.file_paths() for name in pq.read_schema(path).names)

    def files(self) -> Any:
        """The lake's folder as a pyarrow file system."""
        from pyarrow import fs

        if self.format == "parquet":
            return fs.SubTreeFileSystem(str(self.folder.absolute()), fs.LocalFileSystem())
        from deltalake.fs import DeltaStorageHandler

        return fs.PyFileSystem(DeltaStorageHandler(self.path, dict(self.storage)))

    def create(self, schema: Any, changes: str = "refuse") -> None:
        """Create the lake, unless it exists. `schema` is the pyarrow schema of its rows, including the date column.

        With `changes` = merge, columns that an existing lake lacks are added. With refuse they are an error. Errors:
        Invalid for a new column that is refused, or for a column whose type differs from that in the lake.
        """
        if not self.is_remote:
            (self.folder / NOTES).mkdir(parents=True, exist_ok=True)
        if self.format == "delta":
            from deltalake import DeltaTable, Schema

            DeltaTable.create(self.path, schema, mode="ignore", partition_by=[DATE], storage_options=dict(self.storage))
            known = {field.name: str(field.type) for field in self.table().schema().fields}
            fields = Schema.from_arrow(schema).fields
            if added := _added_columns(known, {field.name: str(field.type) for field in fields}, changes):
                self.table().alter.add_columns([field for field in fields if field.name in added])
        elif paths := self.file_paths():
            import pyarrow.parquet as pq

            known = {name: kind for path in paths for name, kind in _column_types(pq.read_schema(path)).items()}
            _added_columns({DATE: "string"} | known, _column_types(schema), changes)

    def new_file(self, date: str, name: str) -> str:
        """The path at which a task writes a new file, relative to the lake's folder.

        In a Delta table it is the final path, because the table's log decides which files belong to the table. In a
        lake of plain Parquet files it is in a staging folder.
        """
        if self.format == "delta":
            return f"{DATE}={date}/{name}.parquet"
        (self.folder / STAGING / date).mkdir(parents=True, exist_ok=True)
        return f"{STAGING}/{date}/{name}.parquet"

    def read_note(self, name: str) -> str | None:
        """Read a text that is stored in the lake; None if there is no such text."""
        try:
            with self.files().open_input_stream(f"{NOTES}/{name}") as source:
                return bytes(source.read()).decode()
        except FileNotFoundError:
            return None

    def write_note(self, name: str, text: str) -> None:
        """Store a text in the lake atomically."""
        files, place = self.files(), f"{NOTES}/{name}"
        with files.open_output_stream(f"{place}.new", buffer_size=1 << 16) as target:
            target.write(text.encode())
        files.move(f"{place}.new", place)

    def note_names(self) -> list[str]:
        """The names of all notes, sorted."""
        from pyarrow import fs

        found = self.files().get_file_info(fs.FileSelector(NOTES, allow_not_found=True))
        return sorted(info.base_name for info in found if info.is_file and not info.base_name.endswith(".new"))

    def remove_note(self, name: str) -> None:
        """Remove a text from the lake if it exists."""
        with contextlib.suppress(FileNotFoundError):
            self.files().delete_file(f"{NOTES}/{name}")

    def committed_batch(self, query_id: str) -> int | None:
        """The newest batch of a query that the lake has completely; None if it has none."""
        if self.format == "delta":
            found = self.table().transaction_version(query_id)
            return None if found is None else int(found)
        note = self.read_note(f"q{query_id}")
        return None if note is None else int(note)

    def batch_prefix(self, query_id: str, batch_id: int) -> str:
        """The beginning of the names of a batch's files in a plain lake."""
        return f"q{query_id}-b{batch_id}-"

    def discard(self, query_id: str, batch_id: int) -> None:
        """Remove the files of a batch that was not added completely. A Delta table has none."""
        if self.format == "parquet":
            for half_done in self.folder.glob(f"{DATE}=*/{self.batch_prefix(query_id, batch_id)}*.parquet"):
                half_done.unlink()

    def add(self, query_id: str, batch_id: int, files: Sequence[NewFile], schema: Any) -> bool:
        """Add all `files` to the lake in one step; returns False if the lake has this batch already.

        Errors: Conflict if the lake has a batch with this number but other messages, because the query's checkpoint is
        older than the lake.
        """
        return (self._add_delta if self.format == "delta" else self._add_plain)(query_id, batch_id, files, schema)

    def file_paths(self) -> list[str]:
        """All files of the lake."""
        if self.format == "delta":
            return sorted(self.table().file_uris())
        return sorted(str(file) for file in self.folder.glob(f"{DATE}=*/*.parquet"))

    def offset_spans(self) -> dict[Queue, tuple[int, int]]:
        """The smallest and the largest offset of each queue in the lake, with one date at a time in memory."""
        import pyarrow as pa

        spans: dict[Queue, tuple[int, int]] = {}
        kinds = {"topic": pa.string(), "enode": pa.string(), "queue_id": pa.int32(), "offset": pa.int64()}
        by_queue, bounds = ["topic", "enode", "queue_id"], [("offset", "min"), ("offset", "max")]
        for date in sorted({Path(file).parent.name.removeprefix(f"{DATE}=") for file in self.file_paths()}):
            rows = self._stored_rows(date, pa.schema(kinds))
            for row in rows.group_by(by_queue).aggregate(bounds).to_pylist():
                queue, least, most = Queue(*(row[name] for name in by_queue)), row["offset_min"], row["offset_max"]
                before = spans.get(queue, (least, most))
                spans[queue] = min(before[0], least), max(before[1], most)
        return spans

    def read(self, spark: Any) -> Any:
        """The current lake as a Spark frame. Errors: Invalid when it is empty."""
        paths = self.file_paths()
        if not paths:
            raise Invalid(f"the lake {self.path} is empty; run `ortoo-pipeline archive` first", field="lake.path")
        return spark.read.option("basePath", self.path).option("mergeSchema", "true").parquet(*paths)

    def _add_delta(self, query_id: str, batch_id: int, files: Sequence[NewFile], schema: Any) -> bool:
        from deltalake import CommitProperties, Transaction
        from deltalake.transaction import AddAction

        table = self.table()
        done = table.transaction_version(query_id)
        if done is not None and done >= batch_id:
            self._check_contains(batch_id, files)
            return False
        now_ms = SystemClock().now_ms()
        actions = [
            AddAction(file.path, file.size_bytes, {DATE: file.date}, now_ms, True, file.statistics) for file in files
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
        done = self.committed_batch(query_id)
        if done is not None and done >= batch_id:
            self._check_contains(batch_id, files)
            for file in files:
                (self.folder / file.path).unlink(missing_ok=True)
            return False
        self.discard(query_id, batch_id)
        prefix = self.batch_prefix(query_id, batch_id)
        for number, file in enumerate(files):
            target = self.folder / f"{DATE}={file.date}" / f"{prefix}{number}.parquet"
            target.parent.mkdir(exist_ok=True)
            (self.folder / file.path).rename(target)
        self.write_note(f"q{query_id}", str(batch_id))
        return True

    def _check_contains(self, batch_id: int, files: Sequence[NewFile]) -> None:
        """Check that the lake holds the messages of a repeated batch. Errors: Conflict, as in `add`."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        for date in sorted({file.date for file in files}):
            new = []
            for file in (file for file in files if file.date == date):
                with self.files().open_input_file(file.path) as source:
                    new.append(pq.ParquetFile(source).read(list(MESSAGE_KEY)))
            received = pa.concat_tables(new)
            stored = self._stored_rows(date, received.schema)
            if missing := received.join(stored, received.column_names, join_type="left anti").num_rows:
                raise Conflict(
                    f"the lake {self.path} has a batch {batch_id} of this query, but lacks {missing} messages of the "
                    "repeated batch: the checkpoint is older than the lake. Use a new checkpoint and start at the end "
                    "of the lake",
                    field="archive.checkpoint_path",
                )

    def _stored_rows(self, date: str, schema: Any) -> Any:
        """Columns of one date's rows, as a pyarrow table."""
        import pyarrow.dataset as ds

        if self.format == "delta":
            return self.table().to_pyarrow_dataset().to_table(schema.names, filter=ds.field(DATE) == date)
        files = [str(file) for file in self.folder.glob(f"{DATE}={date}/*.parquet")]
        return ds.dataset(files, schema).to_table()


def _column_types(schema: Any) -> dict[str, str]:
    """Names and types of a pyarrow schema, without the names of map entries in files."""
    return {field.name: re.sub(r" \('.*?'\)", "", str(field.type)) for field in schema}


def _added_columns(existing: dict[str, str], desired: dict[str, str], changes: str) -> set[str]:
    """The columns that a lake does not have. Errors: Invalid, as in `Lake.create`."""
    for name in desired.keys() & existing.keys():
        if desired[name] != existing[name]:
            raise Invalid(
                f"the column {name} has type {existing[name]} in the lake, not {desired[name]}; use another lake",
                field="lake.path",
            )
    added = desired.keys() - existing.keys()
    if added and changes != "merge":
        raise Invalid(
            f"the lake has no column {', '.join(sorted(added))}; set schema_changes = merge to add new columns, which "
            "are null in older rows",
            field="lake.schema_changes",
        )
    return added
