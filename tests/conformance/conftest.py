"""Each case runs on real sockets and in memory."""

from collections.abc import AsyncIterator, Callable

import pytest

from ortoo.common.process.background import Background
from tests.conformance.transports import H2Wire, MemoryWire, SocketWire
from tests.conformance.wire import Wire

WIRES: dict[str, Callable[[Background], Wire]] = {
    "sockets": SocketWire,
    "h2": H2Wire,
    "memory": lambda _: MemoryWire(),
}


@pytest.fixture(params=["sockets", "h2", "memory"])
async def wire(request: pytest.FixtureRequest) -> AsyncIterator[Wire]:
    """The transport that the case runs on."""
    async with Background("wire") as background:
        chosen: Wire = WIRES[request.param](background)
        try:
            yield chosen
        finally:
            await chosen.close()
