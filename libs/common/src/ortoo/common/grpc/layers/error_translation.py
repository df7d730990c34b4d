"""Answers a failed call with its status and Failure, in one place for every service."""

import asyncio
from collections.abc import Awaitable

import grpc

from ortoo.common.errors import Unavailable
from ortoo.common.errors.status import FAILURE_METADATA_KEY, failure_of, status_of, told
from ortoo.common.grpc.errors import translate_error
from ortoo.common.grpc.layers.layer import Layer, ServedCall


class ErrorTranslation(Layer):
    """Answers an OrtooError with its status and Failure. Other exceptions are defects: logged, and sent as Internal."""

    always_repeats = True

    def leave(self, call: ServedCall) -> Awaitable[None] | None:
        """Give a failed call its status, also if it was cancelled during a write. Otherwise the caller would hang."""
        if isinstance(call.error, GeneratorExit) and not call.context.done():
            call.error = Unavailable("this call was ended; retry it")
        return self._abort(call, call.error) if isinstance(call.error, Exception) else None

    async def _abort(self, call: ServedCall, error: Exception) -> None:
        """End the call with an error whose traceback does not refer to the call, because gRPC keeps the error.

        Otherwise each refused call would be a reference cycle, and the garbage collector would pause the process often.
        """
        if not isinstance(error, grpc.aio.AbortError):
            failed = translate_error(error, call.method.path)
            status, text = status_of(failed), told(str(failed))
            trailing = ((FAILURE_METADATA_KEY, failure_of(failed).SerializeToString()),)
            if call.answer is not None:  # a last answer goes first, and `abort` would send the status now
                call.context.set_code(status)
                call.context.set_details(text)
                call.context.set_trailing_metadata(trailing)
                call.error = None
                return
            try:
                await call.context.abort(status, text, trailing)
            except grpc.aio.AbortError as aborted:
                error = aborted
            except grpc.aio.InternalError:
                if not call.context.done():
                    raise
                call.error = asyncio.CancelledError()  # no caller waits for a status
                return
        error.__context__ = None
        call.error = error.with_traceback(None)
