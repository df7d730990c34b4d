"""Answers a failed call with its status and Failure, in one place for every service."""

from collections.abc import Awaitable

import grpc

from ortoo.common.errors import Unavailable
from ortoo.common.errors.status import FAILURE_METADATA_KEY, failure_of, status_of, told
from ortoo.common.grpc.around.layers import Call, Layer
from ortoo.common.grpc.errors import request_failed


class ErrorTranslation(Layer):
    """Answers an OrtooError with its status and Failure; anything else is a defect, logged and answered as Internal."""

    def leave(self, call: Call) -> Awaitable[None] | None:
        """Give a failed call its status, also where it was cancelled amid a write: its caller would wait for ever."""
        if isinstance(call.error, GeneratorExit) and not call.context.done():
            call.error = Unavailable("this call was ended; make it again")
        return self._abort(call, call.error) if isinstance(call.error, Exception) else None

    async def _abort(self, call: Call, error: Exception) -> None:
        """Leave an error that gRPC can keep: its traceback must not lead through locals to the call that keeps it.

        Else each refused call would be garbage for the collector, which then stops the process again and again.
        """
        if not isinstance(error, grpc.aio.AbortError):
            failed = request_failed(error, call.method.path)
            failure = failure_of(failed).SerializeToString()
            try:
                await call.context.abort(status_of(failed), told(str(failed)), ((FAILURE_METADATA_KEY, failure),))
            except grpc.aio.AbortError as aborted:
                error = aborted
        error.__context__ = None
        call.error = error.with_traceback(None)
