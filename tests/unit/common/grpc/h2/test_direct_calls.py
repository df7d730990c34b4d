"""Calls that an h2 server serves without a task, and those that need one after all."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest

from ortoo.common.errors import Invalid, Overloaded
from ortoo.common.grpc.h2.server import H2Server
from ortoo.common.grpc.h2.shared.looks import DEADLINES_PER_S
from ortoo.common.grpc.layers.error_translation import ErrorTranslation
from ortoo.common.grpc.layers.layer import Layer, Layers, ServedCall
from ortoo.common.process.containment import CONTAINED_FAILURES
from tests.conformance.wire import failure, turns

S = grpc.StatusCode
Done = Callable[[Any], None]
ANSWERED = ["enter", "start", "leave"]


class Seen(Layer):
    """Notes what happens, and changes requests and answers."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.waits = self.refuses = False
        self.error: BaseException | None = None

    def enter(self, call: ServedCall) -> Awaitable[None] | None:
        if self.refuses:
            raise Overloaded("enough")
        call.request = b"<" + (call.data or b"")
        self.events.append("enter")
        return self._wait() if self.waits else None

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        turned = loop.create_future()
        loop.call_soon(turned.set_result, None)
        await turned
        self.events.append("waited")

    def on_response(self, call: ServedCall, answer: bytes) -> bytes:
        return answer + b">"

    def leave(self, call: ServedCall) -> None:
        self.events.append("leave")
        self.error = call.error


class Service:
    """Its one method offers to be served without a task."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen
        self.takes = True
        self.held: dict[bytes, Done] | None = None
        """Takes the functions of calls that are answered later, by request."""
        self.error: Exception | None = None
        self.context: Any = None
        """That of the last call."""

    async def Call(self, request: bytes, context: Any) -> bytes:  # gRPC's name
        self.seen.events.append("handler")
        return request

    def start(self, request: bytes, context: Any, done: Done) -> bool:
        self.seen.events.append("start")
        self.context = context
        if not self.takes:
            return False
        if self.held is not None:
            self.held[request] = done
        else:
            done(self.error or request)
        return True

    Call.start = start  # type: ignore[attr-defined]


@pytest.fixture
async def served() -> AsyncIterator[tuple[Service, Callable[[bytes], Any]]]:
    """The service, and a function that calls it."""
    service = Service(Seen())
    server = H2Server([Layers([ErrorTranslation(), service.seen])])
    handlers: dict[str, Any] = {"Call": grpc.unary_unary_rpc_method_handler(service.Call)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.Service", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
    call: Any = channel.unary_unary("/t.Service/Call")
    async with asyncio.timeout(60):
        yield service, call
    await channel.close()
    await server.stop(None)


async def test_the_usual_call_has_no_task(served: Any) -> None:
    """Layers see it as any other call."""
    service, call = served
    assert await call(b"x") == b"<x>"
    assert service.seen.events == ANSWERED


async def test_a_call_may_be_answered_later(served: Any) -> None:
    """Answers come in any order."""
    service, call = served
    service.held = {}
    calls = [call(b"1"), call(b"2")]
    async for _ in turns():
        if len(service.held) == 2:
            break
    service.held[b"<2"](b"second")
    assert await calls[1] == b"second>"
    service.held[b"<1"](b"first")
    assert await calls[0] == b"first>"


async def test_deadlines_of_calls_share_timers(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer for each call would cost as much as the decoding of its headers."""
    service, call = served
    await call(b"connects")
    loop, timers = asyncio.get_running_loop(), list[float]()
    call_later, began_s, service.held = loop.call_later, loop.time(), {}

    def count(delay_s: float, *arguments: Any, **options: Any) -> Any:
        timers.append(delay_s)
        return call_later(delay_s, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(loop, "call_later", count)
        calls = [call(b"%d" % number, timeout=50) for number in range(200)]
        async for _ in turns():
            if len(service.held) == len(calls):
                break
    assert len([delay_s for delay_s in timers if delay_s > 40]) <= (loop.time() - began_s) * DEADLINES_PER_S + 2
    for request, done in service.held.items():
        done(request)
    await asyncio.gather(*calls)


async def test_the_handler_serves_what_is_not_taken(served: Any) -> None:
    """The layers are entered once."""
    service, call = served
    service.takes = False
    assert await call(b"x") == b"<x>"
    assert service.seen.events == ["enter", "start", "handler", "leave"]


async def test_a_layer_that_waits_leads_to_the_handler(served: Any) -> None:
    """A task continues the call with the layers behind the one that waits."""
    service, call = served
    service.seen.waits = True
    assert await call(b"x") == b"<x>"
    assert service.seen.events == ["enter", "waited", "handler", "leave"]


async def test_a_layer_that_refuses(served: Any) -> None:
    """The caller gets its error, and the handler is not called."""
    service, call = served
    service.seen.refuses = True
    assert (await failure(call(b"x"))).code() is S.RESOURCE_EXHAUSTED
    assert service.seen.events == []


@pytest.mark.parametrize("is_later", [False, True])
async def test_an_error_instead_of_an_answer(served: Any, is_later: bool) -> None:
    """Layers see it, and translate it."""
    service, call = served
    service.error = Invalid("bad", field="f")
    if is_later:
        service.held = {}
    one = call(b"x")
    if is_later:
        async for _ in turns():
            if service.held:
                break
        service.held[b"<x"](service.error)
    assert (await failure(one)).code() is S.INVALID_ARGUMENT
    assert service.seen.events == ANSWERED
    assert service.seen.error is service.error


async def test_a_caller_that_does_not_wait(served: Any) -> None:
    """Its call ends when the handler is done; the layers are left."""
    service, call = served
    service.held = {}
    one = call(b"x")
    async for _ in turns():
        if service.held:
            break
    one.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await one
    service.held[b"<x"](b"late")
    assert service.seen.events == ANSWERED
    service.held = None
    assert await call(b"y") == b"<y>"


async def test_an_error_after_the_caller_has_left(served: Any) -> None:
    """No caller waits for the status. That is no defect of the server."""
    service, call = served
    service.held = {}
    before = CONTAINED_FAILURES.copy()
    one = call(b"x")
    async for _ in turns():
        if service.held:
            break
    one.cancel()
    async for _ in turns():
        if service.context.done():
            break
    service.held[b"<x"](Invalid("late", field="f"))
    service.held = None
    assert await call(b"y") == b"<y>"
    assert service.seen.events == ANSWERED + ANSWERED
    assert before == CONTAINED_FAILURES
