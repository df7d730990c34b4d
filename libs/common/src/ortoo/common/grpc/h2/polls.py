"""A call of an h2 server that waits without being made (`ortoo.common.grpc.layers.polls`)."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from ortoo.common.grpc.h2.call import DEADLINE_EXCEEDED
from ortoo.common.grpc.h2.framing import PREFIX_BYTES, RESPONSE, Headers, frame, pack, trailers, unpack
from ortoo.common.grpc.h2.headers import RawHeaders, RepeatedRequest
from ortoo.common.grpc.h2.shared.looks import LOOK_AHEAD_MAX_S
from ortoo.common.grpc.layers.polls import End, Polls, Stop

if TYPE_CHECKING:
    from ortoo.common.grpc.h2.connection import H2Connection

OK, CANCELLED = "OK", "CANCELLED"
NO_HEADERS: Final = RawHeaders({})


class H2Poll:
    """One call. For its connection it is like an `H2Call`, whose place it has until the call is made.

    It waits for long, so it keeps few objects: each costs a cache miss or two when it is freed.
    """

    __slots__ = (
        "_began_s",
        "_connection",
        "_data",
        "_ends",
        "_look_number",
        "_packed",
        "_raw",
        "_stop",
        "headers",
        "stream_id",
        "timeout_s",
    )

    is_served = is_half_closed = True
    task = None

    def __init__(self, connection: "H2Connection", request: RepeatedRequest, raw: Headers) -> None:
        self._connection = connection
        self.stream_id = request.stream_id
        self._raw = raw
        self._packed = b""
        """The headers as one object, while the call waits."""
        self.headers = request.headers
        """The headers of the caller; empty while the call waits."""
        self.timeout_s = request.timeout_s
        self._began_s = connection.loop.time()
        self._look_number = 0
        self._data = b""
        self._stop: Stop | None = None
        self._ends: list[End] = []

    def peer(self) -> str:
        """The address of the caller, as gRPC writes it."""
        return self._connection.peer

    def auth_context(self) -> dict[str, list[bytes]]:
        """The TLS properties of the caller."""
        return self._connection.auth_context

    def begin(self, data: bytes, polls: Polls) -> bool:
        """Wait with a request and its prefix; False if the call has to be made now."""
        found = polls.begin(data[PREFIX_BYTES:], self)
        if found is None:
            return False
        self._data, self._packed = data, pack(self._raw)
        self._raw, self.headers = (), NO_HEADERS
        self._stop, self._ends = found
        if self.timeout_s is not None:
            self._await_deadline(self._began_s)
        return True

    # Called by the handler.

    def answer(self, answers: Sequence[bytes]) -> None:
        """Answer the call successfully."""
        self._stop = None
        self._connection.send_answer(self.stream_id, b"".join(map(frame, answers)))

    def make(self, over: Callable[[], object]) -> None:
        """Make the call, with the rest of its time. `over` is called when it has ended."""
        self._stop = None
        self._end("")
        waited_s = self._connection.loop.time() - self._began_s
        call = self._connection.make(self.stream_id, unpack(self._packed), self._data, waited_s)
        if call is None or call.is_closed:
            over()
        else:
            call.when_over(over)

    # Called by the connection and the server, as for an `H2Call`.

    def on_data(self, data: bytes, *, is_last: bool) -> None:
        """No data follow the request."""

    def on_reset(self) -> None:
        """The caller has reset the stream."""
        self._cancel()

    def on_closed(self, *, is_reset: bool) -> None:
        """The stream has ended in both directions, or its connection is lost."""
        self._cancel()
        self._end(OK)

    def fail(self, code: int, details: str) -> None:
        """End the call with a status that its handler has not chosen."""
        if self._stop is not None:
            self._connection.send_headers(self.stream_id, RESPONSE + trailers(code, details, ()), is_last=True)
            self._cancel()

    # Called by the looks of the server.

    def look(self) -> None:
        """End the call if its caller's deadline has passed."""
        now_s = self._connection.loop.time()
        if self.timeout_s is None or now_s < self._began_s + self.timeout_s:
            self._await_deadline(now_s)
        elif self._stop is None:  # the caller does not take the answer
            self._connection.reset(self.stream_id)
        else:
            self.fail(DEADLINE_EXCEEDED, "Deadline Exceeded")

    def _await_deadline(self, now_s: float) -> None:
        due_s = min(self._began_s + (self.timeout_s or 0.0), now_s + LOOK_AHEAD_MAX_S)
        self._look_number = self._connection.server.looks.add(self, due_s)

    def _cancel(self) -> None:
        stop, self._stop = self._stop, None
        if stop is not None:
            stop()
            self._end(CANCELLED)

    def _end(self, status: str) -> None:
        self._connection.server.looks.remove(self, self._look_number)
        ends, self._ends = self._ends, []
        for end in ends:
            end(status)
