"""A TLS session between a socket and an end of a connection."""

import contextlib
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ortoo.common.grpc.h2.shared.tls_session import ALPN, UNSENT_BYTES_MAX, TlsSession
from ortoo.common.grpc.tls import make_self_signed_certificate

HOST = "127.0.0.1"


class UnreadSocket:
    """A socket whose peer reads only the first bytes, those of the handshake."""

    def __init__(self, peer: ssl.MemoryBIO) -> None:
        self.peer: ssl.MemoryBIO | None = peer
        self.unsent_bytes = 0
        self.is_aborted = False

    def write(self, data: bytes) -> None:
        if self.peer is not None:
            self.peer.write(data)
        else:
            self.unsent_bytes += len(data)

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def abort(self) -> None:
        self.is_aborted = True


class End:
    """An end of a connection that takes everything."""

    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(1 << 10))
        self.received = b""

    def admit(self, transport: Any) -> bool:
        return True

    def connection_made(self, transport: Any) -> None:
        pass

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += bytes(self.buffer[:nbytes])

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


def fed(session: TlsSession, data: bytes) -> None:
    """Let a session read encrypted bytes."""
    while data:
        buffer = session.get_buffer(-1)
        size = min(len(buffer), len(data))
        buffer[:size], data = data[:size], data[size:]
        session.buffer_updated(size)


def contexts(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Those of a server and of its client."""
    certificate, key = make_self_signed_certificate((HOST,))
    (folder / "certificate").write_bytes(certificate)
    (folder / "key").write_bytes(key)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "certificate", folder / "key")
    client = ssl.create_default_context(cafile=str(folder / "certificate"))
    for one in (server, client):
        one.set_alpn_protocols([ALPN])
    return server, client


@pytest.mark.parametrize(("unsent_bytes", "is_aborted"), [(0, False), (UNSENT_BYTES_MAX, False), (1 << 20, True)])
async def test_a_peer_that_sends_and_reads_nothing_is_disconnected(
    unsent_bytes: int, is_aborted: bool, tmp_path: Path
) -> None:
    """TLS answers requests for new keys, so its answers would otherwise wait without a limit."""
    of_server, of_client = contexts(tmp_path)
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = of_client.wrap_bio(received, sent, server_side=False, server_hostname=HOST)
    socket, end = UnreadSocket(received), End()
    session = TlsSession(end, of_server, handshake_max_s=60.0)
    session.connection_made(socket)
    while client.version() is None or sent.pending:
        with contextlib.suppress(ssl.SSLWantReadError):
            client.do_handshake()
        fed(session, sent.read())
    socket.peer = None
    socket.unsent_bytes = unsent_bytes
    client.write(b"request")
    fed(session, sent.read())
    assert end.received == b"request"
    assert socket.is_aborted is is_aborted
    session.connection_lost(None)
