"""Ports for what listens in tests: nobody on this machine is given one of them by chance, now or later.

A server that is gone is called for a while by those who knew it. On a port of the range from which the system hands out
ports, they reach a stranger: the process of another test, or the socket on which a JVM waits for its worker.
"""

import fcntl
import itertools
import os
import socket
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ortoo.common.process.randomness import Randomness

FIRST_PORT, FIRST_EPHEMERAL_PORT = 10_000, 32_768
"""From where on ports are taken; where the system's own range begins, unless it says so itself."""
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """A port of 127.0.0.1 that is this process's alone until it ends."""
    return next(_ports())


def free_ports(count: int) -> list[int]:
    """So many of them."""
    return [free_port() for _ in range(count)]


def free_address() -> str:
    """One of them, as host:port."""
    return f"127.0.0.1:{free_port()}"


def free_address_of_two() -> str:
    """One of them, as host:port, of which the next port is this process's too: `ortoo dev` speaks TLS there."""
    port = free_port()
    while (following := free_port()) != port + 1:
        port = following
    return f"127.0.0.1:{port}"


@cache
def _ports() -> Iterator[int]:
    """All that are left, each once. Whoever has one holds a byte of a file locked, as long as its process lives."""
    first_ephemeral = int(_EPHEMERAL.read_text().split()[0]) if _EPHEMERAL.exists() else 0
    end = first_ephemeral if first_ephemeral > 2 * FIRST_PORT else FIRST_EPHEMERAL_PORT
    begin = FIRST_PORT + Randomness().below(end - FIRST_PORT)
    locks = os.open(Path(tempfile.gettempdir()) / f"ortoo-ports-{os.getuid()}", os.O_RDWR | os.O_CREAT, 0o600)
    for port in itertools.chain(range(begin, end), range(FIRST_PORT, begin)):
        try:
            fcntl.lockf(locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue  # somebody has it
        yield port
    raise AssertionError(f"no port from {FIRST_PORT} to {end} is free")
