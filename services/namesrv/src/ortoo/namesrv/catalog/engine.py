"""The connection to the database: its URL and its engine."""

from pathlib import Path
from typing import Any

import sqlalchemy as sa

from ortoo.common.errors import Invalid, Unsupported

BUSY_TIMEOUT_S = 5.0
RESPONSE_TIMEOUTS = 2
"""PostgreSQL's answer is awaited for this many statement timeouts."""
FILE_NAME = "namesrv.db"


def database_url_of(database_url: str, data_dir: Path) -> sa.URL:
    """The URL of the database, by default a file in `data_dir`; the file's folder is created. Errors: Invalid."""
    if not database_url:
        try:
            data_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Invalid(
                f"the folder {data_dir} cannot be created: {error.strerror}; give a folder that this user may write to",
                field="data_dir",
            ) from error
        return sa.URL.create("sqlite", database=str(data_dir.absolute() / FILE_NAME))
    try:
        url = sa.make_url(database_url)
    except (sa.exc.ArgumentError, ValueError):  # their texts may have parts of the password
        raise Invalid(
            "not a database URL; give one like sqlite:////var/lib/ortoo/namesrv.db, or leave it empty. Write @ : / in "
            "passwords as %40 %3A %2F",
            field="database_url",
        ) from None
    if url.get_backend_name() != "sqlite" and database_url.count("@") > 1:
        # The driver would take a part of the password for the host, and show it in its errors.
        raise Invalid("the URL has more than one '@'; write an @ in the password as %40", field="database_url")
    if url.get_backend_name() == "sqlite" and (url.database or ":memory:").startswith((":", "file:")):
        raise Invalid(
            "a database in memory would lose its topics at a restart; give a file on disk, sqlite:///PATH",
            field="database_url",
        )
    return url


def create_database_engine(url: sa.URL, timeout_s: float = BUSY_TIMEOUT_S) -> sa.Engine:
    """Create the engine for a database; `timeout_s` limits each statement. Errors: Invalid, Unsupported."""
    # A database that hangs must not block the thread indefinitely: a statement without a timely answer has failed.
    options: dict[str, Any] = {}
    if url.get_backend_name() == "postgresql":
        limit_ms = int(timeout_s * 1000)
        connect_timeout_s = max(2, int(timeout_s))  # whole seconds, and 1 means 2 to the driver
        options = {
            "connect_args": {
                "connect_timeout": connect_timeout_s,
                "options": f"-c statement_timeout={limit_ms} -c lock_timeout={limit_ms}",
                "tcp_user_timeout": limit_ms,
                # The server's machine may fail after it acknowledged the request at TCP level; only keepalives notice
                # it.
                "keepalives_idle": 1,
                "keepalives_interval": 1,
            },
            "pool_pre_ping": True,
            "pool_recycle": 1800,
        }
    try:
        engine = sa.create_engine(url, **options)
    except ModuleNotFoundError as error:
        raise Unsupported(
            f"the database driver {error.name} is not installed; for PostgreSQL install ortoo-namesrv[postgresql] and "
            "write postgresql+psycopg://",
            field="database_url",
        ) from error
    except sa.exc.NoSuchModuleError as error:
        raise Invalid(
            f"unsupported database {url.drivername!r}; use sqlite or postgresql", field="database_url"
        ) from error
    if engine.dialect.name == "sqlite":
        sa.event.listen(engine, "connect", lambda connection, _: _configure_sqlite(connection, timeout_s))
    if engine.dialect.driver == "psycopg":
        kind = _postgres_response_timeout(RESPONSE_TIMEOUTS * timeout_s)
        sa.event.listen(engine, "do_connect", lambda _, __, arguments, options: kind.connect(*arguments, **options))
    return engine


def _postgres_response_timeout(limit_s: float) -> Any:
    """The class of PostgreSQL connections that are closed if an answer takes longer than `limit_s`.

    PostgreSQL ends slow statements itself. A frozen PostgreSQL process on a running machine would not.
    """
    import psycopg  # an optional dependency, installed only for PostgreSQL

    class Patient(psycopg.Connection[Any]):
        def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
            try:
                return super().wait(gen, interval, limit_s if timeout is None else timeout)
            except psycopg.OperationalError as error:
                # Without a state the error is not from the server. A late answer would be taken for that of the next
                # request.
                if error.sqlstate is None:
                    self.close()
                raise

    return Patient


def _configure_sqlite(connection: Any, timeout_s: float) -> None:
    """Set pragmas: a confirmed change survives a power failure, and deleted data is overwritten."""
    for pragma in (
        "journal_mode = WAL",
        "synchronous = FULL",
        "secure_delete = ON",
        f"busy_timeout = {int(timeout_s * 1000)}",
    ):
        connection.execute(f"PRAGMA {pragma}")
