"""Keeps the status that a server gave to a stream, because grpc.aio may replace it."""

from collections.abc import Coroutine
from typing import Any, TypeVar

import grpc

Result = TypeVar("Result")


class ServerStatus:
    """The status that the server gave to one call.

    The server may end a call while the client writes a message. The write then fails, and grpc.aio replaces the status
    of the call with INTERNAL, "Internal error from Core". A refusal would look like a broken connection.
    """

    def __init__(self, call: "grpc.aio.Call") -> None:
        """The status is taken at the moment when `call` gets it."""
        self._first: grpc.aio.AioRpcError | None = None
        call.add_done_callback(self._keep)

    def of(self, failure: grpc.aio.AioRpcError) -> grpc.aio.AioRpcError:
        """The error with the server's status for a call that failed with `failure`."""
        return self._first if self._first is not None and failure.code() is grpc.StatusCode.INTERNAL else failure

    def _keep(self, call: Any) -> None:
        """Keep the first error. OK is none, and INTERNAL without metadata is grpc.aio's own."""
        if self._first is not None or (code := _result_of(call.code())) is grpc.StatusCode.OK:
            return
        trailing = _result_of(call.trailing_metadata())
        if code is not grpc.StatusCode.INTERNAL or trailing:
            self._first = grpc.aio.AioRpcError(
                code, _result_of(call.initial_metadata()), trailing, _result_of(call.details())
            )


def _result_of(read: Coroutine[Any, Any, Result]) -> Result:
    """The result of a coroutine that has nothing to wait for. A task would run after the status is replaced."""
    try:
        read.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise RuntimeError("the status of a call that has ended was not there")
