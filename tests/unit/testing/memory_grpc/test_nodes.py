"""Nodes: the owners of channels and servers, and the state of their conversations after a kill."""

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import grpc

from ortoo.testing.memory_grpc import NODE, MemoryTransport, Node
from tests.unit.testing.memory_grpc.world import KEEPALIVE, channel_of, code_of, in_node, run, served

FAILED = ("UNAVAILABLE", "Socket closed")


class Handlers:
    """One that answers with its node, one that streams until it is ended."""

    def __init__(self) -> None:
        self.called = asyncio.Event()
        self.ended: list[str] = []

    async def where(self, request: bytes, context: Any) -> bytes:
        node = NODE.get()
        return node.name.encode() if node else b"nowhere"

    async def stream(self, requests: Any, context: Any) -> AsyncIterator[bytes]:
        try:
            await context.send_initial_metadata(())
            yield b"first"
            self.called.set()
            await asyncio.get_running_loop().create_future()
        finally:
            self.ended.append("ended")

    def by_name(self) -> dict[str, Any]:
        """For a server."""
        return {
            "Where": grpc.unary_unary_rpc_method_handler(self.where),
            "Stream": grpc.stream_stream_rpc_method_handler(self.stream),
        }


async def where(channel: Any, **options: Any) -> str:
    """The node that answers."""
    answer: bytes = await channel.unary_unary("/world.S/Where")(b"", **options)
    return answer.decode()


def streaming(channel: Any, **options: Any) -> Any:
    """An open stream."""
    return channel.stream_stream("/world.S/Stream")(**options)


def test_handlers_run_in_the_node_of_their_server() -> None:
    """The handler's context is that of the server's node, for callers from all nodes."""

    async def main() -> None:
        transport = MemoryTransport()
        enode, snode = Node("enode-0"), Node("snode-0")
        async with served(transport, enode, Handlers().by_name()) as address:
            for caller in (None, snode, enode):
                channel = await channel_of(transport, caller, address)
                assert await where(channel) == "enode-0"
        async with served(transport, None, Handlers().by_name()) as address:
            assert await where(await channel_of(transport, snode, address)) == "nowhere"

    run(main())


def test_a_killed_server_is_heard_of() -> None:
    """Calls to it are UNAVAILABLE, new ones are refused, and none of its handlers runs again, not even `finally`."""

    async def main() -> None:
        transport, handlers = MemoryTransport(), Handlers()
        enode = Node("enode-0")
        async with served(transport, enode, handlers.by_name()) as address:
            channel = await channel_of(transport, Node("snode-0"), address)
            call = streaming(channel)
            assert await call.read() == b"first"
            await handlers.called.wait()
            enode.kill()
            enode.kill()
            assert (await code_of(call), await call.details()) == FAILED
            assert await code_of(channel.unary_unary("/world.S/Where")(b"")) == "UNAVAILABLE"
            gc.collect()
            assert handlers.ended == []

    run(main())


def test_what_a_server_said_before_its_kill_arrives() -> None:
    """Its kernel has it already: the answer is read first, then the end of the connection is heard."""

    async def main() -> None:
        transport, handlers = MemoryTransport(), Handlers()
        enode = Node("enode-0")
        async with served(transport, enode, handlers.by_name()) as address:
            call = streaming(await channel_of(transport, None, address))
            await call.initial_metadata()
            reading = in_node(None, call.read())
            await handlers.called.wait()
            enode.kill()
            assert await reading == b"first"
            assert (await code_of(call), await call.details()) == FAILED

    run(main())


def test_a_silent_kill_is_not_heard_of() -> None:
    """Without keepalive only a deadline ends a call to a node without power, and a new connection has no answer."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        transport, handlers = MemoryTransport(), Handlers()
        enode = Node("enode-0")
        async with served(transport, enode, handlers.by_name()) as address:
            channel = await channel_of(transport, None, address)
            call = streaming(channel, timeout=3_600)
            assert await call.read() == b"first"
            begun_s = loop.time()
            enode.kill(silently=True)
            assert await code_of(call) == "DEADLINE_EXCEEDED"
            assert 3_599 < loop.time() - begun_s <= 3_600

    run(main())


def test_keepalive_finds_a_silent_kill() -> None:
    """After its interval and timeout the other end gives the connection up."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        transport, handlers = MemoryTransport(), Handlers()
        enode, snode = Node("enode-0"), Node("snode-0")
        async with served(transport, enode, handlers.by_name(), options=KEEPALIVE) as address:
            call = streaming(await channel_of(transport, snode, address, options=KEEPALIVE))
            assert await call.read() == b"first"
            begun_s = loop.time()
            enode.kill(silently=True)
            assert await code_of(call) == "UNAVAILABLE"
            assert "keepalive" in await call.details()
            assert round(loop.time() - begun_s) == 40

    run(main())


def test_a_killed_client_is_heard_of() -> None:
    """The handlers of its calls are cancelled; of a silent kill they hear when keepalive gives up."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for silently, wait_s in ((False, 0), (True, 40)):
            transport, handlers = MemoryTransport(), Handlers()
            snode = Node("snode-0")
            async with served(transport, Node("enode-0"), handlers.by_name(), options=KEEPALIVE) as address:
                call = streaming(await channel_of(transport, snode, address))
                assert await call.read() == b"first"
                await handlers.called.wait()
                begun_s = loop.time()
                snode.kill(silently=silently)
                while not handlers.ended:
                    await asyncio.wait({loop.create_future()}, timeout=0.5)
                assert wait_s <= loop.time() - begun_s <= wait_s + 1
                assert not call.done(), "no task in the killed node receives anything"

    run(main())


def test_a_dead_node_can_say_nothing() -> None:
    """On an ordinary loop its tasks still run. Their messages and calls go nowhere."""

    async def main() -> None:
        transport, handlers = MemoryTransport(), Handlers()
        snode = Node("snode-0")
        async with served(transport, Node("enode-0"), handlers.by_name()) as address:
            channel = await channel_of(transport, snode, address)
            assert await where(channel) == "enode-0"
            snode.kill()
            late = in_node(snode, where(channel, timeout=60))
            done, _ = await asyncio.wait({late}, timeout=3_600)
            assert not done
            late.cancel()

    run(main())


def test_a_node_comes_back_at_its_address() -> None:
    """The address of a dead server is free at once, and a channel that lost it connects to the new one."""

    async def main() -> None:
        transport = MemoryTransport()
        first, second = Node("enode-0"), Node("enode-0 again")
        async with served(transport, first, Handlers().by_name()) as address:
            channel = await channel_of(transport, None, address)
            assert await where(channel) == "enode-0"
            first.kill()

            async def start() -> grpc.aio.Server:
                server = transport.server()
                server.add_registered_method_handlers("world.S", Handlers().by_name())
                assert f"127.0.0.1:{server.add_insecure_port(address)}" == address
                await server.start()
                return server

            server = await in_node(second, start())
            assert await where(channel, wait_for_ready=True) == "enode-0 again"
            await server.stop(None)

    run(main())


def test_addresses_are_found_by_any_name_of_the_host() -> None:
    """A server that listens everywhere is found under each host, one that listens here under localhost as well."""

    async def main() -> None:
        transport = MemoryTransport()
        for listens, found in (("0.0.0.0:7001", "enode-0:7001"), ("127.0.0.1:7002", "dns:///localhost:7002")):
            server = transport.server()
            server.add_registered_method_handlers("world.S", Handlers().by_name())
            assert server.add_insecure_port(listens) == int(listens[-4:])
            await server.start()
            assert await where(transport.channel(found)) == "nowhere"
            await server.stop(None)

    run(main())


def test_a_forgotten_call_stays_open() -> None:
    """No garbage collector cancels it, as grpc.aio lets it: when one comes is not the same in every run."""

    async def main() -> None:
        transport, handlers = MemoryTransport(), Handlers()
        async with served(transport, None, handlers.by_name()) as address:
            channel = transport.channel(address)
            assert await streaming(channel).read() == b"first"
            await handlers.called.wait()
            gc.collect()
            assert await where(channel) == "nowhere"
            assert handlers.ended == []
            await channel.close()

    run(main())
