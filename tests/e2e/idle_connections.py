"""A process that opens idle connections to an address, and reports the number that the server keeps.

    python -m tests.e2e.idle_connections HOST:PORT COUNT

It prints `opened N`, answers each line of its standard input with `kept N`, and ends with its input. It sends no byte
on any connection.
"""

import asyncio
import contextlib
import socket
import sys
from collections.abc import AsyncIterator, Sequence

from ortoo.common.machine.descriptors import raise_limit

ADDRESSES = 100
"""The number of addresses that connections come from, so that no address runs out of ports."""
A_PROCESS = 9_000
"""The maximum number of connections of one process."""


def opened(address: str, count: int) -> Sequence[socket.socket]:
    """Connections to `address`, including those that the server closes at once."""
    host, _, port = address.rpartition(":")
    found = []
    for number in range(count):
        one = socket.socket()
        one.bind((f"127.0.0.{2 + number % ADDRESSES}", 0))
        one.settimeout(10)
        with contextlib.suppress(OSError):
            one.connect((host, int(port)))
        one.setblocking(False)
        found.append(one)
    return found


def kept(connections: Sequence[socket.socket]) -> int:
    """The number of connections that the server has not closed."""
    count = 0
    for one in connections:
        try:
            while data := one.recv(4096):
                assert data
        except BlockingIOError:
            count += 1
        except OSError:
            continue
    return count


def main(address: str, count: int) -> None:
    """Open the connections, and keep them until the input ends."""
    raise_limit()
    connections = opened(address, count)
    sys.stdout.write(f"opened {len(connections)}\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        sys.stdout.write(f"kept {kept(connections)}\n")
        sys.stdout.flush()


class Idle:
    """The running processes with idle connections."""

    def __init__(self, processes: Sequence[asyncio.subprocess.Process]) -> None:
        self._processes = processes

    async def kept(self) -> int:
        """The number of connections that the server keeps."""
        count = 0
        for one in self._processes:
            assert one.stdin is not None
            assert one.stdout is not None
            one.stdin.write(b"\n")
            count += int((await one.stdout.readline()).split()[1])
        return count


@contextlib.asynccontextmanager
async def idle_connections(address: str, count: int) -> AsyncIterator[Idle]:
    """Keep `count` idle connections to `address` open within the block."""
    counts = [min(A_PROCESS, count - begun) for begun in range(0, count, A_PROCESS)]
    processes: list[asyncio.subprocess.Process] = []
    try:
        for one in counts:
            words = (sys.executable, "-m", "tests.e2e.idle_connections", address, str(one))
            pipe = asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe)
            processes.append(process)
        for process in processes:
            assert process.stdout is not None
            assert (await process.stdout.readline()).startswith(b"opened ")
        yield Idle(processes)
    finally:
        for process in processes:
            process.kill()
            await process.wait()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
