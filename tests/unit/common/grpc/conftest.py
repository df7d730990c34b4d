"""The transports of servers: tests with the fixture `each_transport` run on both."""

from collections.abc import Iterator

import pytest

from ortoo.common.grpc.transport import H2Transport, SocketTransport, using_transport

TRANSPORTS = {"grpc": SocketTransport, "h2": H2Transport}


@pytest.fixture(params=TRANSPORTS)
def each_transport(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of the transport of the test's servers."""
    name: str = request.param
    with using_transport(TRANSPORTS[name]()):
        yield name
