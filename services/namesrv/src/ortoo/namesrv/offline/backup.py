"""`ortoo-namesrv backup FILE` and `restore FILE`: the whole directory as a file, independent of the kind of database.

    ortoo-namesrv backup FILE [-c SETTINGS]     name servers may be running
    ortoo-namesrv restore FILE [-c SETTINGS]    into an empty database that no name server uses

The first line is a JSON header, followed by one line for each stored row. The last line has the number of rows and the
CRC-32C of all earlier lines. Secrets are in their stored form: encrypted if the name server has a key.
"""

import argparse
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from ortoo.common.directory.topic import Placement
from ortoo.common.errors import Conflict, DataLoss, Invalid, NotFound, Unsupported
from ortoo.common.logs.counts import counted
from ortoo.common.records.sealed_batch import crc32c
from ortoo.namesrv.catalog import tables
from ortoo.namesrv.catalog.database import TransactionRunner
from ortoo.namesrv.catalog.database_file import exclusive_access
from ortoo.namesrv.catalog.engine import create_database_engine, database_url_of
from ortoo.namesrv.catalog.schema import HEAD, migrate_to_head, stored_revision
from ortoo.namesrv.decisions.placements import PlacementSet

FORMAT = "ortoo-directory"
VERSION = 1
STATEMENT_TIMEOUT_S = 60.0
ROWS_PER_INSERT = 500
APART = 1 << 20
"""The minimum by which the directory's version and the epochs of exclusive rights are raised."""
FORMER_PLACEMENTS = "placements"
"""A table of backups before schema 0015: the placements of each topic."""
COUNTED = ("topic", "group", "user")
Row = dict[str, Any]


def parse_arguments(arguments: Sequence[str], name: str) -> argparse.Namespace:
    """Parse the command-line arguments of the tool `name`, which is backup or restore.

    In the result, `backup_file` is the path of the backup, and `file` is the path of the settings.
    """
    about = {"backup": "Write the whole directory to a file.", "restore": "Restore a backup into an empty database."}
    parser = argparse.ArgumentParser(prog=f"ortoo-namesrv {name}", description=about[name])
    parser.add_argument("backup_file", type=Path, metavar="FILE", help="the backup")
    parser.add_argument("-c", dest="file", type=Path, metavar="SETTINGS", help="settings file of the name server, TOML")
    return parser.parse_args(arguments)


def backup(database_url: str, data_dir: Path, file: Path) -> str:
    """Write a consistent copy of the directory to a file that only this user may read; returns a summary.

    Errors: NotFound without a database, Unsupported for a database with the schema of another version, Conflict if
    `file` exists and is not a backup. Unavailable, OSError.
    """
    _check_replaceable(file)
    url = database_url_of(database_url, data_dir)
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
        raise NotFound(f"there is no database {url.database}", field="database_url" if database_url else "data_dir")
    engine = create_database_engine(url, STATEMENT_TIMEOUT_S)

    def work() -> list[tuple[str, Row]]:
        with engine.connect() as connection:
            if engine.dialect.name == "sqlite":
                connection.exec_driver_sql("BEGIN")  # the driver begins no transaction for reads
            else:
                connection.execution_options(isolation_level="REPEATABLE READ")
            revision = stored_revision(connection)
            if revision != HEAD:
                raise Unsupported(
                    f"the database has schema {revision or 'none'}, this version supports {HEAD}; start the name "
                    "server of this version once, or use the version that created the database",
                    field="database_url",
                )
            return [(table.name, row) for table in tables.metadata.sorted_tables for row in _rows(connection, table)]

    try:
        rows = TransactionRunner(engine).run(work)
    finally:
        engine.dispose()
    head = {"format": FORMAT, "version": VERSION, "schema": HEAD}
    lines = [head, *({"table": name, "row": row} for name, row in rows)]
    _write(file, b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines), len(rows))
    return f"backed up {_summary(rows)} to {file}"


def restore(database_url: str, data_dir: Path, file: Path, new_id: str, now_ms: int) -> str:
    """Restore a backup into an empty database in one transaction; returns a summary.

    The directory gets the id in the backup; `new_id` is its id only during the restore. Errors: Conflict if the
    database is not empty or a name server uses its file, Unavailable. For a wrong backup: NotFound, Invalid, DataLoss,
    Unsupported.
    """
    rows = [(name, _advance_row(name, row, now_ms)) for name, row in read_backup(file)]
    url = database_url_of(database_url, data_dir)
    engine = create_database_engine(url, STATEMENT_TIMEOUT_S)
    with exclusive_access(url):
        try:
            transactions = TransactionRunner(engine)
            transactions.run(lambda: migrate_to_head(engine, new_id))
            transactions.run(lambda: _fill(engine, rows))
        finally:
            engine.dispose()
    return f"restored {_summary(rows)} from {file}"


def read_backup(file: Path) -> list[tuple[str, Row]]:
    """The rows of a backup, each with the name of its table.

    Errors: NotFound, DataLoss if the backup is incomplete, Invalid, Unsupported.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise NotFound(f"{file} cannot be read: {error.strerror}", field="FILE") from error
    body, _, last = data.removesuffix(b"\n").rpartition(b"\n")
    body += b"\n"
    lines = body.splitlines()
    head = _parsed(lines[0] if lines else b"", file)
    if head.get("format") != FORMAT:
        raise Invalid(f"{file} is not a backup of a directory", field="FILE")
    if head.get("version") != VERSION or str(head.get("schema")) > HEAD:
        raise Unsupported(
            f"{file} has version {head.get('version')} and schema {head.get('schema')}, and this tool reads version "
            f"{VERSION} and schema {HEAD}: use a newer ortoo-namesrv",
            field="FILE",
        )
    if _parsed(last, file) != {"rows": len(lines) - 1, "crc32c": f"{crc32c(body):08x}"}:
        raise DataLoss(f"{file} is incomplete or was changed: use another backup")
    found = _with_placement_sets([_parsed(line, file) for line in lines[1:]])
    for number, one in enumerate(found, 2):
        table = tables.metadata.tables.get(one["table"])
        if table is None or (unknown := one["row"].keys() - table.columns.keys()):
            what = f"table {one['table']}" if table is None else f"columns {', '.join(sorted(unknown))}"
            raise Invalid(f"line {number} has {what}, which schema {HEAD} does not have", field="FILE")
    return [(one["table"], one["row"]) for one in found]


def _with_placement_sets(lines: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The lines of a backup, with the placements of an earlier schema as sets that topics name."""
    placed: dict[int, list[Placement]] = {}
    for one in lines:
        if one["table"] == FORMER_PLACEMENTS:
            row = dict(one["row"])
            placed.setdefault(row.pop("topic_id"), []).append(Placement(**row))
    if not placed:
        return lines
    set_ids, sets, table = {}, {}, tables.placement_sets
    for topic_id, ones in placed.items():
        placements = PlacementSet.of(tuple(sorted(ones, key=lambda one: one.enode)))
        set_ids[topic_id] = tables.ID64.written(placements.set_id)
        sets[set_ids[topic_id]] = placements
    rows = [
        {"table": table.name, "row": tables.row_of(table, one, set_id=set_id)}
        for set_id, placements in sets.items()
        for one in placements
    ]
    with_topics = (tables.topics.name, tables.deleted_topics.name)
    return rows + [
        {**one, "row": {**one["row"], "placement_set_id": set_ids.get(one["row"]["topic_id"], 0)}}
        if one["table"] in with_topics
        else one
        for one in lines
        if one["table"] != FORMER_PLACEMENTS
    ]


def _fill(engine: sa.Engine, rows: Sequence[tuple[str, Row]]) -> None:
    by_table: dict[str, list[Row]] = {}
    for name, row in rows:
        by_table.setdefault(name, []).append(row)
    with engine.begin() as connection:
        held = [table.name for table in tables.metadata.sorted_tables if _has_rows(connection, table)]
        if held:
            raise Conflict(
                f"the database is not empty: it has {', '.join(held)}; give an empty database, or move this one away",
                field="database_url",
            )
        connection.execute(sa.delete(tables.directory))
        for table in tables.metadata.sorted_tables:
            part = by_table.get(table.name, [])
            for start in range(0, len(part), ROWS_PER_INSERT):
                connection.execute(sa.insert(_raw_table(table)), part[start : start + ROWS_PER_INSERT])


def _advance_row(table: str, row: Row, now_ms: int) -> Row:
    """A row of the backup, adjusted for the time of the restore."""
    match table:
        case tables.directory.name:
            # Enodes and snodes may have seen versions from after the backup, and ignore older ones.
            return {**row, "version": _advance_number(row["version"], now_ms)}
        case tables.rights.name:
            return {**row, "epoch": _advance_number(row["epoch"], now_ms)}
        case tables.deleted_topics.name | tables.deleted_groups.name:
            # The topic may have been restored after the backup, so the full grace period starts again.
            return {**row, "due_at_ms": max(row["due_at_ms"], now_ms + row["due_at_ms"] - row["deleted_at_ms"])}
    return row


def _advance_number(number: int, now_ms: int) -> int:
    """A number above any value reached after the backup, or after an earlier restore of the same backup."""
    return max(number + APART, now_ms)


def _has_rows(connection: sa.Connection, table: sa.Table) -> bool:
    """Whether a table has rows, apart from the initial ones."""
    wanted = sa.select(sa.func.count()).select_from(table)
    if table is tables.directory:
        wanted = wanted.where(table.c.version > 0)
    return bool(connection.execute(wanted).scalar_one())


def _rows(connection: sa.Connection, table: sa.Table) -> Iterator[Row]:
    kept = _raw_table(table)
    order = [kept.c[column.name] for column in table.primary_key]
    return (dict(row._mapping) for row in connection.execute(sa.select(kept).order_by(*order)))


def _raw_table(table: sa.Table) -> sa.TableClause:
    """A table whose values are in their stored form."""
    types = {c.name: c.type.kept_as if isinstance(c.type, tables.EncodedColumn) else c.type for c in table.columns}
    return sa.table(table.name, *(sa.column(name, kind) for name, kind in types.items()))


def _check_replaceable(file: Path) -> None:
    """Refuse to replace a file that is not a backup, such as the database. Errors: Conflict, OSError."""
    try:
        with file.open("rb") as there:
            begin = there.read(100)
    except FileNotFoundError:
        return
    if begin and f'"format": "{FORMAT}"'.encode() not in begin:
        raise Conflict(f"{file} is not a backup of a directory; give another file", field="FILE")


def _write(file: Path, body: bytes, count: int) -> None:
    """Replace a file atomically; it is durable afterwards."""
    last = json.dumps({"rows": count, "crc32c": f"{crc32c(body):08x}"}).encode() + b"\n"
    temporary = file.with_name(file.name + ".tmp")
    temporary.unlink(missing_ok=True)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        out.write(body + last)
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(file)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _parsed(line: bytes, file: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Invalid(f"{file} is not a backup of a directory", field="FILE")
    return found


def _summary(rows: Sequence[tuple[str, Row]]) -> str:
    counts = {name: sum(table == f"{name}s" for table, _ in rows) for name in COUNTED}
    [identity] = [row["directory_id"] for table, row in rows if table == tables.directory.name]
    return f"directory {identity} with " + ", ".join(counted(count, name) for name, count in counts.items())
