"""The context that a handler gets with its requests."""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import grpc

from ortoo.testing.memory_grpc.client_call import CANCELLED

if TYPE_CHECKING:
    from ortoo.testing.memory_grpc.server_call import ServerCall


class MemoryContext(grpc.aio.ServicerContext[Any, Any]):
    """A call as its handler sees it."""

    def __init__(self, call: "ServerCall", handler: "grpc.RpcMethodHandler[Any, Any]") -> None:
        """The context of a call that `handler` answers."""
        self._call = call
        self._read = handler.request_deserializer
        self._write = handler.response_serializer

    async def read(self) -> Any:
        """The next request, or EOF. EOF as well when the caller cancelled, just before the handler is cancelled."""
        self._call.raise_if_over()
        data = await self._call.receive()
        self._call.raise_if_over()
        if data is None:
            return grpc.aio.EOF
        return self._read(data) if self._read else data

    async def write(self, message: Any) -> None:
        """Send an answer. Errors: FailedBatch when the caller disconnected."""
        self._call.raise_if_over()
        await self._call.send_message(self._write(message) if self._write else message)

    async def send_initial_metadata(self, initial_metadata: Iterable[Any]) -> None:
        """Send metadata before the first answer. Errors: UsageError when something was sent already."""
        self._call.raise_if_over()
        await self._call.send_initial_metadata(initial_metadata)

    async def abort(self, code: Any, details: str = "", trailing_metadata: Iterable[Any] = ()) -> NoReturn:
        """End the call with this status. Errors: AbortError, always."""
        self._call.abort(code, details, tuple(trailing_metadata))

    async def abort_with_status(self, status: grpc.Status) -> NoReturn:
        """End the call with this status. Errors: AbortError, always."""
        self._call.abort(status.code, status.details or "", tuple(status.trailing_metadata or ()))

    def set_trailing_metadata(self, trailing_metadata: Iterable[Any]) -> None:
        """Send this with the status."""
        self._call.set_trailing_metadata(trailing_metadata)

    def trailing_metadata(self) -> Any:
        """The metadata to send with the status."""
        return self._call.trailing_metadata

    def invocation_metadata(self) -> Any:
        """The caller's metadata."""
        return self._call.metadata

    def set_code(self, code: Any) -> None:
        """End with this code, unless the call is aborted."""
        self._call.set_code(code)

    def code(self) -> Any:
        """The code that was set, as it was given."""
        return self._call.given_code

    def set_details(self, details: str) -> None:
        """End with these details, unless the call is aborted."""
        self._call.details = details

    def details(self) -> str:
        """The details that were set."""
        return self._call.details

    def set_compression(self, compression: grpc.Compression) -> None:
        """Nothing is compressed in memory."""

    def disable_next_message_compression(self) -> None:
        """Nothing is compressed in memory."""

    def peer(self) -> str:
        """The caller's address."""
        return self._call.peer

    def peer_identities(self) -> Iterable[bytes] | None:
        """None: there is no authentication in memory."""
        return None

    def peer_identity_key(self) -> str | None:
        """None: there is no authentication in memory."""
        return None

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        """The context of a connection without TLS."""
        return {"transport_security_type": [b"insecure"], "security_level": [b"TSI_SECURITY_NONE"]}

    def time_remaining(self) -> Any:
        """Seconds until the caller's deadline, at least 0; None without one."""
        return self._call.time_remaining()

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call when the handler has ended."""
        self._call.callbacks.append(partial(callback, self))

    def done(self) -> bool:
        """Whether a status was sent."""
        return self._call.is_status_sent

    def cancelled(self) -> bool:
        """Whether the handler itself set CANCELLED. As in grpc.aio, a cancellation by the caller does not count."""
        return self._call.code == CANCELLED


class Requests:
    """The requests of a stream; every call returns the same iterator."""

    def __init__(self, context: MemoryContext) -> None:
        """Read them from `context`."""
        self._context = context
        self._requests: AsyncGenerator[Any, None] | None = None

    def __aiter__(self) -> AsyncGenerator[Any, None]:
        if self._requests is None:
            self._requests = self._each()
        return self._requests

    async def __anext__(self) -> Any:
        return await self.__aiter__().__anext__()

    async def _each(self) -> AsyncGenerator[Any, None]:
        while (request := await self._context.read()) is not grpc.aio.EOF:
            yield request
