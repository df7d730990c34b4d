"""Acknowledgements that are in flight when a consumer is closed."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ortoo.client import Unavailable
from ortoo.client.pop.pop_calls import PopCalls
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock


async def test_who_acknowledges_while_the_consumer_is_cancelled_hears_that_nobody_knows() -> None:
    """The error is not CancelledError, because the caller may be a task of the application that continues."""
    asked = asyncio.Event()

    async def call(*_: Any) -> None:
        asked.set()
        await asyncio.get_running_loop().create_future()

    connection: Any = SimpleNamespace(clock=SystemClock(), call=call)
    async with asyncio.timeout(60), Background("application") as application:
        async with Background("consumer") as background:
            calls = PopCalls(connection, background, retry_timeout_s=1.0)
            acks = [application.start_future("ack", calls.ack(enode, "handle", [1])) for enode in ("e", "f")]
            await asked.wait()
            settling = application.spawn("settle", calls.drain())
            await SystemClock().sleep(0)
            settling.cancel()
            await asyncio.wait([settling])
        for ack in acks:
            with pytest.raises(Unavailable, match="closed before the answer"):
                await ack
