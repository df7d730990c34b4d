"""What a network may do to conversations: delays, refusals, silence, partitions and breaks, the same in every run."""

import asyncio
import itertools
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from ortoo.testing.memory_grpc import MemoryTransport, Node, Packet
from tests.unit.testing.memory_grpc.world import ToldNetwork, channel_of, code_of, in_node, run, served

IMPATIENT = (
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
)
KEEPALIVE = (("grpc.keepalive_time_ms", 30_000), ("grpc.keepalive_timeout_ms", 10_000))


async def echo(request: bytes, context: Any) -> bytes:
    return request


async def echo_all(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request


HANDLERS: dict[str, Any] = {
    "Echo": grpc.unary_unary_rpc_method_handler(echo),
    "All": grpc.stream_stream_rpc_method_handler(echo_all),
}


def echoed(channel: Any, request: bytes = b"", **options: Any) -> Any:
    """A unary call."""
    return channel.unary_unary("/world.S/Echo")(request, **options)


def conversation(channel: Any, **options: Any) -> Any:
    """A stream."""
    return channel.stream_stream("/world.S/All")(**options)


def test_a_call_takes_as_long_as_its_packets() -> None:
    """A request of 1 s and an answer of 2 s make 3 s; the deadline is on the same clock."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        transport = MemoryTransport(ToldNetwork(lambda packet, to_server: 1.0 if to_server else 2.0))
        async with served(transport, None, HANDLERS) as address:
            channel = transport.channel(address)
            begun_s = loop.time()
            assert await echoed(channel, b"x", timeout=3.5) == b"x"
            assert loop.time() - begun_s == pytest.approx(3)
            assert await code_of(echoed(channel, b"x", timeout=2.5)) == "DEADLINE_EXCEEDED"
            assert loop.time() - begun_s == pytest.approx(5.5)

    run(main())


def test_packets_of_one_call_stay_in_order_and_calls_overtake() -> None:
    """A message that the network takes longer for holds up those after it in its call, and no other call."""

    def delay(packet: Packet, to_server: bool) -> float:
        return 5.0 if packet.message == b"slow" else 0.0

    async def main() -> None:
        loop = asyncio.get_running_loop()
        transport = MemoryTransport(ToldNetwork(delay))
        async with served(transport, None, HANDLERS) as address:
            channel = transport.channel(address)
            begun_s = loop.time()
            call = conversation(channel)
            for message in (b"slow", b"quick"):
                await call.write(message)
            await call.done_writing()
            assert await echoed(channel, b"other") == b"other"
            assert loop.time() == begun_s
            assert [answer async for answer in call] == [b"slow", b"quick"]
            assert loop.time() - begun_s == pytest.approx(10)

    run(main())


def test_a_network_that_refuses() -> None:
    """A server that is there and out of reach is like none, until it is in reach again."""

    async def main() -> None:
        network = ToldNetwork()
        transport = MemoryTransport(network)
        async with served(transport, None, HANDLERS) as address:
            channel = transport.channel(address, IMPATIENT)
            network.refuses = True
            assert "refused" in await echoed(channel).details()
            network.refuses = False
            assert await echoed(channel, b"x", wait_for_ready=True) == b"x"

    run(main())


def test_a_network_that_swallows_connections() -> None:
    """An attempt fails after its timeout; attempts go on with back-off, and waiting calls are served when one works."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        network = ToldNetwork()
        transport = MemoryTransport(network)
        async with served(transport, None, HANDLERS) as address:
            channel = transport.channel(address, IMPATIENT)
            network.is_silent = True
            begun_s = loop.time()
            assert "timed out" in await echoed(channel).details()
            assert loop.time() - begun_s == pytest.approx(2)
            waiting = in_node(None, _awaited(echoed(channel, b"x", wait_for_ready=True)))
            done, _ = await asyncio.wait({waiting}, timeout=60)
            assert not done
            network.is_silent = False
            assert await waiting == b"x"
            assert loop.time() - begun_s < 65

    run(main())


async def _awaited(call: Any) -> Any:
    return await call


def test_attempts_back_off() -> None:
    """From 50 ms, by 1.6 each time, up to the most that the options allow; a success begins anew."""

    async def main() -> None:
        network = ToldNetwork()
        network.refuses = True
        transport = MemoryTransport(network)
        attempts: list[float] = []
        loop = asyncio.get_running_loop()

        class Noting(ToldNetwork):
            def connecting(self, source: Node | None, address: str, target: Node | None) -> float | None:
                attempts.append(loop.time())
                raise ConnectionRefusedError

        transport.network = Noting()
        channel = transport.channel("127.0.0.1:9", IMPATIENT)
        channel.get_state(try_to_connect=True)
        await asyncio.wait({loop.create_future()}, timeout=1)
        gaps = [round(after - before, 3) for before, after in itertools.pairwise(attempts)]
        assert gaps[:5] == [0.05, 0.08, 0.128, 0.2, 0.2]
        await channel.close()

    run(main())


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


def test_keepalive_ends_a_partition_for_both_ends() -> None:
    """Each end gives up by itself, as a held direction takes pings or their answers; the next call connects anew."""

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
            assert await echoed(channel, b"anew") == b"anew"
            assert [round(at_s - begun_s) for at_s in ended] == [40]

    run(main())


def test_a_short_partition_is_borne() -> None:
    """What heals before keepalive gives up breaks nothing, also when there is another one soon after it."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        network = ToldNetwork()
        transport = MemoryTransport(network)
        async with served(transport, None, HANDLERS, options=KEEPALIVE) as address:
            call = conversation(transport.channel(address, KEEPALIVE))
            await call.write(b"0")
            assert await call.read() == b"0"
            for number in range(5):
                network.connections[0].hold(to_server=True)
                await call.write(b"%d" % number)
                await asyncio.wait({loop.create_future()}, timeout=30)
                network.connections[0].release(to_server=True)
                assert await call.read() == b"%d" % number

    run(main())


def test_a_break_in_the_middle_of_a_message() -> None:
    """The message that the connection breaks over never arrives, those before it do, and both ends hear of it."""

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
            assert await echoed(channel, b"anew") == b"anew"

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


def test_calls_that_are_over_leave_nothing() -> None:
    """However they end: answered, refused, cancelled before the server knew of them, or at a deadline."""

    async def main() -> None:
        network = ToldNetwork(lambda packet, to_server: 0.01)
        transport = MemoryTransport(network)
        async with served(transport, None, HANDLERS) as address:
            channel: Any = transport.channel(address)
            for number in range(20):
                assert await echoed(channel, b"x") == b"x"
                assert await code_of(channel.unary_unary("/world.S/Nothing")(b"")) == "UNIMPLEMENTED"
                call = conversation(channel)
                await call.wait_for_connection()
                if number % 2:
                    await call.write(b"x")
                call.cancel()
                assert await code_of(conversation(channel, timeout=0.1)) == "DEADLINE_EXCEEDED"
            await asyncio.wait({asyncio.get_running_loop().create_future()}, timeout=1)
            assert [connection.open_calls for connection in network.connections] == [0]

    run(main())


def test_one_network_sees_both_nodes() -> None:
    """It is asked with the nodes of both ends, so that it can hold them apart."""

    async def main() -> None:
        asked: list[tuple[str, str]] = []

        class Asked(ToldNetwork):
            def connecting(self, source: Node | None, address: str, target: Node | None) -> float | None:
                asked.append((source.name if source else "", target.name if target else ""))
                return 0.0

            def connected(self, connection: Any) -> None:
                assert connection.client.endpoint.node.name == "snode-0"
                assert connection.server.endpoint.node.name == "enode-0"

        transport = MemoryTransport(Asked())
        async with served(transport, Node("enode-0"), HANDLERS) as address:
            await echoed(await channel_of(transport, Node("snode-0"), address))
        assert asked == [("snode-0", "enode-0")]

    run(main())


SCENARIO = """
import asyncio, gc, random, sys, threading, zlib
gc.set_threshold(int(sys.argv[1]))
from tests.unit.testing.memory_grpc.test_network import scenario
from tests.unit.testing.memory_grpc.world import run
trace = run(scenario(random.Random(7)))
assert [thread.name for thread in threading.enumerate()] == ["MainThread"]
print(len(trace), zlib.crc32("\\n".join(trace).encode()))
"""


async def scenario(chance: Any) -> list[str]:
    """Forty conversations over ten channels through delays, breaks and a stop; what arrived when."""
    network = ToldNetwork(lambda packet, to_server: chance.uniform(0.001, 0.1))
    transport = MemoryTransport(network)
    loop = asyncio.get_running_loop()

    async def converse(channel: Any) -> None:
        call = conversation(channel, timeout=chance.uniform(0.1, 3))
        try:
            for number in range(20):
                await call.write(b"%d" % number)
                if chance.random() < 0.5:
                    await call.read()
            await call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            call.cancel()

    async with served(transport, Node("enode-0"), HANDLERS) as address:
        channels = [transport.channel(address, IMPATIENT) for _ in range(10)]
        tasks = [loop.create_task(converse(channel)) for channel in channels * 4]
        for _ in range(5):
            await asyncio.wait({loop.create_future()}, timeout=0.3)
            chance.choice(network.connections).reset()
        for task in tasks:
            await task
        for channel in channels:
            await channel.close()
    return network.trace


def test_the_same_run_twice() -> None:
    """Neither the seed of hashes nor garbage collections nor the process make a difference, and there is no thread."""
    root = Path(__file__).parents[4]
    found = set()
    for hash_seed, gc_threshold in (("1", "700"), ("2", "10"), ("3", "100000")):
        ran = subprocess.run(
            [sys.executable, "-c", SCENARIO, gc_threshold],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(ran.stdout)
    [trace] = found
    assert int(trace.split()[0]) > 500
