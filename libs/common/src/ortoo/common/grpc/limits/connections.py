"""The sockets of this process's connections, found by the peer's address: gRPC lets nobody end one of them."""

import contextlib
import os
import socket
from collections.abc import Collection, Iterator
from urllib.parse import unquote

DESCRIPTORS = "/dev/fd"
MAPPED = "::ffff:"
Peer = tuple[str, int]
"""(host, port)."""


def peer_of(name: str) -> Peer | None:
    """The address in what gRPC says of a peer, such as `ipv4:127.0.0.1:4711`; None for one that has no port."""
    _, _, address = name.partition(":")
    host, _, port = unquote(address).rpartition(":")
    return (_plain(host.strip("[]")), int(port)) if port.isdecimal() else None


def address_of(name: str) -> str:
    """The host in what gRPC says of a peer; what it says for one that has no port."""
    peer = peer_of(name)
    return name if peer is None else peer[0]


def end_connections(peers: Collection[Peer | None]) -> set[Peer]:
    """Shut down the connections to these peers; returns whose were found.

    Whoever serves them meets an end of the stream, and gives up every call on them with all that it holds.
    """
    ended: set[Peer] = set()
    for descriptor in _open_descriptors() if peers else ():
        peer = _connected_to(descriptor)
        if peer is None or peer not in peers:
            continue
        # The number may be another socket's by now, or of none, so that it is pinned and looked at again.
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as pinned:
            if _peer_name(pinned) == peer:
                pinned.shutdown(socket.SHUT_RDWR)
                ended.add(peer)
    return ended


def _open_descriptors() -> Iterator[int]:
    with contextlib.suppress(OSError):
        yield from (int(name) for name in os.listdir(DESCRIPTORS) if name.isdecimal())


def _connected_to(descriptor: int) -> Peer | None:
    try:
        found = socket.socket(fileno=descriptor)
    except OSError:  # it is no socket
        return None
    try:
        return _peer_name(found)
    except OSError:  # it listens
        return None
    finally:
        found.detach()


def _peer_name(connection: socket.socket) -> Peer | None:
    name = connection.getpeername()
    if not isinstance(name, tuple):
        return None
    return _plain(str(name[0])), int(name[1])


def _plain(host: str) -> str:
    """An address without its zone, one of IPv4 as itself: a listener for both sees it as one of IPv6."""
    return host.partition("%")[0].removeprefix(MAPPED)
