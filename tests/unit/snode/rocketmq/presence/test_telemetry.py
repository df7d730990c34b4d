"""A telemetry stream whose client does not read."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from apache.rocketmq.v2.service_pb2 import TelemetryCommand
from ortoo.common.errors import Overloaded
from ortoo.common.process.background import Background
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.randomness import Randomness
from ortoo.snode.cluster.stream_ages import StreamAges
from ortoo.snode.rocketmq.clients.table import CommandStream, ConnectedClient
from ortoo.snode.rocketmq.presence.telemetry import TelemetryActivity


class Echoing(TelemetryActivity):
    """Answers any request."""

    async def _on_request(self, caller: Any, request: TelemetryCommand, stream: CommandStream, scope: Any) -> None:
        stream.send(request)


class NoClients:
    """Has no members."""

    def get(self, client_id: str) -> ConnectedClient | None:
        """No member."""
        return None


async def test_a_client_that_reads_nothing_ends_its_own_stream() -> None:
    """The waiting commands are bounded, and the end of the stream needs no space among them."""
    caller: Any = type("Caller", (), {"client_id": "deaf"})()
    make: Any = Echoing
    parts: Any = [NoClients(), None, None, None]

    async def requests() -> AsyncIterator[TelemetryCommand]:
        for _ in range(2_000):
            yield TelemetryCommand()

    async with asyncio.timeout(60), Background("process") as background:
        own_loop = background.spawn("own loop", asyncio.Event().wait())
        ages = StreamAges(0, SystemClock(), Randomness(1))
        runtime = SimpleNamespace(background=background, clock=SystemClock(), stream_ages=ages)
        stream = make(*parts, runtime).run_stream(caller, requests())
        taken = 0
        with pytest.raises(Overloaded):
            async for _ in stream:
                taken += 1
        assert 0 < taken < 2_000
        assert not own_loop.done()
