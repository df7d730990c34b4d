"""A name server that dies while it creates or changes the schema of its SQLite file: the next start completes it."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from ortoo.namesrv.catalog.engine import create_database_engine, database_url_of
from ortoo.namesrv.catalog.schema import HEAD, migrate_to_head, stored_revision
from tests.integration.test_namesrv_database import old_database

CHANGES = ("CREATE", "INSERT", "UPDATE", "ALTER", "DROP")


class Dies(BaseException):
    """The process ends here."""


def dying_after(folder: Path, changes: int) -> bool:
    """Whether it completed with fewer than that many changes of the database."""
    engine, left = create_database_engine(database_url_of("", folder)), [changes]

    def before(_connection: Any, _cursor: Any, statement: str, *_more: Any) -> None:
        if statement.lstrip().upper().startswith(CHANGES):
            left[0] -= 1
            if left[0] < 0:
                raise Dies

    sa.event.listen(engine, "before_cursor_execute", before)
    try:
        migrate_to_head(engine, "the first id")
    except Dies:
        return False
    finally:
        engine.dispose()
    return True


def new_folder(folder: Path) -> None:
    """A folder without a database."""


@pytest.mark.parametrize(("made", "topics", "step"), [(new_folder, [], 2), (old_database, ["old"], 7)])
def test_a_schema_is_changed_in_one_transaction(
    made: Callable[[Path], object], topics: list[str], step: int, tmp_path: Path
) -> None:
    """After a crash at any change, the next start finds all of them or none, and its topics."""
    for changes in count(0, step):
        folder = tmp_path / str(changes)
        folder.mkdir()
        made(folder)
        is_through = dying_after(folder, changes)
        engine = create_database_engine(database_url_of("", folder))
        migrate_to_head(engine, "the second id")
        with engine.connect() as connection:
            assert stored_revision(connection) == HEAD
        engine.dispose()
        with closing(sqlite3.connect(folder / "namesrv.db")) as connection:
            assert [name for (name,) in connection.execute("SELECT name FROM topics")] == topics
            [(directory_id,)] = connection.execute("SELECT directory_id FROM directory")
            assert directory_id == ("the first id" if is_through else "the second id")
        if is_through:
            assert changes > 10
            return
