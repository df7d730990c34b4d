"""The ports of several workers, held by the parent for its lifetime, so that no other process takes them."""

import contextlib
import socket
from collections.abc import Iterator

from ortoo.common.grpc.server import listen_error
from ortoo.snode.settings import SnodeSettings
from ortoo.snode.workers.worker import Worker


@contextlib.contextmanager
def reserve_ports(settings: SnodeSettings) -> Iterator[list[tuple[Worker, socket.socket]]]:
    """Keep the ports of all workers open: shared ports, one port for each worker, and one for the parent's queries.

    Errors: Conflict if a port is taken.
    """
    inner = settings.tls_cluster_listen_address
    host, _, first = (inner or f"{settings.listen_address.rpartition(':')[0]}:{settings.worker_port}").rpartition(":")
    own = [f"{host}:{int(first) and int(first) + number}" for number in range(settings.workers)]
    with contextlib.ExitStack() as stack:

        def keep(address: str, setting: str) -> str:
            if not address:
                return ""
            holder = stack.enter_context(_reserve_port(address, setting))
            return f"{address.rpartition(':')[0]}:{holder.getsockname()[1]}"

        listen = keep(settings.listen_address, "listen_address")
        tls_listen = keep(settings.tls_listen_address, "tls_listen_address")
        own = [keep(address, "tls_cluster_listen_address" if inner else "worker_port") for address in own]
        # After the others, or one might get a port of theirs. Only this machine can reach them.
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in own]
        yield [
            (Worker(number, listen, tls_listen, address, listener.fileno()), listener)
            for number, (address, listener) in enumerate(zip(own, listeners, strict=True), 1)
        ]


def _reserve_port(address: str, setting: str) -> socket.socket:
    """A socket that holds the port and never listens. While it is open, only binds that share the port succeed."""
    host, _, port = address.rpartition(":")
    try:
        family, kind, _, _, at = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as alone:
            # A second snode fails here, because the port is not shared yet. Closing connections of a former one do not
            # count.
            alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            alone.bind(at)
            alone.listen()
            alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            holder = socket.socket(family, kind)
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            holder.bind(alone.getsockname())
            # From now on the address is in use for others, even while no process listens.
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
            return holder
    except OSError as error:
        raise listen_error(address, setting) from error
