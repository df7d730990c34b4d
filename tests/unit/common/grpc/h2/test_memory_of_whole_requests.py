"""Calls whose requests come together with their headers count as long as they are open, however they are answered."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc
import pytest

from ortoo.common.grpc.h2 import engine
from ortoo.common.grpc.h2.framing import PREFIX_BYTES
from ortoo.common.grpc.h2.server import H2Server
from ortoo.common.grpc.layers.call_memory import CALL_BYTES, CallMemory
from ortoo.common.grpc.layers.coding import Decoding
from ortoo.common.grpc.layers.error_translation import ErrorTranslation
from ortoo.common.grpc.layers.layer import Layers
from ortoo.common.process.memory_budget import MemoryBudget
from tests.unit.common.grpc.h2.test_repeated_requests import HEADERS, Arrivals, Client, Service
from tests.unit.common.grpc.served import until

CALLS = 4
PART = b"\0\0\0\1\0abc"
"""The begin of a message of 256 bytes."""


class Served:
    """A server with a memory budget, and a client that takes no answers."""

    def __init__(self) -> None:
        self.budget = MemoryBudget(60 << 20)
        self.memory = CallMemory(self.budget)
        self.arrivals = Arrivals()
        self.server = H2Server([Layers([ErrorTranslation(), self.arrivals, self.memory, Decoding(self.memory)])])
        self.client = Client(self.server, Service(), self.arrivals)

    @property
    def used_bytes(self) -> int:
        """The memory of all calls, with and without requests."""
        return self.budget.used_bytes + self.memory.waiting.used_bytes

    async def until_open(self, count: int) -> None:
        """Wait until the server has this number of open calls."""
        self.client.send()
        await until(partial(self.client.has_calls, count))


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """The running server."""
    found = Served()
    handlers: dict[str, Any] = {"Call": grpc.unary_unary_rpc_method_handler(found.client.service.Call)}
    found.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.Service", handlers),))
    port = found.server.add_insecure_port("127.0.0.1:0")
    await found.server.start()
    async with asyncio.timeout(60):
        await found.client.connect(f"127.0.0.1:{port}", {engine.Setting.INITIAL_WINDOW_SIZE: 0})
        yield found
    found.client.close()
    await until(lambda: not found.used_bytes)
    await found.server.stop(None)


@pytest.mark.parametrize("request_of", [lambda number: b"%d" % number, lambda _: b"x"], ids=["different", "repeated"])
async def test_a_peer_that_takes_no_answers(served: Served, request_of: Any) -> None:
    """Each of its calls counts, also a call whose answer is that of an earlier one."""
    for number in range(CALLS):
        served.client.begin(request_of(number))
        await served.until_open(number + 1)
    assert all(call.is_answered for call in served.client.calls.values())
    assert served.budget.used_bytes == CALLS * CALL_BYTES


async def test_a_request_that_is_not_complete(served: Served) -> None:
    """Its call counts, and its bytes as well, until the peer has taken the status."""
    served.client.begin(b"x")
    await served.until_open(1)
    [connection] = served.server.connections
    connection.pause_writing()  # the peer does not even read
    before_bytes = served.used_bytes
    for number in range(CALLS):
        served.client.h2.send_data(served.client.h2.send_request(HEADERS), PART, end_stream=True)
        await served.until_open(1 + number + 1)
    assert served.used_bytes == before_bytes + CALLS * (CALL_BYTES + len(PART) - PREFIX_BYTES)
    connection.resume_writing()
    await served.until_open(1)


async def test_a_call_that_does_not_fit(served: Served) -> None:
    """It is refused with the size that it needs, and no layer behind sees it."""
    share = served.budget.share("others")
    share.draw(served.budget.bytes_max, is_request=True)
    served.client.begin(b"x")
    served.client.send()
    found = await served.client.events(engine.StreamClosed)
    [headers] = [dict(one.headers) for one in found if isinstance(one, engine.ResponseReceived)]
    assert headers[b"grpc-status"] == b"8"
    assert f"Call needs {CALL_BYTES} bytes more" in headers[b"grpc-message"].decode()
    assert (served.client.service.served, dict(served.budget.refused)) == (0, {"Call": 1})
    share.close()
