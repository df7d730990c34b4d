"""Keeps a process's lease at every name server, because each name server holds its own list of processes.

A restarted name server therefore knows all processes within a heartbeat. While a name server is down, the others serve.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator

from ortoo.common.cluster.name_servers import NameServers
from ortoo.common.cluster.refused import OTHER_STORE_FIELDS, refused
from ortoo.common.errors import Conflict, Fenced, OrtooError
from ortoo.common.errors.findings import Finding
from ortoo.common.errors.handshakes import reason_of, remedy_for
from ortoo.common.logs import log_events
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.background import Background, pause
from ortoo.common.process.clock import Clock
from ortoo.common.process.randomness import Randomness
from ortoo.common.process.retry import Backoff

_log = get_logger("registration")


class Registrations:
    """The leases of one process at the name servers.

    `register` takes a name server's address, requests a lease there, and returns the lease in seconds.
    """

    def __init__(
        self,
        name_servers: NameServers,
        register: Callable[[str], Awaitable[float]],
        unregister: Callable[[str], Awaitable[object]],
        *,
        interval_s: float,
        clock: Clock,
        randomness: Randomness,
    ) -> None:
        """Announce at least every `interval_s`, more often for a short lease.

        `unregister` takes a name server's address and releases the lease there.
        """
        self._name_servers = name_servers
        self._register = register
        self._unregister = unregister
        self._interval_s = interval_s
        self._clock = clock
        self._randomness = randomness
        self._due: dict[str, asyncio.Event] = {}
        self._registered: dict[str, None] = {}
        self._failures: dict[str, OrtooError] = {}
        """By name server: why the last request for a lease failed."""
        self._was_registered = False
        self.answered: Callable[[], object] = lambda: None
        """Called after each request for a lease, granted or not."""

    @property
    def is_discoverable(self) -> bool:
        """Whether other processes can still find this process, at a name server or in their copies of its answers.

        An outage of all name servers leaves the value unchanged. A name server's refusal can make it false, because
        then another process has this name.
        """
        is_refused = any(isinstance(error, Conflict | Fenced) for error in self._failures.values())
        return bool(self._registered) or (self._was_registered and not is_refused)

    @property
    def other_store(self) -> str:
        """The error of a name server that has registered another store for this enode; empty if there is none.

        A refusal that only waits until the lease of the enode's former process expires is not returned.
        """
        errors = (one for one in self._failures.values() if isinstance(one, Conflict))
        return next((one.message for one in errors if one.field in OTHER_STORE_FIELDS), "")

    @property
    def is_registered(self) -> bool:
        """Whether at least one name server granted a lease at the last request to it."""
        return bool(self._registered)

    async def register_first(self) -> None:
        """Register at one name server after another until one grants a lease. Errors: those that are not retriable."""
        attempt, backoff = 0, Backoff(first_s=0.1, max_s=1.0)
        while True:
            address = self._name_servers.current
            try:
                await self._register(address)
                self._registered[address] = None
                return
            except OrtooError as error:
                if not error.retriable:
                    raise
                self._name_servers.next_after(address)
            await self._clock.sleep(backoff.delay_s(attempt, self._randomness))
            attempt += 1

    def register_now(self) -> None:
        """Register now, because a name server has just returned and may have lost its leases."""
        for due in self._due.values():
            due.set()

    async def run(self) -> None:
        """Keep all leases until cancelled. While no name server answers, this retries; a defect ends the process."""
        tasks: dict[str, asyncio.Task[object]] = {}
        async with Background("registration") as background:
            while True:
                changed, wanted = self._name_servers.changed, self._name_servers.addresses
                for address in [one for one in tasks if one not in wanted]:
                    tasks.pop(address).cancel()
                    self._due.pop(address, None)
                    self._failures.pop(address, None)
                for address in wanted:
                    if address not in tasks:
                        self._due[address] = asyncio.Event()
                        tasks[address] = background.spawn(address, self._renew(address, self._due[address]))
                await changed.wait()

    async def unregister_all(self) -> None:
        """Release all leases; a name server that does not answer is skipped."""

        async def one(address: str) -> None:
            with contextlib.suppress(OrtooError):
                await self._unregister(address)

        await asyncio.gather(*map(one, self._registered))

    def findings(self) -> Iterator[Finding]:
        """A finding for each name server that did not grant a lease at the last request to it."""
        for address, error in sorted(self._failures.items()):
            if isinstance(error, Conflict | Fenced):
                yield refused(f"the name server {address} refuses this process: {error.message}", error)
            else:
                yield Finding(
                    "name server unavailable",
                    f"the name server {address} granted no lease: {reason_of(error)}",
                    "when no name server is left, processes do not learn of changes of topics, groups and processes",
                    remedy_for(error, "start it, or check its log and its database; or remove it from namesrv_address"),
                    subject=address,
                )

    async def _renew(self, address: str, due: asyncio.Event) -> None:
        backoff, attempt = Backoff(first_s=0.1, max_s=2.0), 0
        while True:
            due.clear()
            try:
                lease_s = await self._register(address)
            except OrtooError as error:
                if attempt == 0:
                    _log.emit(log_events.REGISTRATION_FAILED_RETRYING, name_server=address, reason=str(error))
                self._registered.pop(address, None)
                self._failures[address] = error
                self.answered()
                wait_s = backoff.delay_s(attempt, self._randomness)
                attempt += 1
            else:
                if address not in self._registered or attempt:
                    _log.emit(log_events.REGISTRATION_SUCCEEDED, name_server=address)
                self._registered[address] = None
                self._failures.pop(address, None)
                self._was_registered = True
                self.answered()
                attempt, wait_s = 0, min(self._interval_s, lease_s / 3)
            await pause(wait_s, due, self._clock)
