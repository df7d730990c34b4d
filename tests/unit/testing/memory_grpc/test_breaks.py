"""Breaks of conversations in memory: partitions, keepalive, resets in the middle of a message, slow readers."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from ortoo.testing.memory_grpc import MemoryTransport, Packet
from tests.unit.testing.memory_grpc.world import (
    HANDLERS,
    KEEPALIVE,
    ToldNetwork,
    code_of,
    conversation,
    echoed,
    in_node,
    run,
    served,
)


def test_a_partition_in_one_direction() -> None:
    """Requests arrive and are served, answers wait; when it heals, they come, in order, and nothing was lost."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        network = ToldNetwork()
        transport = MemoryTransport(network)
        async with served(transport, None, HANDLERS) as address:
            call = conversation(transport.channel(address))
            await call.write(b"1")
            assert await call.read() == b"1"
            [connection] = network.connections
            connection.hold(to_server=False)
            for message in (b"2", b"3"):
                await call.write(message)
            reading = in_node(None, call.read())
            done, _ = await asyncio.wait({reading}, timeout=1_000)
            assert not done
            assert [line for line in network.trace if "up" in line and "b'3'" in line]
            connection.release(to_server=False)
            assert await reading == b"2"
            assert await call.read() == b"3"
            assert loop.time() > 1_000

    run(main())


def test_a_server_keeps_the_deadline_by_itself() -> None:
    """A handler is cancelled when its caller's deadline has passed, although nothing arrives from the caller."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        network = ToldNetwork()
        transport = MemoryTransport(network)
        ended: asyncio.Future[float] = loop.create_future()

        async def waits(requests: Any, context: Any) -> AsyncIterator[bytes]:
            yield b"first"
            try:
                await loop.create_future()
            finally:
                ended.set_result(loop.time())

        async with served(transport, None, {"All": grpc.stream_stream_rpc_method_handler(waits)}) as address:
            begun_s = loop.time()
            call = conversation(transport.channel(address), timeout=5)
            assert await call.read() == b"first"
            network.connections[0].hold(to_server=True)
            assert round(await ended - begun_s) == 5
            assert await code_of(call) == "DEADLINE_EXCEEDED"

    run(main())


def test_keepalive_ends_a_partition_for_both_ends() -> None:
    """Each end gives up on its own, because pings or their answers are held. The next call reconnects."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        network = ToldNetwork()
        transport = MemoryTransport(network)
        ended: list[float] = []

        async def waits(requests: Any, context: Any) -> AsyncIterator[bytes]:
            yield b"first"
            try:
                await loop.create_future()
            finally:
                ended.append(loop.time())

        handlers = HANDLERS | {"All": grpc.stream_stream_rpc_method_handler(waits)}
        async with served(transport, None, handlers, options=KEEPALIVE) as address:
            channel = transport.channel(address, KEEPALIVE)
            call = conversation(channel)
            assert await call.read() == b"first"
            begun_s = loop.time()
            network.connections[0].hold(to_server=True)
            assert await code_of(call) == "UNAVAILABLE"
            assert await echoed(channel, b"again") == b"again"
            assert [round(at_s - begun_s) for at_s in ended] == [40]

    run(main())


def test_a_short_partition_is_borne() -> None:
    """A partition that heals before keepalive gives up breaks nothing, also when another one follows soon."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        network = ToldNetwork()
        transport = MemoryTransport(network)
        async with served(transport, None, HANDLERS, options=KEEPALIVE) as address:
            call = conversation(transport.channel(address, KEEPALIVE))
            await call.write(b"0")
            assert await call.read() == b"0"
            [connection] = network.connections
            for number in range(5):
                connection.hold(to_server=True)
                await call.write(b"%d" % number)
                await asyncio.wait({loop.create_future()}, timeout=30)
                connection.hold(to_server=False)
                connection.release(to_server=True)
                await asyncio.wait({loop.create_future()}, timeout=30)
                connection.release(to_server=False)
                assert await call.read() == b"%d" % number

    run(main())


def test_a_break_in_the_middle_of_a_message() -> None:
    """The message that the connection breaks over never arrives, those before it do, and both ends are notified."""

    async def main() -> None:
        network = ToldNetwork()
        transport = MemoryTransport(network)

        def delay(packet: Packet, to_server: bool) -> float:
            if packet.message == b"torn":
                network.connections[0].reset()
            return 0.0

        network.delay = delay
        async with served(transport, None, HANDLERS) as address:
            channel = transport.channel(address)
            call = conversation(channel)
            await call.write(b"whole")
            assert await call.read() == b"whole"
            await call.write(b"torn")
            assert await code_of(call) == "UNAVAILABLE"
            assert "reset" in await call.details()
            assert not [line for line in network.trace if "torn" in line]
            assert await echoed(channel, b"again") == b"again"

    run(main())


def test_a_reset_loses_what_is_under_way() -> None:
    """A request that travels when the connection breaks is not served."""

    async def main() -> None:
        network = ToldNetwork(lambda packet, to_server: 1.0)
        transport = MemoryTransport(network)
        called: list[bytes] = []

        async def note(request: bytes, context: Any) -> bytes:
            called.append(request)
            return b""

        async with served(transport, None, {"Echo": grpc.unary_unary_rpc_method_handler(note)}) as address:
            channel = transport.channel(address)
            await echoed(channel, b"before")
            call = echoed(channel, b"lost")
            await asyncio.wait({asyncio.get_running_loop().create_future()}, timeout=0.5)
            network.connections[0].reset()
            assert await code_of(call) == "UNAVAILABLE"
            await asyncio.wait({asyncio.get_running_loop().create_future()}, timeout=5)
            assert called == [b"before"]

    run(main())


def test_a_slow_reader() -> None:
    """When it takes long until the writer hears that something was read, it writes a window at a time."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        network = ToldNetwork(lambda packet, to_server: 1.0 if packet.read_bytes else 0.0)
        transport = MemoryTransport(network, window_bytes=1_000)
        async with served(transport, None, HANDLERS) as address:
            call = conversation(transport.channel(address))
            begun_s = loop.time()

            async def write() -> None:
                for _ in range(10):
                    await call.write(b"x" * 1_000)
                await call.done_writing()

            writing = in_node(None, write())
            assert len([answer async for answer in call]) == 10
            await writing
            assert 8 <= loop.time() - begun_s <= 11

    run(main())


def test_a_window_belongs_to_one_direction_of_one_call() -> None:
    """A writer stands still when a window of what it wrote is unread, to the byte."""

    async def main() -> None:
        transport = MemoryTransport(window_bytes=1_000)

        async def deaf(requests: Any, context: Any) -> None:
            await asyncio.get_running_loop().create_future()

        async with served(transport, None, {"All": grpc.stream_stream_rpc_method_handler(deaf)}) as address:
            call = conversation(transport.channel(address))
            for _ in range(10):
                await call.write(b"x" * 100)
            writing = in_node(None, call.write(b"y"))
            done, _ = await asyncio.wait({writing}, timeout=60)
            assert not done
            call.cancel()
            await asyncio.wait({writing})
            assert writing.cancelled()

    run(main())
