"""Turns what handlers raise into gRPC status, in one place for every service."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from ortoo.common.errors import Invalid, OrtooError, Unavailable, Unsupported
from ortoo.common.errors.status import FAILURE_METADATA_KEY, failure_of, status_of
from ortoo.common.process.containment import contain, told_as

Context = grpc.aio.ServicerContext[Any, Any]


class ErrorTranslation(grpc.aio.ServerInterceptor):
    """Answers an OrtooError with its status and Failure; anything else is a defect, logged and answered as Internal."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wrap the handler of the called method."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        wrap = _stream if handler.response_streaming else _unary
        if not handler.request_streaming:
            handler = handler._replace(request_deserializer=_guarded(handler.request_deserializer))
        return with_call(handler, lambda call: wrap(call, method))


def with_call(handler: Any, wrap: Callable[[Any], Any]) -> Any:
    """The same handler of a method with its function wrapped, of whichever of gRPC's four kinds it is."""
    kind = next(kind for kind in _KINDS if getattr(handler, kind) is not None)
    return handler._replace(**{kind: wrap(getattr(handler, kind))})


_KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


class _Undecodable:
    """Stands for a request whose bytes are not its message, so that the handler's wrapper can say so."""

    def __init__(self, error: DecodeError) -> None:
        self.error = error


def _guarded(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def read_or_mark(data: bytes) -> Any:
        try:
            return read(data)
        except DecodeError as error:
            return _Undecodable(error)

    return read_or_mark


def _unary(call: Any, method: str) -> Any:
    async def translated(request: Any, context: Context) -> Any:
        try:
            if isinstance(request, _Undecodable):
                raise request.error
            return await call(request, context)
        except Exception as error:
            aborted = await _aborted(context, error, method)
        del request, context
        try:
            raise aborted
        finally:
            del aborted

    return translated


def _stream(call: Any, method: str) -> Any:
    if not inspect.isasyncgenfunction(call):
        return _unary(call, method)  # it writes its answers to the context, as the health service's Watch does

    async def translated(request: Any, context: Context) -> Any:
        try:
            if isinstance(request, _Undecodable):
                raise request.error
            async for response in call(request, context):
                yield response
            return
        except Exception as error:
            aborted = await _aborted(context, error, method)
        del request, context
        try:
            raise aborted
        finally:
            del aborted

    return translated


async def _aborted(context: Context, error: Exception, method: str) -> Exception:
    """What is left to raise when the call has its status.

    gRPC keeps it in the call's context, so its traceback must not lead back there through the locals of its frames:
    each refused call would be garbage for the collector, which then stops the process again and again.
    """
    if not isinstance(error, grpc.aio.AbortError):
        failed = request_failed(error, method)
        failure = failure_of(failed).SerializeToString()
        try:
            await context.abort(status_of(failed), str(failed), ((FAILURE_METADATA_KEY, failure),))
        except grpc.aio.AbortError as aborted:
            error = aborted
    error.__context__ = None
    return error.with_traceback(None)


def request_failed(error: Exception, method: str) -> OrtooError:
    """What a caller of `method` hears of `error`: bytes that are no request are its own fault, a defect is ours.

    Both are noted by `contain`. A stream that broke is Unavailable.
    """
    if isinstance(error, NotImplementedError):
        return Unsupported(f"{method} is not implemented by this server; upgrade it, or call another role")
    if isinstance(error, DecodeError):
        malformed = Invalid(
            f"the bytes are not a request of {method} ({error}); build them from the proto of this version"
        )
        contain(method, malformed)
        return malformed
    if isinstance(error, grpc.aio.AioRpcError | grpc.aio.UsageError | grpc.aio.BaseError):
        return Unavailable(f"{method}: the client's stream broke")
    return told_as(error, method)
