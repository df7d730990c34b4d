"""Our own completion queue on the C core of a grpc.aio server, which takes and answers hot calls.

Only this file uses the private names of grpcio's core. grpc.aio serves all other methods from the same core, ports and
connections. A thread waits for the queue's first event and wakes the event loop. The loop takes all available events
and lets the thread wait again, so that events that arrive while the loop works are taken together.
"""

import asyncio
import contextlib
import gc
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import grpc
from grpc._cython import cygrpc

from ortoo.common.logs import log_events
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock

EVENTS_MAX = 256
"""Maximum number of events taken before the loop does other work. A call of grpc.aio needs several such turns."""
EVENTS_A_LOOK = 8
"""Number of events between two looks at the clock."""
TURN_S = 0.002
"""The time after which the loop does other work, although further events are available."""
REQUESTS_OUTSTANDING = 128
"""Number of calls of a method that can arrive before the event loop takes the first of them."""
QUIET_EVENT_DELAY_S = 0.01
"""Maximum time for which the end of a call waits for another event to wake the loop."""
SHUTDOWN_TIMEOUT_S = 5.0
"""Maximum time for which a stop waits for handlers that ignore their cancellation."""
NO_DEADLINE_S = 1e12
_log = get_logger("completion queue")
Metadata = tuple[tuple[str, str | bytes], ...]


class QueueCall:
    """A call with one request. The code that takes it must answer exactly once, even if the call has already ended."""

    __slots__ = (
        "_call",
        "_core",
        "_has_begun",
        "_is_closed",
        "_is_sending",
        "_status",
        "_taken",
        "_unsent",
        "_waiting",
        "arrival",
        "cancelled",
        "closed",
        "deadline_s",
        "is_caller_gone",
        "message",
        "metadata",
        "unsent_bytes",
    )

    def __init__(self, core: "CompletionQueue", event: Any) -> None:
        self._core = core
        self._call: Any = event.call
        self._taken: Callable[[QueueCall], None] | None = None
        self.arrival: Any = None
        """The state of the call before its request comes."""
        self.metadata: Metadata = event.invocation_metadata
        deadline_s = event.call_details.deadline
        self.deadline_s: float | None = None if deadline_s is None or deadline_s > NO_DEADLINE_S else deadline_s
        """The caller's deadline, in seconds of the wall clock; None = none."""
        self.message: bytes | None = None
        """None if the call ended or was half closed before its request came, or the request is too large."""
        self.is_caller_gone = False
        """Whether the caller no longer waits for the answer."""
        self.cancelled: Callable[[], object] | None = None
        """Called when the caller stops waiting."""
        self.closed: Callable[[], object] | None = None
        """Called when gRPC has released the answer."""
        self._unsent: deque[bytes] = deque()
        self.unsent_bytes = 0
        """Size of the answers given to `send` that gRPC has not taken yet."""
        self._has_begun = self._is_sending = self._is_closed = False
        self._status: Any = None
        self._waiting: asyncio.Future[None] | None = None
        core.open += 2  # the end of the call, and its answer
        # Each call needs its own operation objects, because gRPC writes into them.
        self._call.start_server_batch((cygrpc.ReceiveCloseOnServerOperation(0),), self._on_closed)

    def receive(self, taken: Callable[["QueueCall"], None]) -> None:
        """Call `taken` once when the request has arrived. A call that was refused already has its answer then."""
        self._taken = taken
        self._core.open += 1
        self._call.start_server_batch((cygrpc.ReceiveMessageOperation(0),), self._on_started)

    @property
    def is_answered(self) -> bool:
        """Whether the status was set."""
        return self._status is not None

    def when_over(self, callback: Callable[[], object]) -> None:
        """Call `callback` when gRPC has released the answer, after all callbacks given earlier."""
        before = self.closed

        def both() -> None:
            if before is not None:
                before()
            callback()

        self.closed = callback if before is None else both

    def peer(self) -> str:
        """The caller's address as gRPC writes it, such as `ipv4:127.0.0.1:4711`."""
        peer = self._call.peer()
        return peer.decode() if isinstance(peer, bytes) else str(peer)

    def auth_context(self) -> dict[str, list[bytes]]:
        """The TLS properties of the caller. A plaintext call has the properties that gRPC gives to plaintext calls."""
        return {key.decode(): list(values) for key, values in cygrpc.auth_context(self._call).items()}

    def send(self, data: bytes) -> None:
        """Send one of several answers, in order. Answers of one iteration of the event loop are written together.

        No answer may follow the status, because gRPC would refuse it and never release the call.
        """
        if self._status is not None:
            return
        if not self._unsent and not self._is_sending:
            asyncio.get_running_loop().call_soon(self._send_waiting)
        self._unsent.append(data)
        self.unsent_bytes += len(data)

    async def wait_until_written(self) -> None:
        """Wait until gRPC has taken all sent answers; only the handler may call it."""
        self._send_waiting()
        while self._is_sending:
            await self._next_event()

    async def end(self, code: int, trailing: Metadata) -> None:
        """Send the status after the answers, and wait until gRPC has released both. Only the handler may call it.

        Errors: CancelledError if the caller disconnects meanwhile.
        """
        self._end_with(None, code, "", trailing)
        self._core.open += 1  # the handler's own end, for which a stop waits
        await self.wait_until_written()
        while not self._is_closed:
            await self._next_event()
        if self.is_caller_gone:
            raise asyncio.CancelledError

    async def _next_event(self) -> None:
        self._waiting = asyncio.get_running_loop().create_future()
        await self._waiting

    def _status_sent(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def answer(self, data: bytes | None, code: int, details: str, trailing: Metadata) -> None:
        """Send the last answer, if any, and the status, unless the handler has already sent the status."""
        self.cancelled = None
        if self._status is None:
            self._end_with(data, code, details, trailing)
        else:
            self._core.on_call_ended()

    def _end_with(self, data: bytes | None, code: int, details: str, trailing: Metadata) -> None:
        self._status = cygrpc.SendStatusFromServerOperation(trailing or None, code, details.encode(errors="replace"), 0)
        if data is not None:
            self._unsent.append(data)
        if not self._is_sending:
            self._send_next()

    def _send_waiting(self) -> None:
        if self._unsent and not self._is_sending:
            self._send_next()

    def _send_next(self) -> None:
        """Begin to send the next answer, and the status with the last one. gRPC buffers an answer if more follows."""
        operations = [] if self._has_begun else [cygrpc.SendInitialMetadataOperation(None, 0)]
        is_last = self._status is not None and len(self._unsent) <= 1
        if self._unsent:
            # Not for the first: only a write sends the metadata before it, and gRPC would wait for one.
            is_followed = self._has_begun and not is_last and (len(self._unsent) > 1 or self._status is not None)
            flags = cygrpc.WriteFlag.buffer_hint if is_followed else 0
            operations.append(cygrpc.SendMessageOperation(self._unsent[0], flags))
        if is_last:
            operations.append(self._status)
        else:
            self._core.open += 1
        self._has_begun = self._is_sending = True
        self._call.start_server_batch(tuple(operations), self._sent if is_last else self._sent_one)

    def _sent_one(self, event: Any) -> None:
        self.unsent_bytes -= len(self._unsent.popleft())
        if not event.success:
            self._unsent.clear()
            self.unsent_bytes = 0
            self._on_caller_gone()
        if self._unsent or self._status is not None:
            self._send_next()
        else:
            self._is_sending = False
            self._status_sent()
        self._core.on_call_ended()

    def _on_started(self, event: Any) -> None:
        taken, self._taken = self._taken, None
        if taken is not None:
            self.message = event.batch_operations[0].message()
            taken(self)
        self._core.on_call_ended()

    def _on_closed(self, event: Any) -> None:
        self._is_closed = True
        if event.batch_operations[0].cancelled():
            self._on_caller_gone()
        self._status_sent()
        self._core.on_call_ended()

    def _on_caller_gone(self) -> None:
        """Note that the caller no longer waits for an answer, and cancel the handler."""
        if not self.is_caller_gone:
            self.is_caller_gone = True
            if self.cancelled is not None:
                self.cancelled()

    def _sent(self, _: Any) -> None:
        self._unsent.clear()
        self.unsent_bytes = 0
        self._is_sending = False
        self._status_sent()
        over, self.closed = self.closed, None
        if over is not None:
            over()
        self._core.on_call_ended()


class CompletionQueue:
    """A completion queue of our own on the core of a grpc.aio server. The loop that opened it handles its events."""

    def __init__(self, core: Any, clock: Clock, pause_s: float = 0.0) -> None:
        """After the first event, wait for `pause_s`, so that the loop takes many events at one wake-up."""
        self._clock = clock
        self._pause_s = pause_s
        self._is_closing = threading.Event()
        """Set when the server has stopped, so that the stop does not wait for a pause."""
        self.open = 0
        """Number of events still to come, and of handlers that will end after their calls.

        The queue must not be shut down before, because gRPC aborts a process that answers later.
        """
        self._core = core
        self._queue = cygrpc.CompletionQueue()
        self._core.register_completion_queue(self._queue)
        self._methods: list[tuple[str, Callable[[QueueCall], None]]] = []
        self._first: deque[Any] = deque()
        self._turn = threading.Lock()
        """Held while there are events that the loop has not taken."""
        self._turn.acquire()
        self._is_over = False
        self._none_open = asyncio.Event()

    @classmethod
    def of_server(cls, server: grpc.aio.Server, clock: Clock) -> "CompletionQueue | None":
        """A queue on the core of a server that was not started yet; None if no core with the needed functions is found.

        An error while searching for the core is logged.
        """
        own = getattr(server, "_server", None)
        if not isinstance(own, cygrpc.AioServer):
            return None
        try:
            [core] = (one for one in gc.get_referents(own) if isinstance(one, cygrpc.Server))
            needed = [core.register_method, core.request_registered_call, cygrpc.CompletionQueue]
            needed += [cygrpc.auth_context, cygrpc.WriteFlag.buffer_hint]
            return cls(core, clock) if all(needed) else None
        except (AttributeError, ValueError) as error:
            _log.emit(log_events.COMPLETION_QUEUE_UNAVAILABLE, reason=str(error))
            return None

    def another(self, pause_s: float) -> "CompletionQueue":
        """A further queue on the same core, for methods that are not urgent. Call this before the server starts."""
        return CompletionQueue(self._core, self._clock, pause_s)

    def register(self, method: str, begun: Callable[[QueueCall], None]) -> None:
        """Take all calls of the method with this full name. Call this before the server starts."""
        self._core.register_method(method)
        self._methods.append((method, begun))

    def start(self) -> None:
        """Begin to take calls. Call this after the server has started."""
        self._loop = asyncio.get_running_loop()
        for method, begun in self._methods:
            for _ in range(REQUESTS_OUTSTANDING):
                self._request_call(method, begun)
        threading.Thread(target=self._wait, name="queue front", daemon=True).start()

    def _request_call(self, method: str, begun: Callable[[QueueCall], None]) -> None:
        """Request one more call of a method. Errors: ValueError if the server is stopping."""
        tag = partial(self._on_call, method, begun)
        self._core.request_registered_call(self._queue, self._queue, method, tag)
        self.open += 1

    def _on_call(self, method: str, begun: Callable[[QueueCall], None], event: Any) -> None:
        if event.success:  # otherwise the server is stopping
            begun(QueueCall(self, event))
            with contextlib.suppress(ValueError):  # a stop began meanwhile; this call is still served
                self._request_call(method, begun)
        self.on_call_ended()

    def on_call_ended(self) -> None:
        """Subtract one from `open`, because an event has arrived, or a handler that sent its own status has ended."""
        self.open -= 1
        if not self.open:
            self._none_open.set()

    async def close(self) -> None:
        """End the queue. Call this after the server has stopped."""
        self._is_closing.set()
        if self.open:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SHUTDOWN_TIMEOUT_S):
                    await self._none_open.wait()
        if not self.open:
            self._queue.shutdown()

    def _wait(self) -> None:
        """The thread's loop. The end of a call wakes the event loop only if no other event wakes it soon."""
        waiting: deque[Any] = deque()
        while not self._is_over:
            event = self._queue.poll(self._clock.now_ms() / 1000 + QUIET_EVENT_DELAY_S if waiting else None)
            if event.completion_type == cygrpc.CompletionType.queue_shutdown:
                return
            if event.tag is not None:
                waiting.append(event)
                if _is_quiet(event) and len(waiting) < EVENTS_MAX:
                    continue
            del event
            if self._pause_s:
                self._is_closing.wait(self._pause_s)
            self._first, waiting = waiting, deque()
            try:
                self._loop.call_soon_threadsafe(self._drain)
            except RuntimeError:  # the loop was closed: no answers follow
                return
            self._turn.acquire()

    def _drain(self) -> None:
        taken, end_s = 0, self._clock.monotonic_s() + TURN_S
        try:
            while taken < EVENTS_MAX and (taken % EVENTS_A_LOOK or self._clock.monotonic_s() < end_s):
                event = self._first.popleft() if self._first else self._queue.poll(0)
                if event.tag is None:
                    self._is_over = event.completion_type == cygrpc.CompletionType.queue_shutdown
                    return
                event.tag(event)
                taken += 1
        finally:
            if self._first:  # the turn has ended, or a tag raised an exception
                self._loop.call_soon(self._drain)
            else:
                self._turn.release()


def _is_quiet(event: Any) -> bool:
    """Whether the event only reports the end of an answered call; at most the call's handler waits for it."""
    told = getattr(event.tag, "__func__", None)
    return told is QueueCall._sent or (told is QueueCall._on_closed and not event.batch_operations[0].cancelled())
