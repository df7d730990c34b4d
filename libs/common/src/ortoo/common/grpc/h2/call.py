"""A call on a connection: its requests, its answers and its status."""

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from ortoo.common.errors import Overloaded
from ortoo.common.grpc.bulk_field import Pieces
from ortoo.common.grpc.h2.framing import (
    COPIED_BYTES_MAX,
    RESPONSE,
    Headers,
    MessageTooLarge,
    Metadata,
    frame,
    framed,
    trailers,
    write_metadata,
)
from ortoo.common.grpc.h2.limits import FLUSH_BYTES, UNSENT_BYTES_MAX
from ortoo.common.grpc.h2.shared.inbox import Inbox
from ortoo.common.grpc.h2.shared.looks import LOOK_AHEAD_MAX_S
from ortoo.common.grpc.h2.shared.request_parts import RequestParts
from ortoo.common.grpc.layers.call_memory import SMALL_BYTES

if TYPE_CHECKING:
    from ortoo.common.grpc.h2.connection import H2Connection
    from ortoo.common.grpc.h2.headers import CallHeaders

OK = 0
DEADLINE_EXCEEDED = 4
RESOURCE_EXHAUSTED = 8
REFUSAL_HELD_S = 0.2
"""Time for which the error of a stream waits for the first request, which the caller may be about to write.

The write would fail otherwise, and some clients then report an error of their own instead of the status.
"""


class H2Call:
    """A call. Its handler must answer exactly once, even if the call has already ended."""

    __slots__ = (
        "_connection",
        "_due_s",
        "_has_begun",
        "_held",
        "_inbox",
        "_is_half_closed",
        "_is_silent",
        "_look_number",
        "_method",
        "_parts",
        "_too_large_bytes",
        "_waiting",
        "arrival",
        "cancelled",
        "closed",
        "deadline_s",
        "headers",
        "is_answered",
        "is_caller_gone",
        "is_closed",
        "is_served",
        "stream_id",
        "task",
        "waited_s",
    )

    def __init__(
        self,
        connection: "H2Connection",
        stream_id: int,
        method: Any,
        headers: "CallHeaders",
        waited_s: float = 0.0,
    ) -> None:
        self._connection = connection
        self._method = method
        self.stream_id = stream_id
        self.headers = headers
        self.waited_s = waited_s
        """The time for which its caller already waits."""
        self.arrival: Any = None
        """The state of the call before its request comes."""
        self.is_answered = False
        """Whether the status was set."""
        self.is_caller_gone = False
        """Whether the caller no longer waits for the answer."""
        self.is_closed = False
        """Whether the stream has ended in both directions."""
        self.cancelled: Callable[[], object] | None = None
        """Called when the caller stops waiting."""
        self.closed: Callable[[], object] | None = None
        """Called when the answer is sent or given up."""
        self.is_served = False
        """Whether its handler was started."""
        self.task: Any = None
        """The task of its handler."""
        self._has_begun = self._is_half_closed = False
        self._is_silent = True
        """Whether no byte of a request has arrived."""
        self._held: Callable[[], object] | None = None
        """Sends the error that waits for the first request."""
        self._parts: RequestParts | None = None
        """Requests that did not come as a whole with the headers."""
        self._inbox: Inbox | None = Inbox(connection.loop, self.consumed) if method.takes_many else None
        """The requests of a stream."""
        self._too_large_bytes = 0
        """The size of a request above the limit, which is refused when the handler reads it."""
        self._waiting: asyncio.Future[None] | None = None
        self.deadline_s: float | None = None
        """The caller's deadline, in seconds of the wall clock; None = none."""
        if headers.timeout_s is not None:
            wait_s = headers.timeout_s - waited_s
            self.deadline_s = connection.server.clock.now_ms() / 1000 + wait_s
            now_s = connection.loop.time()
            self._due_s = now_s + wait_s
            self._await_deadline(now_s)

    @property
    def metadata(self) -> Metadata:
        """The caller's metadata."""
        return self.headers.metadata

    def peer(self) -> str:
        """The caller's address as gRPC writes it, such as `ipv4:127.0.0.1:4711`."""
        return self._connection.peer

    def auth_context(self) -> dict[str, list[bytes]]:
        """The TLS properties of the caller, with gRPC's names."""
        return self._connection.auth_context

    def when_over(self, callback: Callable[[], object]) -> None:
        """Call `callback` when the answer is sent or given up, after all callbacks given earlier."""
        before = self.closed

        def both() -> None:
            if before is not None:
                before()
            callback()

        self.closed = callback if before is None else both

    # Requests.

    def on_request(self, message: bytes) -> bool:
        """The only request has arrived as a whole; False if `on_data` has to take it."""
        if self._method.takes_many or self.is_served or len(message) > self._connection.server.limits.message_bytes_max:
            return False
        self._is_half_closed, self._is_silent = True, False
        if not self.is_answered:
            self._method.serve_soon(self, message)
        return True

    def on_data(self, data: bytes, *, is_last: bool) -> None:
        """Bytes of the caller have arrived."""
        self._is_half_closed, self._is_silent = is_last, False
        if self._held is not None:
            self._send_held()
        if self.is_answered or (self.is_served and not self._method.takes_many):
            self.consumed(len(data))  # no message follows the one request
            return
        if self._too_large_bytes:
            return  # the window stays closed, so that the caller waits until the handler reads the error
        found: list[bytes] = []
        if data:
            try:
                if self._parts is None:
                    self._parts = RequestParts(self._connection.server.limits.message_bytes_max)
                found = self._parts.feed(data)
            except MessageTooLarge as error:
                self._too_large_bytes = error.args[0]
                if not self.is_served or (self._inbox is not None and self._inbox.is_awaited):
                    self._refuse_too_large()
                return
            if not self.is_served:
                try:
                    self._parts.count(self.arrival)
                except Overloaded as error:
                    self.fail(RESOURCE_EXHAUSTED, str(error))
                    return
        self._method.on_messages(self, found, len(data))

    @property
    def is_half_closed(self) -> bool:
        """Whether the caller sends no further requests."""
        return self._is_half_closed

    def queue(self, messages: list[bytes], data_bytes: int) -> None:
        """Keep requests for the handler of a stream. It opens the caller's window as it reads them."""
        assert self._inbox is not None
        self._inbox.add(messages, data_bytes)
        if self._is_half_closed:
            self._inbox.wake()

    def consumed(self, size: int) -> None:
        """Open the caller's window by bytes that were taken."""
        self._connection.consumed(self.stream_id, size)

    async def receive(self) -> bytes | None:
        """The next request of a stream; None at their end, or when the caller is gone."""
        assert self._inbox is not None
        while not self._inbox:
            if self._too_large_bytes:
                self._refuse_too_large()
            if self._is_half_closed or self.is_closed or self.is_caller_gone:
                return None
            await self._inbox.wait()
        return self._inbox.pop()

    def _refuse_too_large(self) -> None:
        limit = self._connection.server.limits.message_bytes_max
        details = f"SERVER: Received message larger than max ({self._too_large_bytes} vs. {limit})"
        self.fail(RESOURCE_EXHAUSTED, details)

    # Answers.

    def begin(self, metadata: Any = ()) -> None:
        """Send the initial metadata."""
        headers: Headers = RESPONSE + write_metadata(metadata) if metadata else RESPONSE
        self._has_begun = True
        if not self.is_closed:
            self._connection.send_headers(self.stream_id, headers)

    @property
    def has_begun(self) -> bool:
        """Whether the initial metadata was sent."""
        return self._has_begun

    def send(self, *answers: bytes | Pieces) -> None:
        """Send some of the answers, in order. Answers of one iteration of the event loop are written together."""
        if self.is_answered or self.is_closed:
            return
        if not self._has_begun:
            self.begin()
        self._queue(*answers)

    def _queue(self, *answers: bytes | Pieces) -> None:
        self._connection.send_data(self.stream_id, *chain.from_iterable(map(framed, answers)))

    def check_size(self, size: int) -> bool:
        """Whether an answer of this size may be sent; otherwise the call ends with RESOURCE_EXHAUSTED."""
        limit = self._connection.server.limits.sent_bytes_max
        if size > limit:
            self.fail(RESOURCE_EXHAUSTED, f"SERVER: Sent message larger than max ({size} vs. {limit})")
        return size <= limit

    @property
    def unsent_bytes(self) -> int:
        """Size of the answers that wait for the peer's window or for the socket."""
        return 0 if self.is_closed else self._connection.unsent_bytes(self.stream_id)

    async def send_and_wait(self, *answers: bytes | Pieces) -> None:
        """Send some of the answers. Wait until they are sent if one is large, or if many small ones wait."""
        if self.is_answered or self.is_closed:
            # The handler is about to be cancelled, and may wait for nothing else.
            await self._connection.server.clock.sleep(0)
            return
        self.send(*answers)
        if self.unsent_bytes > (FLUSH_BYTES if max(map(len, answers)) > SMALL_BYTES else UNSENT_BYTES_MAX):
            await self.wait_until_sent()

    async def wait_until_sent(self) -> None:
        """Wait until all answers are sent, or the call has ended."""
        await self._connection.wait_until_sent(self.stream_id)

    async def end(self, code: int, trailing: Metadata) -> None:
        """Send the status after the answers, and wait until both are sent. Only the handler may call it.

        Errors: CancelledError if the caller disconnects meanwhile.
        """
        self._end_with(None, code, "", trailing)
        await self.wait_until_sent()
        while not self.is_closed:
            self._waiting = self._connection.loop.create_future()
            await self._waiting
        if self.is_caller_gone:
            raise asyncio.CancelledError

    def answer(self, data: bytes | None, code: int, details: str, trailing: Metadata) -> None:
        """Send the last answer, if any, and the status, unless the handler has already sent the status."""
        self.cancelled = self.task = None
        if self.is_answered:
            return
        is_plain = self._is_half_closed and not (self.is_closed or self._has_begun or code or details or trailing)
        if is_plain and type(data) is bytes and len(data) <= COPIED_BYTES_MAX:
            self.is_answered = self._has_begun = True
            self._connection.send_answer(self.stream_id, frame(data))
            return
        if code and self._inbox is not None and self._is_silent and not self.is_closed:
            self.is_answered = True
            self._held = partial(self._end_with, data, code, details, trailing)
            self._connection.loop.call_later(REFUSAL_HELD_S, self._send_held)
        else:
            self._end_with(data, code, details, trailing)

    def _send_held(self) -> None:
        held, self._held = self._held, None
        if held is not None and not self.is_closed:
            held()

    def fail(self, code: int, details: str) -> None:
        """End the call with a status that its handler has not chosen, and cancel the handler.

        A caller that does not take the answers before the status gets no status, so that they are not kept.
        """
        if self.is_answered or self.is_closed:
            return
        self._connection.flush()
        if self.unsent_bytes:
            self.is_answered = True
            self._connection.reset(self.stream_id)
        else:
            self._end_with(None, code, details, ())
        self._on_caller_gone()

    def _end_with(self, data: bytes | None, code: int, details: str, trailing: Metadata) -> None:
        self.is_answered = True
        if self.is_closed:
            self._on_over()
            return
        status = trailers(code, details, trailing)
        if data is None and not self._has_begun:
            self._connection.send_headers(self.stream_id, RESPONSE + status, is_last=True)
        else:
            if not self._has_begun:
                self._connection.send_headers(self.stream_id, RESPONSE)
            if data is not None:
                self._queue(data)
            self._connection.send_trailers(self.stream_id, status)
        self._has_begun = True
        if not self._is_half_closed:
            self._connection.reset_when_sent(self.stream_id)

    def _await_deadline(self, now_s: float) -> None:
        self._look_number = self._connection.server.deadlines.add(self, min(self._due_s, now_s + LOOK_AHEAD_MAX_S))

    def look(self) -> None:
        """End the call if its deadline has passed."""
        if (now_s := self._connection.loop.time()) < self._due_s:
            self._await_deadline(now_s)
        elif self.is_answered and not self.is_closed:  # the caller does not take the answer
            self._connection.reset(self.stream_id)
            self._on_caller_gone()
        else:
            self.fail(DEADLINE_EXCEEDED, "Deadline Exceeded")

    # The end.

    def on_reset(self) -> None:
        """The caller has reset the stream."""
        if not self.is_closed:
            self._on_caller_gone()

    def on_closed(self, *, is_reset: bool) -> None:
        """The stream has ended in both directions, or its connection is lost."""
        self.is_closed = True
        if self._parts is not None:
            self._parts.release()
        if is_reset or not self.is_answered:
            self._on_caller_gone()
        if self.task is not None:
            self._connection.server.on_handler_left(self.task)
        if self.deadline_s is not None:
            self._connection.server.deadlines.remove(self, self._look_number)
        if self._inbox is not None:
            self._inbox.close()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
        if self.is_answered:
            self._on_over()

    def _on_caller_gone(self) -> None:
        """Note that the caller no longer waits for an answer, and cancel the handler."""
        if not self.is_caller_gone:
            self.is_caller_gone = True
            if self._inbox is not None:
                self._inbox.clear()
                self._inbox.wake()
            if self.cancelled is not None:  # after the reader has seen the end of the requests
                self._connection.loop.call_soon(self._cancel)
            elif not self.is_served and not self.is_answered:  # its request has not come
                self.is_answered = True
                self._on_over()

    def _cancel(self) -> None:
        if self.cancelled is not None:
            self.cancelled()

    def _on_over(self) -> None:
        over, self.closed = self.closed, None
        if over is not None:
            over()
