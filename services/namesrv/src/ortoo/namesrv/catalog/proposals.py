"""Who was proposed to lead which enode, as all name servers over one database know it.

It is reached by a connection and a thread of its own with short limits: a take-over waits for no other work on the
database, and a report of a member is answered soon although the database is not.
"""

from typing import Any

import sqlalchemy as sa

from ortoo.namesrv.catalog import tables
from ortoo.namesrv.catalog.database import Database
from ortoo.namesrv.decisions.members import MemberId, Proposal


class Proposals:
    """The stored proposals: one for each enode, the last."""

    def __init__(self, database: Database) -> None:
        """They are kept there."""
        self._database = database

    async def all(self) -> dict[str, Proposal]:
        """The last proposal of every enode, in one statement. Errors: Unavailable, DataLoss."""

        def read(connection: sa.Connection) -> dict[str, Proposal]:
            return {row.enode: _proposal(row) for row in connection.execute(sa.select(tables.proposals))}

        return await self._database.within(read)

    async def propose(self, enode: str, expected_epoch: int, proposal: Proposal) -> Proposal:
        """Store a proposal in place of the one of `expected_epoch`, if that is still the last; what is stored then.

        An epoch that is not above the stored one is never stored. Errors: Unavailable, DataLoss.
        """
        table = tables.proposals
        values = {"epoch": proposal.epoch, "number": proposal.leader.number, "disk": proposal.leader.disk}

        def work(connection: sa.Connection) -> Proposal:
            is_last = (table.c.enode == enode) & (table.c.epoch == expected_epoch)
            is_above = table.c.epoch < proposal.epoch
            if connection.execute(sa.update(table).where(is_last & is_above).values(values)).rowcount:
                return proposal
            found = connection.execute(sa.select(table).where(table.c.enode == enode)).one_or_none()
            if found is not None:
                return _proposal(found)
            connection.execute(sa.insert(table).values(enode=enode, **values))
            return proposal

        return await self._database.within(work)

    async def close(self) -> None:
        """Finish the work that was given and close the connection."""
        await self._database.close()


def _proposal(row: Any) -> Proposal:
    return Proposal(row.epoch, MemberId(row.number, row.disk))
