"""Decisions of a network: delays, refusals and silence, the same in every run. Its faults are in test_breaks.py."""

import asyncio
import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest

from ortoo.testing.memory_grpc import MemoryTransport, Node, Packet
from tests.unit.testing.memory_grpc.world import (
    HANDLERS,
    ToldNetwork,
    channel_of,
    code_of,
    conversation,
    echoed,
    in_node,
    run,
    served,
)

IMPATIENT = (
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
)


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
    """An attempt fails after its timeout; attempts repeat with back-off. Waiting calls are served when one works."""

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
    """From 50 ms, by 1.6 each time, up to the maximum of the options. A success resets it."""

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
    """Forty conversations over ten channels through delays, breaks and a stop, with the times of arrival."""
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
