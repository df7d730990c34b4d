"""The stored directory: topics and groups in a database, reached on one thread so that the loop never waits for it."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self, TypeVar

import sqlalchemy as sa

from ortoo.common.errors import DataLoss, Invalid, OrtooError, Unavailable, Unsupported
from ortoo.namesrv import tables
from ortoo.namesrv.file_lock import FileLock
from ortoo.namesrv.transaction import Contents, Transaction

T = TypeVar("T")
BUSY_TIMEOUT_S = 5
FILE_NAME = "namesrv.db"


class Catalog:
    """An open database. Work runs in the order in which it is given, one transaction each."""

    def __init__(self, engine: sa.Engine, thread: ThreadPoolExecutor, lock: FileLock | None) -> None:
        """Use `open`."""
        self._engine = engine
        self._thread = thread
        self._lock = lock

    @classmethod
    async def open(cls, database_url: str, data_dir: Path) -> Self:
        """Open or create the database.

        Errors: Invalid (the URL or the folder), Conflict (another name server has the file), Unsupported (a newer
        schema, or a driver is missing), DataLoss (the file is damaged), Unavailable (the database does not answer).
        """
        url = _url(database_url, data_dir)
        thread = ThreadPoolExecutor(1, thread_name_prefix="catalog")
        lock: FileLock | None = None
        try:
            engine = _engine(url)
            if url.get_backend_name() == "sqlite" and url.database:
                lock = FileLock.take(Path(url.database))
            catalog = cls(engine, thread, lock)
            await asyncio.shield(catalog._submit(lambda: _prepare(engine)))
        except BaseException:
            thread.shutdown()
            if lock is not None:
                lock.release()
            raise
        return catalog

    async def close(self) -> None:
        """Finish the work that was given and close the database."""
        await asyncio.shield(self._submit(self._engine.dispose))
        self._thread.shutdown()
        if self._lock is not None:
            self._lock.release()

    async def contents(self) -> Contents:
        """Everything that is stored."""

        def read() -> Contents:
            with self._engine.begin() as connection:
                return Transaction(connection).contents()

        return await self._submit(read)

    def change(self, decide: Callable[[Transaction], tuple[T, bool]]) -> "asyncio.Future[T]":
        """Run `decide` in a transaction; keep what it wrote if its second answer is true. The future has the first.

        Once given the work is done, whether or not anybody waits for it; futures end in the order of the work.
        """

        def work() -> T:
            with self._engine.connect() as connection, connection.begin() as database_transaction:
                transaction = Transaction(connection)
                transaction.begin_change()
                answer, keep = decide(transaction)
                if not keep:
                    database_transaction.rollback()
                return answer

        return self._submit(work)

    def _submit(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        def guarded() -> T:
            with _database_errors():
                return work()

        return asyncio.get_running_loop().run_in_executor(self._thread, guarded)


def _url(database_url: str, data_dir: Path) -> sa.URL:
    if not database_url:
        try:
            data_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Invalid(
                f"the folder {data_dir} cannot be made: {error.strerror}; give one that this user may write",
                field="data_dir",
            ) from error
        return sa.URL.create("sqlite", database=str(data_dir.absolute() / FILE_NAME))
    try:
        url = sa.make_url(database_url)
    except sa.exc.ArgumentError as error:
        raise Invalid(
            "this is no database URL; give one like sqlite:////var/lib/ortoo/namesrv.db, or leave it empty",
            field="database_url",
        ) from error
    if url.get_backend_name() == "sqlite" and (url.database or "").startswith((":", "file:")):
        raise Invalid("the database must be a plain file, sqlite:///PATH; topics must survive", field="database_url")
    return url


def _engine(url: sa.URL) -> sa.Engine:
    try:
        engine = sa.create_engine(url)
    except ModuleNotFoundError as error:
        raise Unsupported(
            f"the database driver {error.name} is not installed; install it", field="database_url"
        ) from error
    except sa.exc.NoSuchModuleError as error:
        raise Invalid(
            f"no database {url.drivername!r} is known; use sqlite or postgresql", field="database_url"
        ) from error
    if engine.dialect.name == "sqlite":
        sa.event.listen(engine, "connect", _set_up_sqlite)
    return engine


def _set_up_sqlite(connection: Any, _: object) -> None:
    """Durable and without surprises: an answered change survives a power cut."""
    for pragma in ("journal_mode = WAL", "synchronous = FULL", f"busy_timeout = {BUSY_TIMEOUT_S * 1000}"):
        connection.execute(f"PRAGMA {pragma}")


def _prepare(engine: sa.Engine) -> None:
    """Make the tables, or refuse those of a newer version."""
    with engine.begin() as connection:
        if sa.inspect(connection).has_table(tables.directory.name):
            stored = connection.execute(sa.select(tables.directory.c.schema_version)).scalar_one_or_none()
            if stored is not None and stored > tables.SCHEMA_VERSION:
                raise Unsupported(
                    f"the database has schema version {stored}, this name server knows {tables.SCHEMA_VERSION}; "
                    "start the newer name server, or give another database",
                    field="database_url",
                )
        tables.metadata.create_all(connection)
        if connection.execute(sa.select(tables.directory.c.id)).one_or_none() is None:
            row = {"id": 1, "schema_version": tables.SCHEMA_VERSION, "version": 0}
            connection.execute(sa.insert(tables.directory).values(row))


@contextlib.contextmanager
def _database_errors() -> Iterator[None]:
    try:
        yield
    except OrtooError:
        raise
    except sa.exc.OperationalError as error:
        raise Unavailable(
            f"the name server's database failed ({error.orig}); check that it runs and has space and rights, then "
            "retry; what is known already is still served",
            retry_after_ms=1000,
        ) from error
    except sa.exc.DatabaseError as error:
        raise DataLoss(
            f"the name server's database cannot be read ({error.orig}); put a copy of it back, or give another one "
            "with database_url or data_dir",
            field="database_url",
        ) from error
