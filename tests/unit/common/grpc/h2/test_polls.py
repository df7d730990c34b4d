"""Calls of an h2 server that wait without being made, and how each of them ends."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc
import pytest

from ortoo.common.errors import Overloaded
from ortoo.common.grpc.h2.polls import NO_HEADERS, H2Poll
from ortoo.common.grpc.h2.server import H2Server
from ortoo.common.grpc.h2.shared.lifetime import Lifetime, Step
from ortoo.common.grpc.layers.arrival import RepeatCaller
from ortoo.common.grpc.layers.coding import Decoding
from ortoo.common.grpc.layers.layer import Layer, Layers, Method, ServedCall
from ortoo.common.grpc.layers.repeats import ITEM_BYTES_MAX, Key
from tests.integration.deaf_client import deaf_client
from tests.unit.common.grpc.served import until

S = grpc.StatusCode
WINDOW_BYTES = 65_535


class Seen(Layer):
    """Counts calls that wait and calls that are made."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.is_full = False
        self.has_to_see_all = False

    def repeat_key(self, caller: RepeatCaller) -> bytes | None:
        return None if self.has_to_see_all else caller.headers.get("tenant", "").encode()

    def on_poll(self, method: Method) -> Callable[[str], None]:
        if self.is_full:
            raise Overloaded("enough")
        self.events.append("wait")
        return lambda status: self.events.append(f"end {status}".strip())

    def enter(self, call: ServedCall) -> None:
        self.events.append("enter")

    def leave(self, call: ServedCall) -> None:
        self.events.append("leave")


class Service:
    """Its one method lets calls wait until the test ends them."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen
        self.takes = True
        self.waiting: dict[bytes, Any] = {}
        self.over: list[str] = []
        self.keys: list[Key] = []
        self.metadata: tuple[tuple[str, str], ...] = ()

    async def Call(self, request: bytes, context: Any) -> AsyncIterator[bytes]:  # gRPC's name
        self.metadata = context.invocation_metadata()
        yield request
        remaining_s = context.time_remaining()
        yield b"made after %d" % round(context.waited_s)
        if remaining_s is not None:
            yield b"%d" % remaining_s

    def poll(self, request: bytes, key: Key, wait: Any) -> Callable[[], object] | None:
        self.keys.append(key)
        if not self.takes:
            return None
        self.waiting[request] = wait
        return lambda: self.over.append("stop")

    Call.poll = poll  # type: ignore[attr-defined]


class Served:
    """The service, its server, and calls to it."""

    def __init__(self, service: Service, server: H2Server, channel: grpc.aio.Channel, port: int) -> None:
        self.service, self.server, self.channel, self.seen = service, server, channel, service.seen
        self.address = f"127.0.0.1:{port}"
        self.call: Any = channel.unary_stream("/t.Service/Call")

    @property
    def open_calls(self) -> list[Any]:
        """The calls of all connections."""
        return [call for one in self.server.connections for call in one.calls.values()]

    async def waiting(self, request: bytes = b"x", **options: Any) -> tuple[Any, Any]:
        """A call that waits: at its caller, and at the server."""
        call = self.call(request, **options)
        await until(lambda: request in self.service.waiting)
        return call, self.service.waiting[request]

    async def until_over(self) -> None:
        """Wait until no call is open."""
        await until(lambda: not self.open_calls)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """A running server, and a client whose first call, which makes the method known, has ended."""
    service = Service(Seen())
    server = H2Server([Layers([service.seen, Decoding()])])
    handlers: dict[str, Any] = {"Call": grpc.unary_stream_rpc_method_handler(service.Call)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.Service", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
    found = Served(service, server, channel, port)
    async with asyncio.timeout(60):
        assert await answers(found.call(b"first")) == [b"first", b"made after 0"]
        service.seen.events.clear()
        yield found
    await channel.close()
    await server.stop(None)


async def answers(call: Any) -> Sequence[bytes]:
    return [one async for one in call]


async def test_a_wait_is_answered_without_a_call(served: Served) -> None:
    """Layers count it, and see nothing else of it."""
    call, wait = await served.waiting()
    assert [type(one) for one in served.open_calls] == [H2Poll]
    wait.answer([b"1", b"2"])
    assert await answers(call) == [b"1", b"2"]
    await served.until_over()
    assert served.seen.events == ["wait", "end OK"]
    assert served.service.over == []


async def test_a_wait_becomes_a_call(served: Served) -> None:
    """It passes the layers as if its request had just arrived, with the time that it has waited."""
    call, wait = await served.waiting()
    wait._began_s -= 7
    wait.make(lambda: served.service.over.append("over"))
    assert await answers(call) == [b"x", b"made after 7"]
    await served.until_over()
    assert served.seen.events == ["wait", "end", "enter", "leave"]
    assert served.service.over == ["over"]


async def test_the_rest_of_the_time_limits_the_call(served: Served) -> None:
    """The deadline that the caller has set does not move."""
    call, wait = await served.waiting(timeout=1_000)
    assert 900 < wait.timeout_s < 1_100  # a client rounds it
    wait._began_s -= 500
    wait.make(lambda: served.service.over.append("over"))
    assert 400 < int((await answers(call))[-1]) < 600
    await served.until_over()
    assert served.service.over == ["over"]


async def test_a_wait_keeps_its_headers_until_it_becomes_a_call(served: Served) -> None:
    """As one object, because thousands of calls wait, and a garbage collection visits the objects of all."""
    metadata = (("tenant", "a"), ("empty", ""), ("long", "x" * 1_000))
    call, wait = await served.waiting(metadata=metadata)
    parts = [one for one in gc.get_referents(wait) if isinstance(one, tuple) and one]
    assert not parts
    assert wait.headers is NO_HEADERS
    wait.make(lambda: served.service.over.append("over"))
    assert await answers(call) == [b"x", b"made after 0"]
    assert set(metadata) <= set(served.service.metadata)


@pytest.mark.parametrize("reason", ["handler", "layer", "memory", "size", "binary header"])
async def test_other_calls_are_made_at_once(served: Served, reason: str) -> None:
    """If the handler does not take it, a layer has to see it or has no memory, or it is not usual."""
    served.service.takes = reason != "handler"
    served.seen.has_to_see_all, served.seen.is_full = reason == "layer", reason == "memory"
    request = bytes(ITEM_BYTES_MAX + 1) if reason == "size" else b"x"
    metadata = (("some-bin", b"1"),) if reason == "binary header" else ()
    assert await answers(served.call(request, metadata=metadata)) == [request, b"made after 0"]
    counted = ["wait", "end"] if reason == "handler" else []
    assert served.seen.events == [*counted, "enter", "leave"]


async def test_a_handler_gets_what_layers_depend_on(served: Served) -> None:
    """Calls of different keys are different."""
    await served.waiting(b"1", metadata=(("tenant", "a"),))
    await served.waiting(b"2")
    assert served.service.keys[-2:] == [(b"a",), (b"",)]


async def cancel(served: Served, call: Any) -> None:
    call.cancel()


async def disconnect(served: Served, call: Any) -> None:
    await served.channel.close()


async def stop_server(served: Served, call: Any) -> None:
    await served.server.stop(0.1)


async def let_the_deadline_pass(served: Served, call: Any) -> None:
    await until(call.done)


@pytest.mark.parametrize("end", [cancel, disconnect, stop_server, let_the_deadline_pass])
async def test_a_wait_ends_with_its_caller(served: Served, end: Any) -> None:
    """Its handler is told once, and layers count it as cancelled."""
    call, _ = await served.waiting(timeout=4.0 if end is let_the_deadline_pass else None)
    await end(served, call)
    await served.until_over()
    assert served.service.over == ["stop"]
    assert served.seen.events == ["wait", "end CANCELLED"]
    codes = {stop_server: S.UNAVAILABLE, let_the_deadline_pass: S.DEADLINE_EXCEEDED}
    assert await call.code() is codes.get(end, S.CANCELLED)


async def test_waits_end_at_the_deadlines_of_callers_that_do_not_end_them(served: Served) -> None:
    """A wait with a later deadline or without one continues."""
    async with asyncio.timeout(60), deaf_client(served.address, window_bytes=WINDOW_BYTES) as client:
        for stream, timeout in ((1, "60S"), (3, "600m"), (5, "200m"), (7, "")):
            headers = {"grpc-timeout": timeout} if timeout else {}
            client.call("/t.Service/Call", b"%d" % stream, stream=stream, headers=headers)
        await until(lambda: len(served.service.waiting) == 4)
        await client.until_ended(5)
        await client.until_ended(3)
        assert client.ended == {3, 5}
        assert served.service.over == ["stop"] * 2
        await until(lambda: served.seen.events == ["wait"] * 4 + ["end CANCELLED"] * 2)


async def test_the_deadlines_of_waits_need_few_timers(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a wait that has ended, nor one with a distant deadline, keeps a timer of its own."""
    monkeypatch.setattr("ortoo.common.grpc.h2.polls.LOOK_AHEAD_MAX_S", 0.3)
    async with asyncio.timeout(60), deaf_client(served.address, window_bytes=WINDOW_BYTES) as client:
        for stream in range(1, 81, 2):
            client.call("/t.Service/Call", b"%d" % stream, stream=stream, headers={"grpc-timeout": f"{stream}H"})
        await until(lambda: len(served.service.waiting) == 40)
        for stream in range(3, 81, 2):
            served.service.waiting[b"%d" % stream].answer([b"1"])
        await until(lambda: len(served.open_calls) == 1)
        [wait] = served.open_calls
        number = wait._look_number
        await until(lambda: wait._look_number > number)
        looked = [one for connections in served.server.looks._due.values() for one in connections]
        assert [one for one in looked if isinstance(one, H2Poll)] == [wait]
        assert len(served.server.looks._due) < 10
        assert served.service.over == []


async def test_the_deadlines_of_calls_that_have_ended_need_few_timers(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Callers choose the deadlines. A timer for each different one would stay until then."""
    monkeypatch.setattr("ortoo.common.grpc.h2.call.LOOK_AHEAD_MAX_S", 0.2)
    served.service.takes = False
    async with asyncio.timeout(60), deaf_client(served.address, window_bytes=WINDOW_BYTES) as client:
        for stream in range(1, 401, 2):
            client.call("/t.Service/Call", b"x", stream=stream, headers={"grpc-timeout": f"{stream}H"})
        for stream in range(1, 401, 2):
            await client.until_ended(stream)
        assert len(served.server.deadlines._due) < 100


async def test_a_call_ends_at_its_distant_deadline(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks that are made before the deadline do not end it."""
    monkeypatch.setattr("ortoo.common.grpc.h2.call.LOOK_AHEAD_MAX_S", 0.05)
    served.service.takes, loop = False, asyncio.get_running_loop()
    async with asyncio.timeout(60), deaf_client(served.address, window_bytes=1_000) as client:
        began_s = loop.time()
        client.call("/t.Service/Call", bytes(10_000), headers={"grpc-timeout": "500m"})
        await client.until_ended()
        assert client.taken_bytes[1] == 1_000  # the rest of the answer is not taken
        assert loop.time() - began_s >= 0.5
        await served.until_over()
        assert not any(served.server.deadlines._due.values())


async def test_a_wait_whose_connection_is_broken_by_its_look_is_not_kept(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if its own look is due at the same time. Otherwise it would be kept until its deadline."""
    async with asyncio.timeout(60), deaf_client(served.address, window_bytes=WINDOW_BYTES) as client:
        client.call("/t.Service/Call", b"x", headers={"grpc-timeout": "9H"})
        await until(lambda: b"x" in served.service.waiting)
        [wait], looks = served.open_calls, served.server.looks
        connection, due_s = wait._connection, asyncio.get_running_loop().time() + 0.1
        for one in (connection, wait):
            looks.remove(one, one._look_number)
            one._look_number = looks.add(one, due_s)
        monkeypatch.setattr(Lifetime, "next_step", lambda *_: Step.BREAK)
        await until(lambda: connection.is_lost)
        assert served.service.over == ["stop"]
        assert not any(wait in each for each in looks._due.values())


async def test_an_answer_that_is_not_taken_ends_at_the_deadline(served: Served) -> None:
    """Its memory is counted until then."""
    async with asyncio.timeout(60), deaf_client(served.address, window_bytes=WINDOW_BYTES) as client:
        client.call("/t.Service/Call", b"x", headers={"grpc-timeout": "500m"})
        await until(lambda: b"x" in served.service.waiting)
        served.service.waiting[b"x"].answer([bytes(2 * WINDOW_BYTES)])
        await client.until_taken(WINDOW_BYTES)
        assert served.seen.events == ["wait"]
        await client.until_ended()
        await served.until_over()
        assert served.seen.events == ["wait", "end OK"]


async def test_a_retired_connection_waits_for_its_waits(served: Served) -> None:
    """They are open calls, so a graceful end of the connection lets them end."""
    call, wait = await served.waiting()
    [connection] = served.server.connections
    connection.retire()
    await until(lambda: connection._is_retired)
    wait.answer([b"1"])
    assert await answers(call) == [b"1"]
    await until(lambda: connection not in served.server.connections)


async def test_a_wait_whose_connection_is_lost_is_not_made(served: Served) -> None:
    """Its handler may have an event for it at the same time."""
    call, _ = await served.waiting()
    [connection] = served.server.connections
    connection.abort()
    assert served.service.over == ["stop"]
    with pytest.raises(grpc.aio.AioRpcError):
        await answers(call)
    assert "enter" not in served.seen.events
