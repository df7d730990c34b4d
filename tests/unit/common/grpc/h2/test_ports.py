"""The ports of a server of the transport h2."""

import pytest

from ortoo.common.errors import Invalid
from ortoo.common.grpc.server import GrpcServer
from ortoo.common.grpc.tls import TlsListener
from ortoo.common.grpc.transport import H2
from ortoo.verification.servers.ports import free_ports


async def test_a_server_without_a_usable_certificate_releases_its_other_ports() -> None:
    """The process, or another one, can bind them at once."""
    [port] = free_ports(1)
    listener = TlsListener("127.0.0.1:0", "absent", "absent")
    for _ in range(2):
        with pytest.raises(Invalid):
            async with GrpcServer(f"127.0.0.1:{port}", [], tls=listener, wire=H2):
                pass
    async with GrpcServer(f"127.0.0.1:{port}", [], wire=H2):
        pass
