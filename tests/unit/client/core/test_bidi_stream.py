"""Heartbeats of a stream are as frequent as the snode requires."""

import asyncio
from typing import Any

from ortoo.client.core.bidi_stream import INITIAL_HEARTBEAT_INTERVAL_S, BidiStream
from ortoo.common.process.background import Background
from ortoo.verification.time.virtual_time import in_virtual_time, running_clock


class Call:
    """A stream that accepts all requests and returns the responses of the test."""

    def __init__(self) -> None:
        self.written_at_s: list[float] = []
        self.says: asyncio.Queue[float] = asyncio.Queue()

    async def write(self, request: str) -> None:
        """Accept a request."""
        self.written_at_s.append(round(running_clock().monotonic_s(), 3))

    def add_done_callback(self, callback: Any) -> None:
        """Do nothing, because the call does not end."""

    def __aiter__(self) -> "Call":
        return self

    async def __anext__(self) -> float:
        return await self.says.get()

    def cancel(self) -> None:
        """Do nothing."""


@in_virtual_time
async def test_the_first_sign_of_life_comes_as_soon_as_the_snode_asks_for_signs_so_often() -> None:
    """There are none before the snode reports its interval; a shorter one takes effect immediately."""
    call: Any = Call()

    def hear(seconds: float) -> bool:
        conversation.set_heartbeat_interval(seconds)
        return False

    conversation: BidiStream[str, float] = BidiStream("s", hear, lambda: "alive", clock=running_clock())
    async with asyncio.timeout(200), Background("test") as background:
        background.spawn("converse", conversation.run(call))
        begin_s = running_clock().monotonic_s()
        await running_clock().sleep(1.0)
        call.says.put_nowait(5.0)
        await running_clock().sleep(10.5)
        call.says.put_nowait(INITIAL_HEARTBEAT_INTERVAL_S)
        await running_clock().sleep(40.0)
        assert [at_s - begin_s for at_s in call.written_at_s] == [1.0, 6.0, 11.0, 16.0, 46.0]
