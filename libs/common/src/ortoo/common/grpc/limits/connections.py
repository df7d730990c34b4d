"""The sockets of this process's connections, found by their addresses, because gRPC has no way to close one of them."""

import contextlib
import os
import socket
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from urllib.parse import unquote

DESCRIPTORS = "/dev/fd"
MAPPED = "::ffff:"
Peer = tuple[str, int]
"""(host, port)."""
_TCP_INFO: int | None = getattr(socket, "TCP_INFO", None)
_TCP_INFO_BYTES = 136
_SILENT_MS, _RECEIVED = struct.Struct("=I"), struct.Struct("=Q")
_SILENT_MS_AT, _RECEIVED_AT = 52, 128
"""The offsets of `tcpi_last_data_recv` and `tcpi_bytes_received` on Linux."""


@dataclass(frozen=True, slots=True)
class ServerConnection:
    """An incoming connection of this process."""

    descriptor: int
    port: int
    """The port of this process."""
    peer: Peer
    silent_ms: int
    """The time since the peer last sent data; 0 where the system does not report it."""
    received_bytes: int
    """The bytes that the peer has sent; 0 where the system does not report it."""


def peer_of(name: str) -> Peer | None:
    """The address in gRPC's name of a peer, such as `ipv4:127.0.0.1:4711`; None for a name without a port."""
    _, _, address = name.partition(":")
    host, _, port = unquote(address).rpartition(":")
    return (_plain(host.strip("[]")), int(port)) if port.isdecimal() else None


def address_of(name: str) -> str:
    """The host in gRPC's name of a peer; the whole name if it has no port."""
    peer = peer_of(name)
    return name if peer is None else peer[0]


def connections_to(ports: Collection[int]) -> list[ServerConnection]:
    """The incoming connections to these ports of this process, including connections that are not set up yet."""
    return list(each_connection_to(ports))


def each_connection_to(ports: Collection[int]) -> Iterator[ServerConnection]:
    """The same connections one by one. If none is kept, thousands of them start no garbage collection."""
    for descriptor in _open_descriptors():
        if (found := _connection_at(descriptor, ports)) is not None:
            yield found


def _connection_at(descriptor: int, ports: Collection[int]) -> ServerConnection | None:
    with contextlib.suppress(OSError), _borrowed(descriptor) as one:
        own, peer = _name(one.getsockname()), _name(one.getpeername())
        if own is not None and peer is not None and own[1] in ports:
            return ServerConnection(descriptor, own[1], peer, *_silence_and_receipts(one))
    return None


def end_connections(peers: Collection[Peer | None]) -> set[Peer]:
    """Shut down the connections to these peers; returns the peers that were found.

    The server then reads an end of the stream, ends every call on these connections, and frees the calls' memory.
    """
    ended: set[Peer] = set()
    for descriptor in _open_descriptors() if peers else ():
        with contextlib.suppress(OSError):
            with _borrowed(descriptor) as one:
                peer = _name(one.getpeername())
            if peer is not None and peer in peers and end_connection(descriptor, peer):
                ended.add(peer)
    return ended


def end_connection(descriptor: int, peer: Peer) -> bool:
    """Shut down one connection; False if the descriptor was closed or now belongs to another socket."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as pinned:
        if _name(pinned.getpeername()) == peer:
            pinned.shutdown(socket.SHUT_RDWR)
            return True
    return False


def _open_descriptors() -> Iterator[int]:
    with contextlib.suppress(OSError):
        yield from (int(name) for name in os.listdir(DESCRIPTORS) if name.isdecimal())


@contextlib.contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    """A descriptor as a socket, which stays open. Errors: OSError if it is not a socket or no longer exists."""
    borrowed = socket.socket(fileno=descriptor)
    try:
        yield borrowed
    finally:
        borrowed.detach()


def _name(name: object) -> Peer | None:
    return (_plain(str(name[0])), int(name[1])) if isinstance(name, tuple) else None


def _silence_and_receipts(connection: socket.socket) -> tuple[int, int]:
    if _TCP_INFO is None:
        return 0, 0
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _TCP_INFO_BYTES)
    except OSError:
        return 0, 0
    if len(info) < _TCP_INFO_BYTES:
        return 0, 0
    return _SILENT_MS.unpack_from(info, _SILENT_MS_AT)[0], _RECEIVED.unpack_from(info, _RECEIVED_AT)[0]


def _plain(host: str) -> str:
    """An address without its zone. IPv4 addresses that a dual-stack listener sees as IPv6 are converted back."""
    return host.partition("%")[0].removeprefix(MAPPED)
