"""Exclusive rights: at most one owner of a resource at any time, and a larger epoch for each new owner.

A right is a lease in the database, measured by the database's clock. Name servers with different clocks therefore never
grant a right to two owners. An owner that lost its right without noticing is fenced by the epoch.
"""

import dataclasses

import sqlalchemy as sa

from ortoo.common.errors import Conflict, Fenced, Invalid
from ortoo.namesrv.catalog import tables
from ortoo.namesrv.catalog.transaction import database_now_ms

LEASE_MS_MIN, LEASE_MS_MAX = 100, 3_600_000
TEXT_LENGTH_MAX = 255


@dataclasses.dataclass(frozen=True, slots=True)
class NamedLease:
    """A granted exclusive right: the resource, its owner, the epoch, and the remaining time."""

    resource: str
    owner: str
    epoch: int
    remaining_ms: int


class NamedLeases:
    """Grants and releases exclusive rights in one open transaction."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def acquire(self, resource: str, owner: str, lease_ms: int) -> NamedLease:
        """Grant or renew the right to a resource. A renewal keeps the epoch; a new grant increments it.

        Errors: Invalid, Conflict (which names the owner) while another owner has the right.
        """
        _check_lengths(resource, owner)
        if not LEASE_MS_MIN <= lease_ms <= LEASE_MS_MAX:
            raise Invalid(f"{lease_ms}; give {LEASE_MS_MIN} to {LEASE_MS_MAX}", field="lease_ms")
        row, now_ms = self._lock_row(resource)
        if row is not None and row.until_ms > now_ms and row.owner != owner:
            raise Conflict(
                f"{resource} belongs to {row.owner} in epoch {row.epoch} for another {row.until_ms - now_ms} ms; "
                "retry after that time",
                field="resource",
                retry_after_ms=row.until_ms - now_ms,
            )
        held = row is not None and row.owner == owner and row.until_ms > now_ms
        epoch = 1 if row is None else row.epoch if held else row.epoch + 1
        values = {"owner": owner, "epoch": epoch, "until_ms": now_ms + lease_ms}
        table = tables.rights
        if row is None:
            self._connection.execute(sa.insert(table).values(resource=resource, **values))
        else:
            self._connection.execute(sa.update(table).where(table.c.resource == resource).values(**values))
        return NamedLease(resource, owner, epoch, lease_ms)

    def release(self, resource: str, owner: str, epoch: int) -> None:
        """Release a right; no effect if it was released already. Errors: Invalid, Fenced for another owner or epoch."""
        _check_lengths(resource, owner)
        row, _ = self._lock_row(resource)
        if row is None or row.until_ms == 0:
            return
        if (row.owner, row.epoch) != (owner, epoch):
            raise Fenced(
                f"{resource} belongs to {row.owner} in epoch {row.epoch}, not to {owner} in {epoch}", field="epoch"
            )
        table = tables.rights
        self._connection.execute(sa.update(table).where(table.c.resource == resource).values(until_ms=0))

    def _lock_row(self, resource: str) -> tuple[sa.Row[tuple[object, ...]] | None, int]:
        """The stored right and the database's time. Other changes of rights wait for the end of the transaction."""
        # One row of another table is locked for all rights, since a right that does not exist yet has no row to lock.
        self._connection.execute(sa.select(tables.directory.c.id).with_for_update())
        found = self._connection.execute(sa.select(tables.rights).where(tables.rights.c.resource == resource))
        return found.one_or_none(), database_now_ms(self._connection)


def _check_lengths(resource: str, owner: str) -> None:
    for field, text in (("resource", resource), ("owner", owner)):
        if not 1 <= len(text) <= TEXT_LENGTH_MAX:
            raise Invalid(f"{len(text)} characters; give 1 to {TEXT_LENGTH_MAX}", field=field)
