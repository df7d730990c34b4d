"""GRPC's interop test cases with the client of grpcio, in plaintext and with TLS; `make interop` has other clients."""

import asyncio
from pathlib import Path

import grpc
import pytest

from ortoo.common.grpc.tls import TlsListener, make_self_signed_certificate
from tests.interop import cases
from tests.interop.service import CASES, interop_server

pytestmark = pytest.mark.usefixtures("each_transport")


@pytest.mark.parametrize("case", CASES)
async def test_a_case_passes(case: str, tmp_path: Path) -> None:
    """On both ports of a server."""
    certificate, key = make_self_signed_certificate(("localhost", "127.0.0.1"))
    for name, text in (("certificate", certificate), ("key", key)):
        (tmp_path / name).write_bytes(text)
    listener = TlsListener("127.0.0.1:0", str(tmp_path / "certificate"), str(tmp_path / "key"))
    async with asyncio.timeout(60), interop_server(listener) as server:
        credentials = grpc.ssl_channel_credentials(certificate)
        async with (
            grpc.aio.insecure_channel(server.address) as clear,
            grpc.aio.secure_channel(server.tls_address, credentials) as secured,
        ):
            for channel in (clear, secured):
                await cases.run(case, channel)
