"""Calls whose headers violate HTTP/2 are reset by libnghttp2, and an operator finds their caller in the log."""

from typing import Any

import grpc
import pytest
import structlog

from ortoo.common.grpc.server import GrpcServer
from ortoo.common.grpc.transport import H2
from tests.hostile.floods import CHECK

CALLS = 3


async def test_the_log_names_the_caller_once_in_a_while() -> None:
    """One line for many such calls; other calls of the connection are served."""
    async with (
        GrpcServer("127.0.0.1:0", (), wire=H2) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        check: Any = channel.unary_unary(CHECK)
        with structlog.testing.capture_logs() as lines:
            for _ in range(CALLS):
                with pytest.raises(grpc.aio.AioRpcError):
                    await check(b"", metadata=(("k", "behind "),))
            await check(b"")
        assert await check(b"", metadata=(("k", "in between"),)) is not None
    [line] = [line for line in lines if line["event"] == "call_headers_invalid"]
    assert line["peer"].startswith("ipv4:127.0.0.1:")
    assert line["since_start"] == 1
