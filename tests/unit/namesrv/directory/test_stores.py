"""The registered stores of enodes: while the database does not answer, and the log ends that are stored with them."""

import logging
from typing import Any, cast

import pytest

from ortoo.common.errors import Conflict, OrtooError, Unavailable
from ortoo.common.process.clock import SystemClock
from ortoo.namesrv import log_events
from ortoo.namesrv.decisions.known_stores import LOG_END_INTERVAL_S, EnodeLog, KnownStore
from ortoo.namesrv.directory.stores import StoresOfEnodes
from ortoo.verification.time.virtual_clock import VirtualClock


class StoredRows:
    """The rows of a database that can be down."""

    def __init__(self) -> None:
        self.error: OrtooError | None = None
        self.rows: dict[str, KnownStore] = {}

    async def all(self) -> dict[str, KnownStore]:
        """All rows. Errors: Unavailable."""
        if self.error is not None:
            raise self.error
        return self.rows

    async def put(self, store: KnownStore) -> KnownStore:
        """Store a row, unless the stored one has the same or a higher version. Errors: Unavailable."""
        if self.error is not None:
            raise self.error
        found = self.rows.get(store.enode)
        if found is None or found.version < store.version:
            self.rows[store.enode] = store
        return self.rows[store.enode]


async def test_each_outage_of_the_database_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """A read that succeeds ends an outage, so that the next one is logged as well."""
    stored = StoredRows()
    stores = StoresOfEnodes(cast("Any", stored), shared=True, clock=SystemClock())
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            stored.error = None
            await stores.refresh()
            stored.error = Unavailable("the database does not answer")
            await stores.refresh()
            await stores.refresh()
    assert caplog.text.count(log_events.STORES_NOT_KEPT.name) == 2


def name_server(stored: StoredRows, clock: VirtualClock) -> StoresOfEnodes:
    """The stores as one of several name servers knows them."""
    return StoresOfEnodes(cast("Any", stored), shared=True, clock=clock)


async def registered(stores: StoresOfEnodes, log: EnodeLog) -> None:
    """Register the enode's store as `RegisterEnode` does. Errors: Conflict."""
    stores.check("e", "store", "", log)
    await stores.note("e", "store", log=log)


async def test_a_log_end_is_stored_at_a_start_and_then_seldom() -> None:
    """Each heartbeat reports it, and each write costs the database one."""
    clock, stored = VirtualClock(), StoredRows()
    stores = name_server(stored, clock)
    ends = []
    for heartbeat in range(10):
        await registered(stores, EnodeLog(7, 0, 100 * heartbeat))
        ends.append(stored.rows["e"].log_end)
        await clock.pass_time(LOG_END_INTERVAL_S / 4)
    assert ends == [0, 0, 0, 0, 400, 400, 400, 400, 800, 800]
    await registered(stores, EnodeLog(8, 900, 950))
    assert (stored.rows["e"].log_start, stored.rows["e"].log_end) == (8, 950)


async def test_a_name_server_that_knows_an_older_end_refuses_by_the_stored_one() -> None:
    """It learns of the longer log when it stores its own knowledge."""
    clock, stored = VirtualClock(), StoredRows()
    one, other = name_server(stored, clock), name_server(stored, clock)
    for stores in (one, other):
        await registered(stores, EnodeLog(7, 0, 100))
    await clock.pass_time(LOG_END_INTERVAL_S)
    await registered(one, EnodeLog(7, 0, 500))
    for _ in range(2):
        with pytest.raises(Conflict, match="durable up to position 500"):
            await registered(other, EnodeLog(8, 200, 200))
    await registered(other, EnodeLog(9, 500, 600))
    await one.refresh()
    await registered(one, EnodeLog(9, 500, 600))


async def test_an_end_that_was_reported_while_the_database_was_away_is_stored_later() -> None:
    """Meanwhile it counts at this name server."""
    clock, stored = VirtualClock(), StoredRows()
    stores = name_server(stored, clock)
    stored.error = Unavailable("the database does not answer")
    await registered(stores, EnodeLog(7, 0, 500))
    with pytest.raises(Conflict):
        await registered(stores, EnodeLog(8, 200, 200))
    stored.error = None
    await registered(stores, EnodeLog(7, 0, 500))
    assert stored.rows["e"].log_end == 500
