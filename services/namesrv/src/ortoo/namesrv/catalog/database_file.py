"""A database that is a file: one name server's, and for the eyes of its user alone."""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from ortoo.common.errors import Conflict, Invalid


@contextmanager
def kept_alone(url: sa.URL) -> Iterator[None]:
    """Keep other name servers and other users away from a database that is a file, for the length of the block.

    Errors: Conflict when another name server has it; as `_keep_private`; Invalid when no lock can be made.
    """
    if url.get_backend_name() == "sqlite" and url.database:
        with _locked(Path(url.database)):
            _keep_private(Path(url.database))
            yield
    else:
        yield


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Hold a lock beside `file`; the system gives it back when the process ends, however it ends."""
    path = file.with_name(file.name + ".lock")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise Invalid(
            f"{path} cannot be made: {error.strerror}; give a folder that exists and that this user may write",
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
            f"another name server has {file}; stop it, or give this one its own data_dir "
            "(several name servers on one directory need a PostgreSQL database_url)",
            field="data_dir",
        ) from error


def _keep_private(database: Path) -> None:
    """Let this user alone read the secrets. SQLite gives the files beside the database the database's mode.

    Errors: Invalid when the file is somebody else's; Conflict when the last changes of another one lie beside it, which
    SQLite would remove.
    """
    changes = Path(f"{database}-wal")
    if not database.exists() and changes.exists() and changes.stat().st_size:
        raise Conflict(
            f"{changes} has the last changes of a database that is not here: move it to where that is now, under the "
            "name of that and -wal",
            field="database_url",
        )
    try:
        os.close(os.open(database, os.O_RDWR | os.O_CREAT, 0o600))
        for path in (database, *(Path(f"{database}{suffix}") for suffix in ("-wal", "-shm", "-journal"))):
            if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077:
                path.chmod(0o600)
    except OSError as error:
        raise Invalid(
            f"{database} cannot be kept from other users ({error.strerror}), and it has secrets; give it to this user",
            field="database_url",
        ) from error
