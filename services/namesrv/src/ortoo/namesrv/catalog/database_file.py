"""Databases that are files: one name server uses each file, and only its operating system user can read the file."""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from ortoo.common.errors import Conflict, Invalid


@contextmanager
def exclusive_access(url: sa.URL) -> Iterator[None]:
    """Lock a database file against other name servers during the block, and deny access to other users.

    Errors: Conflict if another name server uses the file, Invalid if the file cannot be locked or protected.
    """
    if url.get_backend_name() == "sqlite" and url.database:
        with _locked(Path(url.database)):
            _restrict_permissions(Path(url.database))
            yield
    else:
        yield


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Hold a lock beside `file`; the system releases it when the process ends, in any way."""
    path = file.with_name(file.name + ".lock")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise Invalid(
            f"{path} cannot be created: {error.strerror}; give an existing folder that this user may write to",
            field="data_dir",
        ) from error
    try:
        _lock(descriptor, file)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, file: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise Conflict(
            f"another name server uses {file}; stop it, or give this one its own data_dir "
            "(several name servers on one directory need a PostgreSQL database_url)",
            field="data_dir",
        ) from error


def _restrict_permissions(database: Path) -> None:
    """Let only this user read the secrets. SQLite gives the files beside the database the mode of the database.

    Errors: Invalid if the file belongs to another user. Conflict if the write-ahead log of another database is beside
    it, which SQLite would delete.
    """
    changes = Path(f"{database}-wal")
    if not database.exists() and changes.exists() and changes.stat().st_size:
        raise Conflict(
            f"{changes} is the write-ahead log of a database that was moved away. Move this log to the folder of that "
            "database, and name it like the database with -wal appended",
            field="database_url",
        )
    try:
        os.close(os.open(database, os.O_RDWR | os.O_CREAT, 0o600))
        for path in (database, *(Path(f"{database}{suffix}") for suffix in ("-wal", "-shm", "-journal"))):
            if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077:
                path.chmod(0o600)
    except OSError as error:
        raise Invalid(
            f"{database} has secrets and cannot be protected from other users ({error.strerror}); make this process's "
            "user the owner of the file",
            field="database_url",
        ) from error
