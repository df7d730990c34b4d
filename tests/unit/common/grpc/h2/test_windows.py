"""The window of a stream opens by exactly the bytes that have arrived, in any order of arrivals and reads."""

import asyncio
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.grpc.h2.call import H2Call
from ortoo.common.grpc.h2.framing import frame
from ortoo.common.grpc.h2.headers import CallHeaders
from ortoo.common.grpc.h2.limits import WireLimits


class Stream:
    """The only method, and the connection, of one call."""

    takes_many = True

    def __init__(self) -> None:
        self.server = SimpleNamespace(limits=WireLimits(), clock=None)
        self.loop: Any = None  # no reader waits
        self.received_bytes = self.opened_bytes = 0

    def on_messages(self, call: H2Call, messages: list[bytes], data_bytes: int) -> None:
        call.queue(messages, data_bytes)

    def consumed(self, stream_id: int, size: int) -> None:
        assert size >= 0
        self.opened_bytes += size
        assert self.opened_bytes <= self.received_bytes, "libnghttp2 refuses that, and the window stays closed"


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=20),
    st.lists(st.integers(1, 80), min_size=1),
    st.lists(st.booleans(), min_size=1),
)
def test_the_window_opens_by_the_bytes_that_have_arrived(
    sizes: list[int], pieces: list[int], reads: list[bool]
) -> None:
    """It is open again as soon as no complete request waits."""
    stream: Any = Stream()
    call = H2Call(stream, 1, stream, CallHeaders(((b":path", b"/s/M"),)))
    call.is_served = True
    data, at, step, found = b"".join(frame(bytes(size)) for size in sizes), 0, 0, list[int]()
    waiting = 0

    async def read() -> None:
        request = await call.receive()
        assert request is not None
        found.append(len(request))

    with asyncio.Runner() as runner:
        while at < len(data):
            piece = data[at : at + pieces[step % len(pieces)]]
            stream.received_bytes += len(piece)
            at += len(piece)
            call.on_data(piece, is_last=False)
            waiting = _complete(data[:at]) - len(found)
            if waiting and reads[step % len(reads)]:
                runner.run(read())
                waiting -= 1
            assert waiting or stream.opened_bytes == stream.received_bytes
            step += 1
        for _ in range(waiting):
            runner.run(read())
    assert found == sizes
    assert stream.opened_bytes == stream.received_bytes == len(data)


def _complete(data: bytes) -> int:
    """The number of complete messages."""
    count = at = 0
    while len(data) - at >= 5 and at + 5 + int.from_bytes(data[at + 1 : at + 5]) <= len(data):
        at += 5 + int.from_bytes(data[at + 1 : at + 5])
        count += 1
    return count
