"""The registered stores of enodes while the database does not answer."""

import logging
from typing import Any, cast

import pytest

from ortoo.common.errors import OrtooError, Unavailable
from ortoo.namesrv import log_events
from ortoo.namesrv.decisions.process_leases import KnownStore
from ortoo.namesrv.directory.stores import StoresOfEnodes


class StoredRows:
    """The rows of a database that can be down."""

    def __init__(self) -> None:
        self.error: OrtooError | None = None
        self._rows: dict[str, KnownStore] = {}

    async def all(self) -> dict[str, KnownStore]:
        """All rows. Errors: Unavailable."""
        if self.error is not None:
            raise self.error
        return self._rows


async def test_each_outage_of_the_database_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """A read that succeeds ends an outage, so that the next one is logged as well."""
    stored = StoredRows()
    stores = StoresOfEnodes(cast("Any", stored), shared=True)
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            stored.error = None
            await stores.refresh()
            stored.error = Unavailable("the database does not answer")
            await stores.refresh()
            await stores.refresh()
    assert caplog.text.count(log_events.STORES_NOT_KEPT.name) == 2
