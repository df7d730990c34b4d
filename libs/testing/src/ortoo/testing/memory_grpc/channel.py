"""A channel: grpc.aio's own, above a core that connects in memory."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import grpc
from grpc.aio._channel import Channel

from ortoo.testing.memory_grpc.call_end import ChannelLimits
from ortoo.testing.memory_grpc.client_call import MemoryCall
from ortoo.testing.memory_grpc.connection import ConnectionEnd, MemoryConnection
from ortoo.testing.memory_grpc.node import Endpoint

State = grpc.ChannelConnectivity

BACKOFF_INITIAL_MS = 1_000
BACKOFF_MULTIPLIER = 1.6
BACKOFF_MAX_MS = 120_000
CONNECT_TIMEOUT_MS = 20_000
REFUSED = "Failed to connect to remote host: Connection refused"
SILENT = "connection attempt timed out before receiving SETTINGS frame"


class Dialer(Protocol):
    """Connects channels with servers."""

    def answers_in_s(self, source: Endpoint, address: str) -> float | None:
        """Seconds until the server's answer is known; None if it never is. Errors: ConnectionRefusedError."""

    def connect(self, address: str, client: ConnectionEnd) -> MemoryConnection:
        """Connect at once. Errors: ConnectionRefusedError."""


class CoreChannel:
    """Replaces the core below grpc.aio's channel: one connection at a time, made again after it broke.

    A failed attempt fails the waiting calls, except those that wait until the channel is ready. It is repeated after a
    back-off without jitter. Calls made meanwhile fail at once.
    """

    def __init__(self, dialer: Dialer, address: str, options: Sequence[tuple[str, object]], window_bytes: int) -> None:
        """Connects at the first call."""
        self.endpoint = Endpoint.here()
        self.loop = self.endpoint.loop
        self._dialer = dialer
        self._address = address
        self._limits = ChannelLimits(options, window_bytes)
        self._state = State.IDLE
        self._is_closed = False
        self._connection: MemoryConnection | None = None
        self._retired: dict[MemoryConnection, None] = {}
        self._queue: dict[MemoryCall, None] = {}
        self._watchers: list[asyncio.Future[bool]] = []
        self._failure = ""
        self._failures = 0
        self._begun_s = 0.0
        self._timer: asyncio.Handle | None = None
        if self.endpoint.node is not None:
            self.endpoint.node.add_kill_callback(self._killed)

    # Called by grpc.aio's channel.

    def call(
        self, method: bytes, deadline: float | None, credentials: object, wait_for_ready: bool | None, handle: int = 0
    ) -> MemoryCall:
        """Create a call whose deadline is on the loop's clock. Errors: UsageError."""
        if self._is_closed:
            raise grpc.aio.UsageError("Channel is closed.")
        if credentials is not None:
            raise grpc.aio.UsageError("Call credentials are only valid on secure channels")
        return MemoryCall(self, self.endpoint, self._limits, method.decode(), deadline, bool(wait_for_ready))

    def get_registered_call_handle(self, method: bytes) -> int:
        """Nothing is registered in memory."""
        return 0

    def check_connectivity_state(self, try_to_connect: bool) -> int:
        """The number of the state; with `try_to_connect` it leaves IDLE."""
        if try_to_connect and self._state is State.IDLE:
            self._connect()
        number: int = self._state.value[0]
        return number

    async def watch_connectivity_state(self, last_observed: int, deadline: float | None) -> bool:
        """Return when the state differs from the last observed one. Errors: UsageError."""
        if self._is_closed:
            raise grpc.aio.UsageError("Channel is closed.")
        while self._state.value[0] == last_observed:
            changed: asyncio.Future[bool] = self.loop.create_future()
            self._watchers.append(changed)
            await changed
        return True

    def closing(self) -> None:
        """Make no further calls."""
        self._is_closed = True

    def close(self) -> None:
        """Close its connections."""
        self._is_closed = True
        self._enter(State.SHUTDOWN)
        if self._timer is not None:
            self._timer.cancel()
        for connection in (*self._retired, *([self._connection] if self._connection else ())):
            connection.close("the channel was closed", at_server=False)
        if self.endpoint.node is not None:
            self.endpoint.node.remove_kill_callback(self._killed)

    def closed(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._is_closed

    # Called by its calls.

    def dispatch(self, call: MemoryCall) -> None:
        """Start the call when there is a connection."""
        if self._connection is not None:
            call.start(self._connection)
        elif self._state is State.TRANSIENT_FAILURE and not call.waits_for_ready:
            self.endpoint.soon(call.refuse, self._failure)
        else:
            self._queue[call] = None
            if self._state is State.IDLE:
                self._connect()

    def withdraw(self, call: MemoryCall) -> None:
        """The call ended before there was a connection."""
        self._queue.pop(call, None)

    # Called by its connections.

    def connection_lost(self, connection: MemoryConnection, details: str) -> None:
        """Be idle until the next call."""
        self._retired.pop(connection, None)
        self._drop(connection)

    def connection_retires(self, connection: MemoryConnection) -> None:
        """The server stops: be idle until the next call, while open calls continue over the old connection."""
        self._retired[connection] = None
        self._drop(connection)

    def _drop(self, connection: MemoryConnection) -> None:
        if connection is self._connection:
            self._connection = None
            self._enter(State.IDLE)

    def _connect(self) -> None:
        """Begin an attempt; after a failure the state stays until an attempt succeeds."""
        self._begun_s = self.loop.time()
        timeout_s = self._limits.number("grpc.min_reconnect_backoff_ms", CONNECT_TIMEOUT_MS) / 1000
        if self._state is State.IDLE:
            self._enter(State.CONNECTING)
        try:
            answer_s = self._dialer.answers_in_s(self.endpoint, self._address)
        except ConnectionRefusedError:
            self._timer = self.endpoint.soon(self._failed, REFUSED)
            return
        if answer_s is None or answer_s > timeout_s:
            self._timer = self.endpoint.at(self._begun_s + timeout_s, self._failed, SILENT)
        else:
            self._timer = self.endpoint.at(self._begun_s + answer_s, self._connected)

    def _connected(self) -> None:
        if not self.endpoint.is_alive or self._is_closed:
            return
        try:
            connection = self._dialer.connect(
                self._address, ConnectionEnd(self.endpoint, self, self._limits.keepalive_s)
            )
        except ConnectionRefusedError:
            self._failed(REFUSED)
            return
        self._failures = 0
        self._connection = connection
        self._enter(State.READY)
        queue, self._queue = self._queue, {}
        for call in queue:
            call.start(connection)

    def _failed(self, why: str) -> None:
        if not self.endpoint.is_alive or self._is_closed:
            return
        self._failure = f"failed to connect to all addresses; last error: UNKNOWN: ipv4:{self._address}: {why}"
        initial_ms = self._limits.number("grpc.initial_reconnect_backoff_ms", BACKOFF_INITIAL_MS)
        max_ms = self._limits.number("grpc.max_reconnect_backoff_ms", BACKOFF_MAX_MS)
        backoff_s = min(initial_ms * BACKOFF_MULTIPLIER ** min(self._failures, 50), max_ms) / 1000
        self._failures += 1
        self._timer = self.endpoint.at(self._begun_s + backoff_s, self._again)
        self._enter(State.TRANSIENT_FAILURE)
        for call in [call for call in self._queue if not call.waits_for_ready]:
            call.refuse(self._failure)

    def _again(self) -> None:
        if self.endpoint.is_alive and not self._is_closed:
            self._connect()

    def _enter(self, state: State) -> None:
        if state is self._state or self._state is State.SHUTDOWN:
            return
        self._state = state
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            if not watcher.done():
                watcher.set_result(True)

    def _killed(self, silently: bool) -> None:
        assert self.endpoint.node is not None
        self.endpoint.node.remains.append(self)
        for connection in (*self._retired, *([self._connection] if self._connection else ())):
            connection.kill_end(at_server=False, silently=silently)


class _OpenCalls:
    """grpc.aio's set of weak references to open calls, but ordered and strong.

    There the garbage collector cancels a call that its caller dropped. Here it stays open until it ends, because the
    moment of a collection differs between runs.
    """

    def __init__(self) -> None:
        self._calls: dict[Any, None] = {}

    def __iter__(self) -> Iterator[Any]:
        return iter(tuple(self._calls))

    def add(self, call: Any) -> None:
        self._calls[call] = None

    def discard(self, call: Any) -> None:
        self._calls.pop(call, None)

    def clear(self) -> None:
        self._calls.clear()


class _LoopSeconds(float):
    """A timeout that becomes a deadline on the loop's clock when grpc.aio adds it to the wall clock's time."""

    def __radd__(self, now_s: float) -> float:
        return asyncio.get_running_loop().time() + float(self)


class MemoryChannel(Channel):
    """grpc.aio's channel with another core; calls and interceptors are the real ones."""

    def __init__(
        self,
        core: CoreChannel,
        interceptors: Sequence[grpc.aio.ClientInterceptor] = (),
    ) -> None:
        """Replaces the real constructor, which creates a real core and a thread."""
        kinds = {
            "_unary_unary_interceptors": grpc.aio.UnaryUnaryClientInterceptor,
            "_unary_stream_interceptors": grpc.aio.UnaryStreamClientInterceptor,
            "_stream_unary_interceptors": grpc.aio.StreamUnaryClientInterceptor,
            "_stream_stream_interceptors": grpc.aio.StreamStreamClientInterceptor,
        }
        for name, kind in kinds.items():
            setattr(self, name, [one for one in interceptors if isinstance(one, kind)])
        self._loop = core.loop
        self._channel = core
        self._active_calls: Any = _OpenCalls()

    def __del__(self) -> None:
        """Stay open: the moment of a garbage collection differs between runs."""

    def unary_unary(self, *how: Any, **options: Any) -> Any:
        """A method with one request and one response."""
        return _on_loop_time(super().unary_unary, how, options)

    def unary_stream(self, *how: Any, **options: Any) -> Any:
        """A method with one request and many responses."""
        return _on_loop_time(super().unary_stream, how, options)

    def stream_unary(self, *how: Any, **options: Any) -> Any:
        """A method with many requests and one response."""
        return _on_loop_time(super().stream_unary, how, options)

    def stream_stream(self, *how: Any, **options: Any) -> Any:
        """A method with many requests and many responses."""
        return _on_loop_time(super().stream_stream, how, options)


def _on_loop_time(make: Callable[..., Any], how: tuple[Any, ...], made_with: dict[str, Any]) -> Callable[..., Any]:
    """The method, created at its first call: a stub asks for all of a service and uses a few."""
    method: Callable[..., Any] | None = None

    def call(*request: Any, timeout: float | None = None, **options: Any) -> Any:
        nonlocal method
        if len(request) > 1:
            raise TypeError("give timeout and metadata by name")
        if method is None:
            method = make(*how, **made_with)
        return method(*request, timeout=None if timeout is None else _LoopSeconds(timeout), **options)

    return call
