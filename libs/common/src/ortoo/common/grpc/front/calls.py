"""A call of the queue front as its handler and the interceptors see it: a context of grpc.aio."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NoReturn

import grpc

from ortoo.common.errors import Unsupported
from ortoo.common.grpc.front.core import CoreCall, Metadata
from ortoo.common.process.clock import Clock

OK = 0


class FrontContext(grpc.aio.ServicerContext[Any, Any]):
    """What a handler may ask and say of its call. Its answers are what it returns or yields."""

    def __init__(self, call: CoreCall, clock: Clock) -> None:
        self._call = call
        self.arrival = call.arrival
        """What is known of the call since its headers came."""
        self._clock = clock
        self._peer: str | None = None
        self._headers: dict[str, str] | None = None
        self._code: Any = None
        self.number = OK
        """The status that was set."""
        self._details = ""
        self._trailing: Metadata = ()

    def invocation_metadata(self) -> Any:
        """What the caller sent."""
        return self._call.metadata

    @property
    def headers(self) -> dict[str, str]:
        """The texts of what the caller sent."""
        if self._headers is None:
            self._headers = {key: value for key, value in self._call.metadata if isinstance(value, str)}
        return self._headers

    async def end(self) -> None:
        """End the call well behind all that was yielded, and wait until gRPC has taken it. Nothing else is said then.

        Errors: CancelledError if the caller went away amid it.
        """
        await self._call.end(OK, self._trailing)

    def peer(self) -> str:
        """Where the call comes from."""
        if self._peer is None:
            self._peer = self._call.peer()
        return self._peer

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        """What TLS knows of the caller."""
        return self._call.auth_context()

    def peer_identity_key(self) -> str | None:
        """Nothing asks: who calls is known by signatures."""
        return None

    def peer_identities(self) -> Iterable[bytes] | None:
        """Nothing asks: who calls is known by signatures."""
        return None

    def time_remaining(self) -> float | None:  # type: ignore[override]  # None without a deadline, as in grpc.aio
        """Seconds until the deadline, at least 0; None without one."""
        if self._call.deadline_s is None:
            return None
        return max(0.0, self._call.deadline_s - self._clock.now_ms() / 1000)

    def set_code(self, code: Any) -> None:
        """End with this code."""
        self._code = code
        self.number = code.value[0] if isinstance(code, grpc.StatusCode) else int(code)

    def code(self) -> Any:
        """The code that was set, as it was given; None for none."""
        return self._code

    def set_details(self, details: str) -> None:
        """End with these details."""
        self._details = details

    def details(self) -> str:
        """The details that were set."""
        return self._details

    def set_trailing_metadata(self, trailing_metadata: Any) -> None:
        """Send this with the status."""
        self._trailing = tuple(trailing_metadata)

    def trailing_metadata(self) -> Any:
        """What will be sent with the status."""
        return self._trailing

    async def abort(self, code: Any, details: str = "", trailing_metadata: Any = ()) -> NoReturn:
        """End the call with this status. Errors: AbortError, always."""
        self.set_code(code)
        self._details = details
        self._trailing = tuple(trailing_metadata) or self._trailing
        raise grpc.aio.AbortError("Locally aborted.")

    async def abort_with_status(self, status: grpc.Status) -> NoReturn:
        """End the call with this status. Errors: AbortError, always."""
        await self.abort(status.code, status.details or "", status.trailing_metadata or ())

    def cancelled(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self._call.is_gone

    def done(self) -> bool:
        """Whether there is nobody to be told anything."""
        return self._call.is_gone

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call it when gRPC has let go of the answer."""
        self._call.when_over(partial(callback, None))

    def finish(self, data: bytes | None) -> None:
        """Send the answer, or the status alone if it is none of success."""
        self._call.answer(data if self.number == OK else None, self.number, self._details, self._trailing)

    async def read(self) -> Any:
        """Errors: Unsupported; the one request is the handler's argument."""
        raise Unsupported("a unary call has one request, which its handler was given")

    async def write(self, message: Any) -> None:
        """Errors: Unsupported; answers are what the handler returns or yields."""
        raise Unsupported("answers of the queue front are what the handler returns or yields")

    async def send_initial_metadata(self, initial_metadata: Any) -> None:
        """Errors: Unsupported; the answer begins when the handler has ended."""
        raise Unsupported("metadata of a call of the queue front goes with the status")

    def set_compression(self, compression: grpc.Compression) -> None:
        """Nothing is done: answers are small."""

    def disable_next_message_compression(self) -> None:
        """Nothing is done: answers are not compressed."""
