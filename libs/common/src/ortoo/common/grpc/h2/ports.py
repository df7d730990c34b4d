"""Listening ports by gRPC's names of addresses."""

import socket
from dataclasses import dataclass
from typing import Self

from ortoo.common.grpc.tls import Contexts

BACKLOG = 1024
ANY = ("", "0.0.0.0", "::", "[::]")
"""gRPC listens on all addresses of both families for each of these hosts."""


@dataclass(slots=True)
class Port:
    """A port of a server."""

    sockets: list[socket.socket]
    """The listening sockets, one for each address of the host."""
    tls: Contexts | None
    """Makes the contexts of handshakes; None = plaintext."""
    connections: int = 0
    """The number of open connections, including those whose handshake has not finished."""

    @classmethod
    def bind(cls, address: str, tls: Contexts | None, *, reuses_port: bool) -> Self:
        """Listen on host:port. Port 0 = any free port. Errors: OSError."""
        return cls(_listen(address, reuses_port=reuses_port), tls)

    @property
    def number(self) -> int:
        """The port's number."""
        return int(self.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Close the listening sockets."""
        for one in self.sockets:
            one.close()


def _listen(address: str, *, reuses_port: bool) -> list[socket.socket]:
    """Bound sockets for host:port, one for each address of the host. Port 0 = any free port. Errors: OSError."""
    host, _, name = address.rpartition(":")
    port = int(name or 0)
    if host in ANY:
        return [_bound(socket.AF_INET6, ("::", port), reuses_port, is_dual=True)]
    found: list[socket.socket] = []
    seen: set[object] = set()
    try:
        for family, _, _, _, where in socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM):
            if where in seen:
                continue
            seen.add(where)
            place = (where[0], found[0].getsockname()[1] if found else port, *where[2:])
            found.append(_bound(family, place, reuses_port))
    except OSError:
        for one in found:
            one.close()
        raise
    return found


def _bound(family: int, address: tuple[object, ...], reuses_port: bool, *, is_dual: bool = False) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuses_port:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(not is_dual))
        made.bind(address)
        made.listen(BACKLOG)
        made.setblocking(False)
    except OSError:
        made.close()
        raise
    return made
