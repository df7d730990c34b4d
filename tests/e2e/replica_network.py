"""The connections between the replicas of one enode; a test can cut each direction of them, and restore it.

Replicas listen on private addresses, and a relay in front of each forwards the bytes of the others. The relay finds the
sender by the socket of the caller's process, so this runs on Linux only, and needs no privileges. While a direction is
cut its bytes wait, as with lost packets: TCP resends them, so they arrive after the cut ends, however late.
"""

import asyncio
import contextlib
import os
import socket
import struct
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from ortoo.common.process.background import Background
from ortoo.verification.servers.ports import free_ports
from ortoo.verification.servers.processes import RoleProcess

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="lines of replicas are cut on Linux; run it there")
READ_BYTES = 1 << 16
STRANGER = 0


class ReplicaNetwork:
    """The connections between all replicas. At first none is cut."""

    def __init__(self, members: int) -> None:
        """Connections of replicas with the numbers from 1 on; `replica_network` serves them. With 0 there are none."""
        self.processes: list[RoleProcess] = []
        """The replicas by number, once they exist."""
        self._ports = list(zip(free_ports(members), free_ports(members), strict=True))
        self._cut: set[tuple[int, int]] = set()
        self._healed = asyncio.Event()

    def addresses(self) -> list[str]:
        """The addresses for replication, by number."""
        return [f"127.0.2.{number}:{port}" for number, (port, _) in enumerate(self._ports, 1)]

    def settings(self, number: int) -> dict[str, object]:
        """Settings of a replica: clients reach it directly, on the advertised host."""
        if not self._ports:
            return {}
        port, client_port = self._ports[number - 1]
        return {
            "LISTEN_ADDRESS": f"127.0.2.{number}:{client_port}",
            "ADVERTISED_ADDRESS": f"127.0.2.{number}:{client_port}",
            "REPLICA_LISTEN_ADDRESS": f"127.0.1.{number}:{port}",
            "REPLICA_ADDRESSES": ";".join(self.addresses()),
        }

    def cut_off(self, number: int) -> None:
        """Cut both directions between a replica and the others."""
        self.deafen(number)
        self._cut |= {(number, other) for other in self._others(number)}

    def deafen(self, number: int) -> None:
        """Cut the direction from the others to a replica; they still receive its bytes."""
        self._cut |= {(other, number) for other in self._others(number)}

    def heal(self) -> None:
        """Restore all directions; bytes sent meanwhile are delivered."""
        self._cut.clear()
        healed, self._healed = self._healed, asyncio.Event()
        healed.set()

    def _others(self, number: int) -> Iterable[int]:
        return (other for other in range(1, len(self._ports) + 1) if other != number)

    async def serve(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to a replica, until either side has closed it and the other side may learn of that."""
        caller = self._caller(writer)
        try:
            far_reader, far_writer = await asyncio.open_connection(f"127.0.1.{number}", self._ports[number - 1][0])
        except OSError:
            writer.close()
            return
        try:
            async with Background("line") as background:
                there = background.spawn("there", self._pass_on(reader, far_writer, (caller, number)))
                back = background.spawn("back", self._pass_on(far_reader, writer, (number, caller)))
                await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            far_writer.close()
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: tuple[int, int]) -> None:
        with contextlib.suppress(ConnectionError):
            data = b"begun"
            while data:
                data = await reader.read(READ_BYTES)
                while way in self._cut:
                    await self._healed.wait()
                writer.write(data)
                await writer.drain()

    def _caller(self, writer: asyncio.StreamWriter) -> int:
        """The number of the replica whose process has the other end of a connection."""
        host, port = writer.get_extra_info("peername")
        address = f"{struct.unpack('=I', socket.inet_aton(host))[0]:08X}:{port:04X}"
        text = "".join(Path(f"/proc/net/{kind}").read_text() for kind in ("tcp", "tcp6"))  # a socket, IPv4 or IPv6
        lines = [line.split() for line in text.splitlines()]
        names = {f"socket:[{line[9]}]" for line in lines if line[1].endswith(address)}
        for number, process in enumerate(self.processes, 1):
            if process.alive and names & set(_files(process.pid)):
                return number
        return STRANGER


def _files(process_id: int) -> Iterable[str]:
    folder = f"/proc/{process_id}/fd"
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):
                yield os.readlink(f"{folder}/{name}")


@contextlib.asynccontextmanager
async def replica_network(members: int) -> AsyncIterator[ReplicaNetwork]:
    """Relays for `count` replicas while the block runs."""
    lines = ReplicaNetwork(members)

    async def served(number: int) -> asyncio.Server:
        host, _, port = lines.addresses()[number - 1].rpartition(":")
        return await asyncio.start_server(lambda reader, writer: lines.serve(number, reader, writer), host, int(port))

    async with contextlib.AsyncExitStack() as servers:
        for number in range(1, members + 1):
            servers.callback((await served(number)).close)
        yield lines
        lines.heal()
