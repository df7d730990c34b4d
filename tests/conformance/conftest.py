"""Each case runs on real sockets and in memory."""

from collections.abc import AsyncIterator

import pytest

from ortoo.common.process.background import Background
from tests.conformance.transports import MemoryWire, SocketWire
from tests.conformance.wire import Wire


@pytest.fixture(params=["sockets", "memory"])
async def wire(request: pytest.FixtureRequest) -> AsyncIterator[Wire]:
    """The transport that the case runs on."""
    async with Background("wire") as background:
        chosen: Wire = SocketWire(background) if request.param == "sockets" else MemoryWire()
        try:
            yield chosen
        finally:
            await chosen.close()
