"""One connected client for each signed-in user. Calls use the credentials of that user and no others."""

import asyncio
from dataclasses import dataclass, field

from ortoo.client import Client
from ortoo.client.core.connection import Connection
from ortoo.client.core.credentials import Credentials
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.common.process.randomness import Randomness
from ortoo.console.cluster.endpoints import ClusterEndpoint

CALL_TIMEOUT_S = 3.0
"""Limit of each call, so that a page appears soon although a process does not answer."""
CALL_ATTEMPTS_MAX = 2


@dataclass(eq=False, slots=True)
class _OpenClient:
    """A client, and the event that closes it."""

    ready: asyncio.Future[Client]
    closing: asyncio.Event = field(default_factory=asyncio.Event)


class Clients:
    """The connected clients of a cluster, by credentials. Each is opened at its first use and closed by `close`."""

    def __init__(self, endpoint: ClusterEndpoint, clock: Clock, randomness: Randomness, background: Background) -> None:
        """Connections stay open in tasks of `background`."""
        self._endpoint = endpoint
        self._clock = clock
        self._randomness = randomness
        self._background = background
        self._open: dict[Credentials | None, _OpenClient] = {}

    async def client(self, credentials: Credentials | None) -> Client:
        """The client of a user; without credentials, calls are not signed."""
        entry = self._open.get(credentials)
        if entry is None:
            entry = _OpenClient(asyncio.get_running_loop().create_future())
            self._open[credentials] = entry
            self._background.run_contained("client", self._hold(credentials, entry))
        return await asyncio.shield(entry.ready)

    def close(self, credentials: Credentials | None) -> None:
        """Close the client of a user without sessions."""
        entry = self._open.pop(credentials, None)
        if entry is not None:
            entry.closing.set()

    async def _hold(self, credentials: Credentials | None, entry: _OpenClient) -> None:
        """Keep a client open until it is closed. A failed start is raised where the client is awaited."""
        try:
            async with self._connected(credentials) as client:
                entry.ready.set_result(client)
                await entry.closing.wait()
        except Exception as error:
            if self._open.get(credentials) is entry:
                del self._open[credentials]
            if entry.ready.done():
                raise
            entry.ready.set_exception(error)

    def _connected(self, credentials: Credentials | None) -> Client:
        """A client without the defaults of the environment: they are those of the console's operator."""
        chosen = self._endpoint

        def make_connection() -> Connection:
            return Connection(
                list(chosen.addresses),
                clock=self._clock,
                randomness=self._randomness,
                credentials=credentials,
                tls=chosen.tls(),
                call_timeout_s=CALL_TIMEOUT_S,
                attempts_max=CALL_ATTEMPTS_MAX,
            )

        return Client(make_connection)
