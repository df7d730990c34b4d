"""Senders of one stream that wait until its messages are sent."""

import asyncio
from typing import Any

from ortoo.common.grpc.h2.limits import WireLimits
from ortoo.common.grpc.h2.shared.endpoint import Endpoint
from ortoo.common.grpc.h2.shared.looks import Looks
from ortoo.common.process.background import Background

STREAM = 1


class Window:
    """The state of a connection whose peer has closed the window of a stream."""

    unsent_bytes = 100

    def queued_body_size(self, stream_id: int) -> int:
        return self.unsent_bytes

    def data_to_send(self, size: int) -> bytes:
        return b""

    def events(self) -> list[Any]:
        return []


async def test_all_senders_of_a_stream_go_on_when_its_window_opens() -> None:
    """One of them is cancelled before, which ends no other one."""
    window = Window()
    endpoint = Endpoint(WireLimits(), window, Looks())
    endpoint.calls[STREAM] = object()
    async with asyncio.timeout(60), Background("test") as background:
        cancelled, *senders = [background.spawn("send", endpoint.wait_until_sent(STREAM, 50)) for _ in range(4)]
        await asyncio.wait(senders, timeout=0)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        assert not any(one.done() for one in senders)
        window.unsent_bytes = 50
        endpoint.flush()
        await asyncio.gather(*senders)
