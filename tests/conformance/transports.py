"""The two transports of the cases: real sockets, whose connections go through a relay, and memory."""

import asyncio
import contextlib
import socket
import struct
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from ortoo.common.grpc.h2.server import H2Server
from ortoo.common.grpc.transport import H2Transport, SocketTransport, Transport
from ortoo.common.process.background import Background
from ortoo.testing.memory_grpc import InstantNetwork, MemoryConnection, MemoryTransport, Node
from tests.conformance.wire import Methods, conversing

Options = Sequence[tuple[str, int]]


class SocketWire:
    """grpc.aio on real sockets of this machine."""

    name = "sockets"

    def __init__(self, background: Background) -> None:
        self.transport: Transport = SocketTransport()
        self._background = background
        self._silent: list[socket.socket] = []
        self._relays: list[Relay] = []
        self._doomed: list[_DoomedProcess] = []

    def server(
        self, interceptors: Sequence[grpc.aio.ServerInterceptor], options: Options, calls_max: int | None
    ) -> grpc.aio.Server:
        return grpc.aio.server(
            interceptors=list(interceptors), options=list(options), maximum_concurrent_rpcs=calls_max
        )

    def channel(
        self, address: str, options: Options = (), interceptors: Sequence[grpc.aio.ClientInterceptor] = ()
    ) -> Any:
        alone = ("grpc.use_local_subchannel_pool", 1)
        return grpc.aio.insecure_channel(address, [*options, alone], interceptors=list(interceptors))

    async def way_to(self, address: str) -> "Relay":
        relay = Relay(address, self._background)
        await relay.open()
        self._relays.append(relay)
        return relay

    def silent_address(self) -> str:
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        self._silent.append(listener)
        return f"127.0.0.1:{listener.getsockname()[1]}"

    async def doomed(self) -> "_DoomedProcess":
        server = await _DoomedProcess.started()
        self._doomed.append(server)
        return server

    async def close(self) -> None:
        for server in self._doomed:
            await server.close()
        for listener in self._silent:
            listener.close()
        for relay in self._relays:
            await relay.close()


class H2Wire(SocketWire):
    """A server of the transport h2, called by grpc.aio."""

    name = "h2"

    def __init__(self, background: Background) -> None:
        super().__init__(background)
        self.transport = H2Transport()

    def server(
        self, interceptors: Sequence[grpc.aio.ServerInterceptor], options: Options, calls_max: int | None
    ) -> grpc.aio.Server:
        return H2Server(interceptors, options)


class Relay:
    """A TCP relay that can reset its connections."""

    def __init__(self, target: str, background: Background) -> None:
        self.address = ""
        self._target = target
        self._background = background
        self._server: asyncio.Server
        self._writers: list[asyncio.StreamWriter] = []

    async def open(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def reset(self) -> None:
        """Send RST in both directions."""
        writers, self._writers = self._writers, []
        for writer in writers:
            if writer.is_closing():
                continue
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def close(self) -> None:
        """End everything."""
        self.reset()
        self._server.close()
        await self._server.wait_closed()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self._target.rpartition(":")
        there, onward = await asyncio.open_connection(host, int(port))
        self._writers += writer, onward
        self._background.spawn("up", _pump(reader, onward))
        self._background.spawn("down", _pump(there, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


async def one_answer(requests: Any, context: Any) -> AsyncIterator[bytes]:
    """The handler of servers that are killed later."""
    yield b"first"
    await asyncio.get_running_loop().create_future()


async def serve_one_answer(server: grpc.aio.Server) -> int:
    """Start such a server and return its port."""
    server.add_generic_rpc_handlers((Methods({"Stream": conversing(one_answer)}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return port


DOOMED = """
import asyncio, grpc
from tests.conformance.transports import serve_one_answer

async def main():
    server = grpc.aio.server()
    print(await serve_one_answer(server), flush=True)
    await server.wait_for_termination()

asyncio.run(main())
"""


class _DoomedProcess:
    def __init__(self, process: asyncio.subprocess.Process, address: str) -> None:
        self.address = address
        self._process = process

    @classmethod
    async def started(cls) -> "_DoomedProcess":
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", DOOMED, cwd=Path(__file__).parents[2], stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        return cls(process, f"127.0.0.1:{int(await process.stdout.readline())}")

    def kill(self) -> None:
        self._process.kill()

    async def close(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


class _DoomedNode:
    def __init__(self, node: Node, address: str) -> None:
        self.address = address
        self._node = node

    def kill(self) -> None:
        self._node.kill()


class MemoryWire:
    """The transport in memory."""

    name = "memory"

    def __init__(self) -> None:
        self._network = _Breakable()
        self._memory = MemoryTransport(self._network)
        self.transport: Transport = self._memory

    def server(
        self, interceptors: Sequence[grpc.aio.ServerInterceptor], options: Options, calls_max: int | None
    ) -> grpc.aio.Server:
        return self._memory.server(interceptors, options, calls_max)

    def channel(
        self, address: str, options: Options = (), interceptors: Sequence[grpc.aio.ClientInterceptor] = ()
    ) -> Any:
        return self._memory.channel(address, options, interceptors)

    async def way_to(self, address: str) -> "_MemoryWay":
        return _MemoryWay(address, self._network)

    def silent_address(self) -> str:
        return _Breakable.SILENT

    async def doomed(self) -> _DoomedNode:
        node = Node("doomed")

        async def start() -> int:
            return await serve_one_answer(self._memory.server())

        port = await asyncio.get_running_loop().create_task(start(), context=node.context.copy())
        return _DoomedNode(node, f"127.0.0.1:{port}")

    async def close(self) -> None:
        pass


class _Breakable(InstantNetwork):
    SILENT = "10.0.0.1:80"

    def __init__(self) -> None:
        self.connections: list[MemoryConnection] = []

    def connecting(self, source: Node | None, address: str, target: Node | None) -> float | None:
        return None if address == self.SILENT else 0.0

    def connected(self, connection: MemoryConnection) -> None:
        self.connections.append(connection)


@dataclass(frozen=True, slots=True)
class _MemoryWay:
    address: str
    network: _Breakable

    def reset(self) -> None:
        connections, self.network.connections[:] = tuple(self.network.connections), []
        for connection in connections:
            connection.reset()
