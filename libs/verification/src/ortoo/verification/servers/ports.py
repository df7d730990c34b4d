"""Ports for servers in tests, which no other process on this machine gets by chance, now or later.

Clients keep calling a closed server for a while. On an ephemeral port, these calls would reach an unrelated socket:
another test's process, or the socket on which a JVM waits for its worker.
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
"""The first port to use, and the begin of the ephemeral range unless the system defines another one."""
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """A port of 127.0.0.1 that this process owns until it ends."""
    return next(_ports())


def free_ports(count: int) -> list[int]:
    """`count` such ports."""
    return [free_port() for _ in range(count)]


def free_address() -> str:
    """Such a port, as host:port."""
    return f"127.0.0.1:{free_port()}"


def free_address_of_two() -> str:
    """Such a port, as host:port, whose next port this process owns too: `ortoo dev` serves TLS there."""
    port = free_port()
    while (following := free_port()) != port + 1:
        port = following
    return f"127.0.0.1:{port}"


@cache
def _ports() -> Iterator[int]:
    """All remaining ports, each once. A port is owned through a lock on one byte of a file, until the process ends."""
    first_ephemeral = int(_EPHEMERAL.read_text().split()[0]) if _EPHEMERAL.exists() else 0
    end = first_ephemeral if first_ephemeral > 2 * FIRST_PORT else FIRST_EPHEMERAL_PORT
    begin = FIRST_PORT + Randomness().below(end - FIRST_PORT)
    locks = os.open(Path(tempfile.gettempdir()) / f"ortoo-ports-{os.getuid()}", os.O_RDWR | os.O_CREAT, 0o600)
    for port in itertools.chain(range(begin, end), range(FIRST_PORT, begin)):
        try:
            fcntl.lockf(locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue  # another process uses it
        yield port
    raise AssertionError(f"no port from {FIRST_PORT} to {end} is free")
