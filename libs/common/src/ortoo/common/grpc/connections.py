"""The sockets of this process's connections, found by their addresses: gRPC has no call that ends one of them."""

import contextlib
import os
import socket
import struct
from collections import Counter
from collections.abc import Collection, Iterator
from urllib.parse import unquote

DESCRIPTORS = "/dev/fd"
MAPPED = "::ffff:"
NEVER_SPOKE_S, SILENT_S = 2.0, 60.0
"""How long a peer that has sent nothing at all counts as one that may still speak; and one that has spoken before. A
client of gRPC speaks at once, and answers a ping every half minute."""
_TCP_INFO = struct.Struct("=52xI72xQ")
"""Of Linux: milliseconds since data came last, bytes that came altogether."""
Peer = tuple[str, int]
"""(host, port)."""


def peer_of(name: str) -> Peer | None:
    """The address in what gRPC says of a peer, such as `ipv4:127.0.0.1:4711`; None for one that has no port."""
    _, _, address = name.partition(":")
    host, _, port = unquote(address).rpartition(":")
    return (_plain(host.strip("[]")), int(port)) if port.isdecimal() else None


def end_connections(peers: Collection[Peer | None]) -> set[Peer]:
    """Shut down the connections to these peers; returns whose were found.

    Whoever serves them meets an end of the stream, and gives up every call on them with all that it holds.
    """
    ended: set[Peer] = set()
    for descriptor in _open_descriptors() if peers else ():
        peer = _connected_to(descriptor)
        if peer is not None and peer in peers and _shut_down(descriptor, peer):
            ended.add(peer)
    return ended


def _shut_down(descriptor: int, peer: Peer) -> bool:
    """Shut a connection down, if this is the one with `peer`; whether it was."""
    # The number may be another socket's by now, or of none, so that it is pinned and looked at again.
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as pinned:
        if _peer_name(pinned) == peer:
            pinned.shutdown(socket.SHUT_RDWR)
            return True
    return False


def count_connections(ports: Collection[int]) -> Counter[int]:
    """How many connections this process has accepted at each of these ports. Looks at every open descriptor."""
    return Counter(port for port, _, _ in _accepted_at(ports))


def end_silent(port: int, most: int) -> int:
    """Shut down up to `most` connections at a port whose peers say nothing, the longest silent first; how many were.

    Those that have never sent a byte are silent after NEVER_SPOKE_S, others after SILENT_S.
    """
    found: list[tuple[float, int, Peer]] = []
    for _, descriptor, peer in _accepted_at([port]):
        silent_s, came_bytes = _silence_of(descriptor)
        if silent_s > (SILENT_S if came_bytes else NEVER_SPOKE_S):
            found.append((silent_s, descriptor, peer))
    return sum(_shut_down(descriptor, peer) for _, descriptor, peer in sorted(found, reverse=True)[: max(0, most)])


def _accepted_at(ports: Collection[int]) -> Iterator[tuple[int, int, Peer]]:
    """Port, descriptor and peer of each connection that was accepted at one of these ports."""
    for descriptor in _open_descriptors():
        with contextlib.suppress(OSError):  # it is no socket, or it listens
            found = socket.socket(fileno=descriptor)
            try:
                at, peer = found.getsockname(), _peer_name(found)
            finally:
                found.detach()
            if peer is not None and at[1] in ports:
                yield at[1], descriptor, peer


def _silence_of(descriptor: int) -> tuple[float, int]:
    """For how many seconds a peer has sent nothing, and how many bytes it sent before; (0, 0) where nothing tells."""
    if not hasattr(socket, "TCP_INFO"):
        return 0.0, 0
    with contextlib.suppress(OSError, struct.error):
        found = socket.socket(fileno=descriptor)
        try:
            info = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
        finally:
            found.detach()
        silent_ms, came_bytes = _TCP_INFO.unpack(info)
        return silent_ms / 1000, came_bytes
    return 0.0, 0


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
