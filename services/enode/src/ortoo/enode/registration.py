"""Announces this enode to the name server again and again; that is its heartbeat."""

import asyncio
import contextlib

from ortoo.common.clock import Clock
from ortoo.common.errors import OrtooError
from ortoo.common.grpc_channels import Channels
from ortoo.common.logs import get_logger
from ortoo.common.name_servers import NameServers
from ortoo.common.randomness import Randomness
from ortoo.common.retry import Backoff
from ortoo.common.status import rpc_errors
from ortoo.v1 import namesrv_pb2, namesrv_pb2_grpc, topic_pb2

CALL_TIMEOUT_S = 3.0
LEAVE_TIMEOUT_S = 1.0
_log = get_logger("registration")


class Registration:
    """One enode's lease at the name server."""

    def __init__(
        self,
        enode: topic_pb2.Enode,
        name_servers: NameServers,
        channels: Channels,
        *,
        interval_s: float,
        clock: Clock,
        randomness: Randomness,
    ) -> None:
        """Announce `enode` at least every `interval_s`, and oftener when the lease is short."""
        self._enode = enode
        self._name_servers = name_servers
        self._channels = channels
        self._interval_s = interval_s
        self._clock = clock
        self._randomness = randomness
        self._due = asyncio.Event()
        self._registered = False

    def hurry(self) -> None:
        """Announce now: the name server has just come back, perhaps without its memory of us."""
        self._due.set()

    async def run(self) -> None:
        """Keep the lease for ever. While no name server answers, the enode goes on serving."""
        backoff, attempt = Backoff(first_s=0.1, max_s=2.0), 0
        while True:
            address = self._name_servers.current
            self._due.clear()
            try:
                lease_s = await self._announce(address)
            except OrtooError as error:
                if attempt == 0:
                    _log.error("not registered; trying on", name_server=address, reason=str(error))
                self._registered = False
                self._name_servers.next_after(address)
                wait_s = backoff.delay_s(attempt, self._randomness)
                attempt += 1
            else:
                if not self._registered:
                    _log.info("registered", name_server=address, enode=self._enode.name, address=self._enode.address)
                self._registered, attempt = True, 0
                wait_s = min(self._interval_s, lease_s / 3)
            await self._pause(wait_s)

    async def leave(self) -> None:
        """Give the lease back; nothing happens when the name server is away."""
        if not self._registered:
            return
        address = self._name_servers.current
        request = namesrv_pb2.UnregisterRequest(enode=self._enode.name)
        with contextlib.suppress(OrtooError), rpc_errors(address):
            await self._stub(address).Unregister(request, timeout=LEAVE_TIMEOUT_S)

    async def _announce(self, address: str) -> float:
        with rpc_errors(f"name server {address}"):
            answer = await self._stub(address).RegisterEnode(
                namesrv_pb2.RegisterEnodeRequest(enode=self._enode), timeout=CALL_TIMEOUT_S
            )
        return answer.lease_ms / 1000

    async def _pause(self, seconds: float) -> None:
        """Wait, or until somebody hurries."""
        async with asyncio.TaskGroup() as group:
            sleeping = group.create_task(self._clock.sleep(seconds))
            hurried = group.create_task(self._due.wait())
            await asyncio.wait({sleeping, hurried}, return_when=asyncio.FIRST_COMPLETED)
            sleeping.cancel()
            hurried.cancel()

    def _stub(self, address: str) -> namesrv_pb2_grpc.NameServiceStub:
        return namesrv_pb2_grpc.NameServiceStub(self._channels.to(address))
