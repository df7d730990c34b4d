"""The ports of several workers, kept by the parent as long as it lives: nobody else gets them in between."""

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from ortoo.common.grpc.server import cannot_listen
from ortoo.snode.settings import Settings


@dataclass(frozen=True, slots=True)
class Ports:
    """host:port each, with real ports."""

    listen_address: str
    tls_listen_address: str
    """Empty when TLS is not spoken."""
    own_addresses: tuple[str, ...]
    """Where each worker alone is reached."""


@contextlib.contextmanager
def kept_ports(settings: Settings) -> Iterator[Ports]:
    """Keep all ports for processes of this user that share them. Errors: Conflict when one is taken."""
    inner = settings.tls_cluster_listen_address
    host, _, first = (inner or f"{settings.listen_address.rpartition(':')[0]}:{settings.worker_port}").rpartition(":")
    own = [f"{host}:{int(first) and int(first) + number}" for number in range(settings.workers)]
    with contextlib.ExitStack() as kept:

        def keep(address: str, setting: str) -> str:
            if not address:
                return ""
            holder = kept.enter_context(_holder(address, setting))
            return f"{address.rpartition(':')[0]}:{holder.getsockname()[1]}"

        yield Ports(
            keep(settings.listen_address, "listen_address"),
            keep(settings.tls_listen_address, "tls_listen_address"),
            tuple(keep(address, "tls_cluster_listen_address" if inner else "worker_port") for address in own),
        )


def _holder(address: str, setting: str) -> socket.socket:
    """A socket that has the port and listens on it never: who wants it alone is refused, who shares it may have it."""
    host, _, port = address.rpartition(":")
    try:
        family, kind, _, _, at = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as alone:
            # A second snode fails here, for this one does not share yet; what a former one left closing does not count.
            alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            alone.bind(at)
            alone.listen()
            alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            holder = socket.socket(family, kind)
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            holder.bind(alone.getsockname())
            # From now on an address in use is no address for others, even while nobody listens.
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
            return holder
    except OSError as error:
        raise cannot_listen(address, setting) from error
