"""A database on one thread, and the classification of its failures: retry, report as unavailable, or damaged data."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import sqlalchemy as sa

from ortoo.common.errors import DataLoss, OrtooError, Unavailable
from ortoo.common.logs.logger import get_logger
from ortoo.namesrv import log_events

T = TypeVar("T")
ATTEMPTS_MAX = 4
"""The number of attempts of a transaction of which nothing was stored."""
LOST_CONNECTION_STATES = frozenset({"57P01", "57P02", "57P03"})
"""PostgreSQL ended the connection; all states of class 08 mean the same."""
CONFLICT_STATES = frozenset({"40001", "40P01", "23505"})
"""A concurrent transaction changed the same rows. On a retry, the decision sees the new values."""
DAMAGE_CODES = frozenset({"XX001", "XX002"})
READ_ONLY_CODES = "25006"
SQLITE_IO_ERROR, SQLITE_DAMAGED = 10, frozenset({11, 26})
_log = get_logger("catalog")


class TransactionRunner:
    """Runs transactions of one engine, one at a time, and translates their failures."""

    def __init__(self, engine: sa.Engine) -> None:
        self._is_committing = False
        sa.event.listen(engine, "commit", self._committing)

    def run(self, work: Callable[[], T]) -> T:
        """Run `work`, which is one transaction. It is retried a few times if it stored nothing and a retry can succeed.

        Errors: those of `work`, Unavailable (whose text says whether the outcome is unknown), DataLoss for a damaged
        database.
        """
        for last in (False,) * (ATTEMPTS_MAX - 1) + (True,):
            self._is_committing = False
            try:
                return work()
            except sa.exc.DBAPIError as error:
                if last or not self._is_retriable(error):
                    raise self._translated(error) from error
                _log.emit(log_events.DATABASE_TRANSACTION_RETRIED, reason=str(error.orig))
            except sa.exc.TimeoutError as error:
                raise _unavailable(error) from error
        raise AssertionError("the last try ends the loop")

    def _committing(self, connection: sa.Connection) -> None:
        self._is_committing = True

    def _is_retriable(self, error: sa.exc.DBAPIError) -> bool:
        return _sqlstate_of(error) in CONFLICT_STATES or (_is_connection_lost(error) and not self._is_committing)

    def _translated(self, error: sa.exc.DBAPIError) -> OrtooError:
        state, code = _sqlstate_of(error), getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
        if state in DAMAGE_CODES or code in SQLITE_DAMAGED:
            return DataLoss(
                f"the name server's database is damaged ({_line(error.orig)}); restore a copy of it, or configure "
                "another one with database_url or data_dir",
                field="database_url",
            )
        if self._is_committing and (_is_connection_lost(error) or code == SQLITE_IO_ERROR):
            return Unavailable(
                f"the name server's database failed while it stored the change ({_line(error.orig)}): the outcome is "
                "unknown. Check whether it was stored, or make the change again",
                retry_after_ms=1000,
            )
        if state == READ_ONLY_CODES:
            return Unavailable(
                "the name server's database is read-only: set database_url to the primary. The directory as last read "
                "is still served",
                retry_after_ms=1000,
            )
        return _unavailable(error.orig)


class Database(TransactionRunner):
    """A database engine and its thread.

    Concurrency: the event loop submits. The thread runs one transaction at a time, in the order of submission. Other
    name servers may run theirs in the same database at the same time.
    Durability: a transaction is committed, all or none of its changes, when its future has a result.
    Errors: as `TransactionRunner.run`.
    """

    def __init__(self, engine: sa.Engine, name: str) -> None:
        """`name` is the name of the thread."""
        super().__init__(engine)
        self.engine = engine
        self.thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self.failure = ""
        """Why the last request got no answer; empty if it did."""

    def submit(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Run `work`, which is one transaction, on the thread. Retries and errors: as in `TransactionRunner.run`."""
        future = asyncio.get_running_loop().run_in_executor(self.thread, self.run, work)
        future.add_done_callback(self._record_failure)
        return future

    def submit_transaction(self, decide: Callable[[sa.Connection], T]) -> "asyncio.Future[T]":
        """Run `decide` on a connection, in one transaction on the thread."""

        def work() -> T:
            with self.engine.begin() as connection:
                return decide(connection)

        return self.submit(work)

    async def close(self) -> None:
        """Finish the submitted transactions and close the connections."""
        await asyncio.shield(self.submit(self.engine.dispose))
        self.thread.shutdown()

    def _record_failure(self, done: "asyncio.Future[Any]") -> None:
        error = None if done.cancelled() else done.exception()
        if error is None or isinstance(error, Unavailable | DataLoss):
            self.failure = "" if error is None else str(error)


def _sqlstate_of(error: sa.exc.DBAPIError) -> str:
    """The SQLSTATE of an error; empty if the error has none."""
    return getattr(error.orig, "sqlstate", None) or ""


def _is_connection_lost(error: sa.exc.DBAPIError) -> bool:
    state = _sqlstate_of(error)
    return error.connection_invalidated or state in LOST_CONNECTION_STATES or state.startswith("08")


def _line(reason: object) -> str:
    """The text of a driver's error, which may have several lines, as one line."""
    return " ".join(str(reason).split())


def _unavailable(reason: object) -> Unavailable:
    return Unavailable(
        f"the name server's database failed ({_line(reason)}). Check that it runs and has space and permissions, then "
        "retry; the directory as last read is still served",
        retry_after_ms=1000,
    )
