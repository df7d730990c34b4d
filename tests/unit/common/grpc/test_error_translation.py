"""The status of a failed call: for a caller that waits, and for one that has left."""

import asyncio
from typing import Any, NoReturn, cast

import grpc
import pytest

from ortoo.common.errors import Invalid
from ortoo.common.grpc.layers.error_translation import ErrorTranslation
from ortoo.common.grpc.layers.layer import Method, ServedCall

METHOD = Method("/t.S/Call", "S/Call", is_request_stream=False, is_response_stream=False, read=bytes, write=bytes)


class Context:
    """The context of a call that has ended, so that it takes no status."""

    def __init__(self, *, is_caller_gone: bool) -> None:
        self.done = lambda: is_caller_gone

    async def abort(self, code: Any, details: str, trailing: Any) -> NoReturn:
        """As the contexts of all transports."""
        raise grpc.aio.InternalError("the call has ended")


async def translated(*, is_caller_gone: bool) -> BaseException | None:
    """The error that the transport gets from a handler that fails late."""
    call = ServedCall(METHOD, b"", cast("Any", Context(is_caller_gone=is_caller_gone)))
    call.set_failure(Invalid("late", field="f"))
    waiting = ErrorTranslation().leave(call)
    assert waiting is not None
    await waiting
    return call.error


async def test_a_late_error_of_a_call_whose_caller_has_left_is_its_cancellation() -> None:
    """Servers log any other exception of a handler as a defect, although no caller waits for the status."""
    assert isinstance(await translated(is_caller_gone=True), asyncio.CancelledError)


async def test_a_status_that_cannot_be_sent_to_a_caller_that_waits_is_a_defect() -> None:
    """It stays visible."""
    with pytest.raises(grpc.aio.InternalError):
        await translated(is_caller_gone=False)
