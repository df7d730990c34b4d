"""The snodes' Redis: fakeredis on virtual time, behind a network with delays and outages."""

import asyncio
import contextlib
import copy
import math
import sys
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import fakeredis
import redis
import redis.asyncio
from fakeredis.aioredis import AsyncFakeSocket, FakeAsyncRedisConnection, FakeReader, FakeWriter

from ortoo.common.process.randomness import Randomness
from ortoo.testing.simulation.kernel.clock import EPOCH_MS
from ortoo.testing.simulation.kernel.event_loop import VirtualLoop
from ortoo.testing.simulation.kernel.process import SimulatedProcess, current_process
from ortoo.testing.simulation.kernel.random_streams import RandomStreams

CALL_TIMEOUT_S = 2.0
DELAY_S = (0.000_2, 0.002)
_BROKEN = object()
_COLLECT = "collectgarbage()"
"""The statement that fakeredis appends to each Lua script."""


class SimulatedRedis:
    """The server and its network."""

    def __init__(self, loop: VirtualLoop, chances: RandomStreams) -> None:
        """A server without data."""
        self.loop = loop
        self.server = fakeredis.FakeServer(version=(7, 4))
        self.sockets: list[_Socket] = []
        """Open connections, in the order of their creation."""
        self._chances = chances
        self._silent = False
        self._held: list[Callable[[], None]] = []
        self._connections = 0

    @property
    def is_silent(self) -> bool:
        """Whether it accepts connections and does not answer."""
        return self._silent

    def stop_answering(self) -> None:
        """Stop answering, as a frozen machine does."""
        self._silent = True

    def resume_answering(self) -> None:
        """Handle the requests sent meanwhile, and answer again."""
        self._silent = False
        held, self._held = self._held, []
        for one in held:
            one()

    def flush_all(self) -> None:
        """Drop everything, as an operator's FLUSHALL."""
        with self.server.lock:
            for database in self.server.dbs.values():
                database.clear()

    def snapshot(self) -> dict[int, dict[bytes, Any]]:
        """A copy of its data, for `fail_over`."""
        return {number: copy.deepcopy(database._dict) for number, database in self.server.dbs.items()}

    def fail_over(self, replica: dict[int, dict[bytes, Any]]) -> None:
        """Continue with a replica's data, `snapshot` earlier; every connection breaks."""
        self.flush_all()
        for number, kept in replica.items():
            self.server.dbs[number]._dict.update(copy.deepcopy(kept))
        for socket in list(self.sockets):
            socket.break_off()

    def on_process_killed(self, process: SimulatedProcess) -> None:
        """A process was killed; close its connections."""
        for socket in [one for one in self.sockets if one.process is process]:
            socket.end()

    def client(self, url: str) -> Any:
        """A client of `url` for `open_snode`."""
        pool = redis.asyncio.ConnectionPool(
            connection_class=_Connection,
            simulated=self,
            server=self.server,
            socket_timeout=None,
            socket_connect_timeout=CALL_TIMEOUT_S,
            decode_responses=True,
        )
        return redis.asyncio.Redis(connection_pool=pool)

    def connection_chance(self) -> tuple[int, Randomness]:
        """The number of the next connection, and its randomness."""
        self._connections += 1
        return self._connections, self._chances.stream(f"redis connection {self._connections}")

    def arrive(self, work: Callable[[], None]) -> None:
        """Run `work` at the server, when it is not silent."""
        if self._silent:
            self._held.append(work)
        else:
            work()


class _Socket(AsyncFakeSocket):
    """A connection: requests and answers are delayed, and keep their order."""

    def __init__(self, simulated: SimulatedRedis, *arguments: Any, **named: Any) -> None:
        self.number, self._chance = simulated.connection_chance()
        self.process = current_process() or simulated.loop.outside
        self._simulated = simulated
        self._sent_until_s = self._answered_until_s = 0.0
        super().__init__(simulated.server, *arguments, **named)
        simulated.sockets.append(self)

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other

    def sendall(self, data: Any) -> None:
        """Deliver it to the server after a delay."""
        loop = self._simulated.loop
        self._sent_until_s = max(self._sent_until_s, loop.time() + self._chance.uniform(*DELAY_S))
        loop.call_at(
            self._sent_until_s,
            self._simulated.arrive,
            lambda: self._take(data),
            context=loop.outside.context,
        )

    def put_response(self, msg: Any) -> None:
        """Deliver it to the client after a delay."""
        loop = self._simulated.loop
        self._answered_until_s = max(self._answered_until_s, loop.time() + self._chance.uniform(*DELAY_S))
        loop.call_at(self._answered_until_s, self._give, msg, context=self.process.context)

    def _get_server_runtime(self, server: Any) -> Any:
        if not isinstance(known := getattr(server, "_lua_runtime", None), _Scripts):
            known = server._lua_runtime = _Scripts(super()._get_server_runtime(server))
        return known

    def break_off(self) -> None:
        """Close the connection from the server's side."""
        self.end()
        self._give(_BROKEN)

    def end(self) -> None:
        """Remove this connection from the server."""
        if self in self._simulated.sockets:
            self._simulated.sockets.remove(self)
            self.kill()

    def _take(self, data: Any) -> None:
        if not self._killed:
            super().sendall(data)

    def _give(self, msg: Any) -> None:
        super().put_response(msg)


class _Scripts:
    """fakeredis' Lua, which compiles each script once as a server does, and leaves garbage collection to Lua."""

    def __init__(self, lua: Any) -> None:
        self._lua = lua
        self._compiled: dict[bytes, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lua, name)

    def execute(self, script: Any) -> Any:
        """Run a script."""
        if script == _COLLECT:
            return None
        if script not in self._compiled:
            self._compiled[script] = self._lua.compile(script)
        return self._compiled[script]()


class _Connection(FakeAsyncRedisConnection):
    """redis-py's connection over such a socket, with its timeouts on a real one."""

    def __init__(self, *, simulated: SimulatedRedis, **named: Any) -> None:
        self._simulated = simulated
        super().__init__(**named)

    async def _connect(self) -> None:
        self._sock = _Socket(
            self._simulated,
            self.db,
            client_class=self._client_class,
            lua_modules=self._lua_modules,
            client_info=self._client_info,
        )
        self._reader, self._writer = FakeReader(self._sock), FakeWriter(self._sock)

    async def disconnect(self, nowait: bool = False, **named: Any) -> None:  # type: ignore[override]  # as fakeredis
        if isinstance(self._sock, _Socket):
            self._sock.end()
        await super().disconnect(nowait=nowait, **named)

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        """Send it; this network accepts any amount at once, so that no timeout is needed."""
        if not self.is_connected:
            await self.connect_check_health(check_health=False)
        if self._writer is None:
            raise redis.ConnectionError("the connection is closed")
        self._writer.writelines([command] if isinstance(command, bytes) else command)

    async def can_read(self, timeout: float | None = 0) -> bool:
        """Wait for an answer, for `timeout` at most; None = without limit."""
        if not self.is_connected:
            await self.connect()  # type: ignore[no-untyped-call]
        try:
            async with asyncio.timeout(timeout):
                while self._sock is not None and self._sock.responses.empty():
                    self._sock._response_available.clear()
                    await self._sock._response_available.wait()
        except TimeoutError:
            return False
        return self._sock is not None

    async def _read_response(self, **named: Any) -> Any:
        timeout = named.pop("timeout", None)
        limit = self.socket_timeout if timeout is None else None if timeout == math.inf else timeout
        if self._reader is None:
            raise redis.ConnectionError("the connection is closed")
        if not await self.can_read(limit):
            if timeout is None:
                raise redis.TimeoutError("no answer from the server in time")
            return None
        response: Any = await self._reader.read(0)
        if response is _BROKEN:
            raise redis.ConnectionError("the server closed the connection")
        return response


@contextlib.contextmanager
def virtual_redis_time(loop: VirtualLoop) -> Iterator[None]:
    """Let fakeredis use the time of `loop` within the block."""
    virtual = types.SimpleNamespace(
        time=lambda: EPOCH_MS / 1000 + loop.time(), monotonic=loop.time, sleep=None, perf_counter=loop.time
    )
    patched = [
        module
        for name, module in sorted(sys.modules.items())
        if name.startswith("fakeredis") and getattr(module, "time", None) is time
    ]
    for module in patched:
        module.time = virtual  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module in patched:
            module.time = time  # type: ignore[attr-defined]
