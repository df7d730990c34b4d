"""The client's own event loops log no errors about events of event loops that were closed."""

import asyncio
import logging

import pytest

from ortoo.client.blocking.loop_thread import LoopThread
from ortoo.client.handling.closed_loops import ignore_closed_loops

LATE = "Exception in callback PollerCompletionQueue._handle_events(<_UnixSelectorEventLoop>)"
CLOSED = RuntimeError("Event loop is closed")


def test_a_late_event_of_grpc_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Other errors of callbacks are logged as before, those about a closed loop among them."""
    loop = asyncio.new_event_loop()
    ignore_closed_loops(loop)
    with caplog.at_level(logging.ERROR, "asyncio"):
        loop.call_exception_handler({"message": LATE, "exception": CLOSED})
        assert caplog.messages == []
        loop.call_exception_handler({"message": "Exception in callback mine()", "exception": CLOSED})
        loop.call_exception_handler({"message": LATE, "exception": RuntimeError("another")})
        loop.call_exception_handler({"message": "a future was never awaited"})
    loop.close()
    assert [message.splitlines()[0] for message in caplog.messages] == [
        "Exception in callback mine()",
        LATE,
        "a future was never awaited",
    ]


def test_the_blocking_client_ignores_late_events(caplog: pytest.LogCaptureFixture) -> None:
    """The loop of the blocking client takes events of the whole process."""
    thread = LoopThread()

    async def report() -> None:
        asyncio.get_running_loop().call_exception_handler({"message": LATE, "exception": CLOSED})

    with caplog.at_level(logging.ERROR, "asyncio"):
        thread.run(report())
    thread.close()
    assert caplog.messages == []
