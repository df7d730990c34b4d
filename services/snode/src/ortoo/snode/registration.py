"""Announces this snode to the name server again and again; that is its heartbeat."""

import contextlib

from ortoo.common.clock import Clock
from ortoo.common.errors import OrtooError
from ortoo.common.logs import get_logger
from ortoo.common.randomness import Randomness
from ortoo.common.retry import Backoff
from ortoo.snode.name_server import NameServer

_log = get_logger("registration")


class Registration:
    """One snode's lease at the name server."""

    def __init__(
        self,
        name_server: NameServer,
        name: str,
        address: str,
        *,
        shares_membership: bool,
        interval_s: float,
        clock: Clock,
        randomness: Randomness,
    ) -> None:
        """Announce `name` at `address` at least every `interval_s`, and oftener when the lease is short."""
        self._name_server = name_server
        self._name = name
        self._address = address
        self._incarnation = randomness.id_text()
        self._shares_membership = shares_membership
        self._interval_s = interval_s
        self._clock = clock
        self._randomness = randomness
        self._lease_s: float | None = None

    async def begin(self) -> None:
        """Announce for the first time, as long as it takes. Errors: those that will not go away by waiting."""
        attempt, backoff = 0, Backoff(first_s=0.1, max_s=1.0)
        while True:
            try:
                await self._announce()
                return
            except OrtooError as error:
                if not error.retriable:
                    raise
                self._name_server.pass_over(error)
            await self._clock.sleep(backoff.delay_s(attempt, self._randomness))
            attempt += 1

    async def run(self) -> None:
        """Keep the lease for ever. While no name server answers, the snode goes on serving."""
        backoff, attempt = Backoff(first_s=0.1, max_s=2.0), 0
        while True:
            wait_s = min(self._interval_s, (self._lease_s or self._interval_s) / 3)
            if attempt:
                wait_s = min(wait_s, backoff.delay_s(attempt - 1, self._randomness))
            await self._clock.sleep(wait_s)
            try:
                await self._announce()
                attempt = 0
            except OrtooError as error:
                if attempt == 0:
                    _log.error("the lease was not renewed; trying on", reason=str(error))
                self._name_server.pass_over(error)
                attempt += 1

    async def leave(self) -> None:
        """Give the lease back; nothing happens when the name server is away."""
        if self._lease_s is not None:
            with contextlib.suppress(OrtooError):
                await self._name_server.unregister(self._name)

    async def _announce(self) -> None:
        self._lease_s = await self._name_server.register(
            self._name, self._address, self._incarnation, shares_membership=self._shares_membership
        )
