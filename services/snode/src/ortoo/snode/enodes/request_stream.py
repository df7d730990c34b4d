"""Many requests over one long-lived call: answers matched by request id, prompt errors when the call breaks."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import grpc

from ortoo.common.errors import NOT_ACCEPTED_FIELD, NotLeader, OrtooError, Overloaded, Unavailable, Unsupported
from ortoo.common.errors.status import cancellation_count, error_of_rpc
from ortoo.common.logs.logger import get_logger
from ortoo.common.logs.rate_limit import LogRateLimit
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock
from ortoo.common.process.containment import as_ortoo_error
from ortoo.snode import log_events

CHECK_INTERVAL_MIN_S = 0.001
PEER_RETRY_S = 10.0
"""Time after a broken call in which `send_if_available` fails, instead of waiting for a connection."""
_log = get_logger("enode link")


class NumberedMessage(Protocol):
    """A message with a request id."""

    request_id: int


Request = TypeVar("Request", bound=NumberedMessage)
Answer = TypeVar("Answer", bound=NumberedMessage)
Result = TypeVar("Result")


@dataclass(slots=True)
class PendingRequest(Generic[Request, Result]):
    """A request that waits for its answer."""

    request: Request
    future: asyncio.Future[Result]
    size_bytes: int
    deadline_s: float


@dataclass(slots=True, eq=False)
class RequestStream(Generic[Request, Answer, Result]):
    """Requests over one bidirectional call to `peer`, opened for the first request and reopened after it broke.

    Requests are sent in the order of `send`. A request fails with Unavailable and an unknown outcome if the call ends,
    or if its answer is late. If the peer has answered no request at all for the timeout, the call ends, so that all
    requests fail. With `fails_late_singly`, the call continues and only the late requests fail.

    Unsent requests certainly had no effect. `answers_all_accepted` = a peer that ends the call gracefully has answered
    every request that had an effect. Requests without effect fail with NOT_ACCEPTED_FIELD, or with NotLeader or
    Unsupported if the peer refused the call with that error.

    With `has_greeting`, the peer first sends an answer with id 0 when it has accepted the call. Requests are sent only
    after this greeting, so that a refused call has sent no request.

    `decode` converts an answer to a result, or raises the OrtooError in the answer. `on_moved`, if it is given,
    receives the requests without effect when another process leads.
    """

    peer: str
    open_call: Callable[[], Any]
    decode: Callable[[Answer], Result]
    _: KW_ONLY
    clock: Clock
    timeout_s: float
    in_flight_bytes_max: int = 1  # requests without a size count nothing
    answers_all_accepted: bool = False
    fails_late_singly: bool = False
    has_greeting: bool = False
    on_moved: Callable[[PendingRequest[Request, Result], NotLeader], None] | None = None
    may_redirect: bool = False
    """Whether unsent requests may soon be for another process, and are passed to `on_moved` as well."""
    connected: bool = field(default=False, init=False)
    _is_closed: bool = field(default=False, init=False)
    _bytes: int = field(default=0, init=False)
    _last_id: int = field(default=0, init=False)
    _last_answer_s: float = field(default=0.0, init=False)
    """The last time at which the peer answered, or at which no answer was due."""
    _call_ended_s: float = field(default=-PEER_RETRY_S, init=False)
    """When the last call ended."""
    _failed_count: int = field(default=0, init=False)
    _log_rate: LogRateLimit = field(default_factory=LogRateLimit, init=False)
    _pending: dict[int, PendingRequest[Request, Result]] = field(default_factory=dict, init=False)
    _unsent: deque[Request] = field(default_factory=deque, init=False)
    _greeted: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _write_now: Callable[[Request], bool] | None = field(default=None, init=False)
    """Sends a request without waiting, if the call can do that and takes requests; returns whether it was sent."""
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _has_pending: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Set while a request waits for its answer."""

    def send(self, request: Request, *, size_bytes: int = 0, wait_s: float = 0.0) -> asyncio.Future[Result]:
        """Queue `request` for sending, with a new id; the future gives the result. Errors: Overloaded.

        The timeout is longer by `wait_s`, for a request that the peer answers only when something happens.
        """
        if self._pending and self._bytes + size_bytes > self.in_flight_bytes_max:
            raise Overloaded(
                f"{self._bytes} bytes are in flight to {self.peer}; the limit is {self.in_flight_bytes_max}",
                retry_after_ms=50,
            )
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        future.add_done_callback(retrieve_exception)
        self.enqueue(PendingRequest(request, future, size_bytes, self.clock.monotonic_s() + self.timeout_s + wait_s))
        return future

    def send_if_available(self, request: Request) -> asyncio.Future[Result]:
        """Like `send`, for a request that another peer could answer instead.

        Errors: Overloaded, Unavailable if the call broke a moment ago.
        """
        if self.clock.monotonic_s() < self._call_ended_s + PEER_RETRY_S:
            raise Unavailable(f"{self.peer} was unreachable a moment ago", field=NOT_ACCEPTED_FIELD)
        return self.send(request)

    def enqueue(self, item: PendingRequest[Request, Result]) -> None:
        """Queue a pending request for sending, with a new id; another stream may have failed to send it."""
        if self._is_closed:
            item.future.set_exception(self._not_sent_error())
            return
        self._last_id += 1
        item.request.request_id = self._last_id
        if not self._pending:
            self._last_answer_s = self.clock.monotonic_s()
        self._pending[self._last_id] = item
        self._bytes += item.size_bytes
        self._has_pending.set()
        if self._unsent or self._write_now is None or not self._write_now(item.request):
            self._unsent.append(item.request)
            self._wake.set()

    @property
    def is_idle(self) -> bool:
        """Whether no request waits for its answer."""
        return not self._pending

    async def run(self) -> None:
        """Open the call when there are requests, and reopen it after it broke; never returns."""
        while True:
            await self._wake.wait()
            try:
                error = await self._run_call()
            except Exception as failure:
                error = as_ortoo_error(failure, "enode link")
            self._call_ended_s = self.clock.monotonic_s()
            self._log_failed(error)
            moved = error if isinstance(error, NotLeader) else NotLeader(f"{error}; nothing was stored")
            self.fail_all(error, moved if self.may_redirect else None)

    def _log_failed(self, error: OrtooError) -> None:
        """Log the requests that fail with the stream, at intervals, because clients may retry many times a second."""
        self._failed_count += len(self._pending)
        if self._failed_count and self._log_rate.acquire("failed", self._call_ended_s):
            _log.emit(log_events.ENODE_REQUESTS_FAILED, peer=self.peer, count=self._failed_count, reason=str(error))
            self._failed_count = 0

    def close(self, error: OrtooError) -> None:
        """Fail all unanswered requests, and all later requests."""
        self._is_closed = True
        self.fail_all(error)

    def fail_all(self, error: OrtooError, moved: NotLeader | None = None) -> None:
        """Fail all unanswered requests. With `moved`, those without effect are passed to `on_moved` instead."""
        self.connected, self._write_now = False, None
        pending, self._pending = self._pending, {}
        never_sent = [pending.pop(one.request_id) for one in self._unsent if one.request_id in pending]
        if error.field == NOT_ACCEPTED_FIELD and moved is not None:
            never_sent, pending = [*pending.values(), *never_sent], {}
        for item in never_sent:
            if item.future.done():
                continue
            if moved is not None and self.on_moved is not None:
                self.on_moved(item, moved)
            else:
                item.future.set_exception(
                    error if isinstance(error, NotLeader | Unsupported) else self._not_sent_error()
                )
        self._unsent.clear()
        self._wake.clear()
        self._bytes = 0
        for item in pending.values():
            if not item.future.done():
                item.future.set_exception(error)

    def _not_sent_error(self) -> Unavailable:
        return Unavailable(f"{self.peer} disconnected before the request was sent; retry", field=NOT_ACCEPTED_FIELD)

    async def _run_call(self) -> OrtooError:
        broken: asyncio.Future[OrtooError] = asyncio.get_running_loop().create_future()
        self._greeted.clear()
        call = self.open_call()
        try:
            async with Background(self.peer) as work:
                for part in (self._write, self._read, self._watch):
                    work.spawn(part.__name__, self._guarded(part(call), broken))
                return await broken
        finally:
            self._write_now = None
            call.cancel()

    async def _guarded(self, part: Any, broken: asyncio.Future[OrtooError]) -> None:
        error: OrtooError
        try:
            error = await part
        except grpc.aio.AioRpcError as failure:
            error = error_of_rpc(failure, self.peer, is_internal=True)
            if not isinstance(error, Unavailable | Unsupported):
                error = Unavailable(f"{self.peer} ended the stream: {error}")
        except (grpc.aio.UsageError, asyncio.InvalidStateError, asyncio.CancelledError):
            if cancellation_count():
                raise
            # A channel that is closed here cancels its calls, but not their callers.
            error = Unavailable(f"{self.peer}: the connection broke; the outcome is unknown, retry")
        except Exception as failure:
            error = as_ortoo_error(failure, "enode link")
        if not broken.done():
            broken.set_result(error)

    async def _write(self, call: Any) -> OrtooError:
        await call.wait_for_connection()  # requests for a peer that is unreachable count as unsent
        if self.has_greeting:
            await self._greeted.wait()
        self._write_now = getattr(call, "write_now", None)
        while True:
            while self._unsent:
                request = self._unsent.popleft()
                if request.request_id not in self._pending:
                    continue  # it was late, and its caller was notified that it was not sent
                try:
                    await call.write(request)
                except (grpc.aio.UsageError, asyncio.InvalidStateError):
                    # The peer has ended the call. Its last answers and then its reason are still to be read.
                    await asyncio.get_running_loop().create_future()
            self._wake.clear()
            await self._wake.wait()

    async def _read(self, call: Any) -> OrtooError:
        if (deliver_to := getattr(call, "deliver_to", None)) is not None:
            deliver_to(self._on_answer)
        while (answer := await call.read()) is not grpc.aio.EOF:
            self._on_answer(answer)
        code = await call.code()
        if code is not grpc.StatusCode.OK:
            return Unavailable(f"{self.peer}: {await call.details() or code.name}; the outcome is unknown, retry")
        if self.answers_all_accepted:
            return Unavailable(
                f"{self.peer} is stopping and has not taken the request; retry", field=NOT_ACCEPTED_FIELD
            )
        return Unavailable(f"{self.peer} ended the stream; the outcome is unknown, retry")

    def _on_answer(self, answer: Answer) -> None:
        self.connected = True
        self._greeted.set()
        self._last_answer_s = self.clock.monotonic_s()
        item = self._pending.pop(answer.request_id, None)
        if item is None:
            return
        self._bytes -= item.size_bytes
        if item.future.done():
            return
        try:
            item.future.set_result(self.decode(answer))
        except Exception as error:
            if isinstance(error, NotLeader) and self.on_moved is not None:
                self.on_moved(item, error)
            else:
                item.future.set_exception(as_ortoo_error(error, "enode link"))

    async def _watch(self, call: Any) -> OrtooError:
        """Fail each request that has waited too long; return when the peer is silent."""
        while True:
            while not self._pending:  # a request may be answered before this task runs
                self._has_pending.clear()
                await self._has_pending.wait()
            first_s = min(item.deadline_s for item in self._pending.values())
            # A request sent meanwhile may have a later deadline than this sleep.
            await self.clock.sleep(min(max(first_s - self.clock.monotonic_s(), CHECK_INTERVAL_MIN_S), self.timeout_s))
            now_s = self.clock.monotonic_s()
            late = [number for number, item in self._pending.items() if item.deadline_s <= now_s]
            if not late:
                continue
            error = Unavailable(
                f"{self.peer} did not answer within {self.timeout_s * 1000:.0f} ms; the outcome is unknown, retry"
            )
            if now_s - self._last_answer_s >= self.timeout_s and not self.fails_late_singly:
                return error
            unsent = {request.request_id for request in self._unsent}
            for number in late:
                item = self._pending.pop(number)
                self._bytes -= item.size_bytes
                if not item.future.done():
                    item.future.set_exception(self._not_sent_error() if number in unsent else error)
            if not unsent.isdisjoint(late):  # bound the memory of requests for a peer that reads nothing
                self._unsent = deque(one for one in self._unsent if one.request_id in self._pending)


def retrieve_exception(future: asyncio.Future[Any]) -> None:
    """Retrieve the future's error, so that asyncio does not report it if no caller waits for it."""
    if not future.cancelled():
        future.exception()
