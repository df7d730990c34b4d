"""The factory of channels and servers."""

from collections.abc import Sequence

import grpc
import pytest
import structlog

from ortoo.common.grpc.channels import OPTIONS, Channels
from ortoo.common.grpc.h2 import engine
from ortoo.common.grpc.server import GrpcServer
from ortoo.common.grpc.transport import (
    H2,
    H2Transport,
    Options,
    SocketTransport,
    current_transport,
    using_transport,
)
from ortoo.common.process.background import Background


class Recorded(SocketTransport):
    """A transport that records its calls."""

    def __init__(self) -> None:
        self.channels: list[tuple[str, Options]] = []
        self.servers = 0

    def channel(self, address: str, options: Options) -> grpc.aio.Channel:
        self.channels.append((address, options))
        return super().channel(address, options)

    def server(self, interceptors: Sequence[grpc.aio.ServerInterceptor], options: Options) -> grpc.aio.Server:
        self.servers += 1
        return super().server(interceptors, options)


async def test_channels_and_servers_come_from_the_transport_in_use() -> None:
    """In the block, and in tasks spawned there, pools and servers use the given transport; outside, sockets."""
    outside = current_transport()
    recorded = Recorded()
    async with Channels() as channels, Background("test") as background:
        with using_transport(recorded):
            spawned = background.spawn("channel", _channel(channels, "10.0.0.1:2"))
            channels.channel_to("10.0.0.1:1")
            GrpcServer("127.0.0.1:0", [])
        assert current_transport() is outside
        await spawned
        channels.channel_to("127.0.0.1:3")
    assert [(address, tuple(options)) for address, options in recorded.channels] == [
        ("10.0.0.1:1", OPTIONS),
        ("10.0.0.1:2", OPTIONS),
    ]
    assert recorded.servers == 1


async def _channel(channels: Channels, address: str) -> grpc.aio.Channel:
    return channels.channel_to(address)


async def test_a_process_without_ngh2_serves_by_grpc_aio(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line of the log reports it."""
    transport = SocketTransport()
    assert transport.on_wire("grpc") is transport
    assert isinstance(transport.on_wire(H2), H2Transport)
    monkeypatch.setattr(engine, "IS_AVAILABLE", False)
    assert transport.on_wire(H2) is transport
    with structlog.testing.capture_logs() as lines:
        GrpcServer("127.0.0.1:0", [], wire=H2)
    assert [line["event"] for line in lines] == ["transport_h2_unavailable"]
