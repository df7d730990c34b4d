"""Layers are entered in order and left in reverse, for every kind of call; tested without a server."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import grpc
import pytest

from ortoo.common.grpc.layers.answers import Answers
from ortoo.common.grpc.layers.coding import Decoding, Encoding
from ortoo.common.grpc.layers.layer import Layer, Layers, ServedCall
from ortoo.common.process.clock import SystemClock

PATH = "/ortoo.v1.Test/Call"


class Noting(Layer):
    """Records its calls; it can refuse, wait, and turn an error into an answer."""

    def __init__(self, name: str, noted: list[str], *, refuses: bool = False, waits: bool = False, heals: str = ""):
        self.name, self.noted, self.refuses, self.waits, self.heals = name, noted, refuses, waits, heals

    def enter(self, call: ServedCall) -> Awaitable[None] | None:
        self.noted.append(f"{self.name} enters")
        if self.refuses:
            raise ValueError(self.name)
        return SystemClock().sleep(0) if self.waits else None

    def on_request(self, call: ServedCall, request: Any) -> Awaitable[None] | None:
        self.noted.append(f"{self.name} asked {request}")
        return SystemClock().sleep(0) if self.waits else None

    def on_response(self, call: ServedCall, answer: Any) -> Any:
        return f"{answer}{self.name}"

    def on_sent(self, call: ServedCall, answer: Any) -> None:
        self.noted.append(f"{self.name} taken {answer}")

    def leave(self, call: ServedCall) -> Awaitable[None] | None:
        self.noted.append(f"{self.name} leaves {call.answer or repr(call.error)}")
        if self.heals and call.error is not None:
            call.answer, call.error = self.heals, None
        return SystemClock().sleep(0) if self.waits else None


class Elsewhere(Noting):
    """Of another service."""

    services = ("/ortoo.v2.",)


def written(answer: Any) -> Any:
    """Texts are not encoded, so that a test can read the results."""
    return answer


async def one(request: Any, context: Any) -> Any:
    if request == b"fail":
        raise KeyError("handler")
    return "answer"


async def many(request: Any, context: Any) -> AsyncIterator[Any]:
    yield "1"
    if request == b"fail":
        raise KeyError("handler")
    yield "2"


async def both(requests: Any, context: Any) -> AsyncIterator[Any]:
    async for request in requests:
        yield request


async def requests() -> AsyncIterator[str]:
    yield "a"
    yield "b"


def served(handle: Any, *layers: Layer) -> Any:
    """The function of a method with layers around it."""
    if handle is one:
        return Layers(layers).wrap(grpc.unary_unary_rpc_method_handler(handle, bytes, written), PATH).unary_unary
    if handle is both:
        return Layers(layers).wrap(grpc.stream_stream_rpc_method_handler(handle, written, written), PATH).stream_stream
    return Layers(layers).wrap(grpc.unary_stream_rpc_method_handler(handle, bytes, written), PATH).unary_stream


@pytest.mark.parametrize("waits", [False, True])
async def test_layers_are_entered_in_order_and_left_in_reverse(waits: bool) -> None:
    """Each changes the answer for the next outer layer; another service's layer is not called."""
    noted: list[str] = []
    layers = [Noting("a", noted, waits=waits), Elsewhere("x", noted), Noting("b", noted, waits=waits)]
    assert await served(one, *layers, Encoding(), Decoding())(b"", None) == "answerba"
    assert noted == ["a enters", "b enters", "b leaves answerb", "a leaves answerba"]


async def test_who_refuses_is_not_left_and_those_before_it_hear_why() -> None:
    """The handler is not called, and layers further in are not entered."""
    noted: list[str] = []
    layers = Noting("a", noted), Noting("b", noted, refuses=True), Noting("c", noted)
    with pytest.raises(ValueError, match="b"):
        await served(one, *layers)(b"", None)
    assert noted == ["a enters", "b enters", "a leaves ValueError('b')"]


@pytest.mark.parametrize("waits", [False, True])
async def test_an_error_may_become_an_answer(waits: bool) -> None:
    """Outer layers see only the answer."""
    noted: list[str] = []
    layers = (
        Noting("a", noted),
        Noting("b", noted, heals="healed", waits=waits),
        Noting("c", noted),
        Encoding(),
        Decoding(),
    )
    assert await served(one, *layers)(b"fail", None) == "healeda"
    assert noted[3:] == ["c leaves KeyError('handler')", "b leaves KeyError('handler')", "a leaves healeda"]


async def test_who_fails_as_it_is_left_fails_the_call() -> None:
    """The call fails also if the handler answered; the other layers are still left."""

    class Failing(Layer):
        def leave(self, call: ServedCall) -> None:
            raise ValueError("at the end")

    noted: list[str] = []
    with pytest.raises(ValueError, match="at the end"):
        await served(one, Noting("a", noted), Failing())(b"", None)
    assert noted == ["a enters", "a leaves ValueError('at the end')"]


async def test_each_of_many_answers_passes_the_layers() -> None:
    """From the innermost to the outermost, and all are called when it was taken; an error may become the last one."""
    noted: list[str] = []
    layers = Noting("a", noted), Noting("b", noted, heals="sorry"), Encoding(), Decoding()
    assert [answer async for answer in served(many, *layers)(b"", None)] == ["1ba", "2ba"]
    assert noted[2:] == [*(f"{name} taken {n}ba" for n in "12" for name in "ab"), "b leaves None", "a leaves None"]
    assert [answer async for answer in served(many, *layers)(b"fail", None)] == ["1ba", "sorrya"]


@pytest.mark.parametrize("joins", [False, True])
async def test_answers_that_are_ready_together_pass_the_layers_one_by_one(joins: bool) -> None:
    """Only a transport that joins them gets them as one."""
    noted: list[str] = []

    async def together(request: Any, context: Any) -> AsyncIterator[Any]:
        yield "0"
        yield Answers(["1", "2"])
        yield "3"

    method = grpc.unary_stream_rpc_method_handler(together, bytes, written)
    layers = Layers([Noting("a", noted), Encoding(), Decoding()])
    answers = [one async for one in layers.wrap(method, PATH, joins=joins).unary_stream(b"", None)]
    assert answers == (["0a", ["1a", "2a"], "3a"] if joins else ["0a", "1a", "2a", "3a"])


@pytest.mark.parametrize("waits", [False, True])
async def test_each_of_many_requests_passes_the_layers(waits: bool) -> None:
    """From the outermost to the innermost, before the handler sees it."""
    noted: list[str] = []
    layers = Noting("a", noted, waits=waits), Noting("b", noted, waits=waits)
    assert [answer async for answer in served(both, *layers)(requests(), None)] == ["aba", "bba"]
    assert [line for line in noted if "asked" in line] == ["a asked a", "b asked a", "a asked b", "b asked b"]


async def test_a_stream_that_nobody_reads_on_ends_its_handler_at_once() -> None:
    """The handler's cleanup runs when the call is left, not when the garbage collector runs."""
    noted: list[str] = []

    async def waiting(request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            yield "1"
            yield "2"
        finally:
            noted.append("handler ends")

    answers = served(waiting, Noting("a", noted))(b"", None)
    assert await anext(answers) == "1a"
    await answers.aclose()
    assert noted == ["a enters", "handler ends", "a leaves GeneratorExit()"]


async def test_a_cancelled_call_is_left() -> None:
    """The call ends as cancelled."""
    noted: list[str] = []

    async def waiting(request: Any, context: Any) -> Any:
        await asyncio.get_running_loop().create_future()

    handler: Any = grpc.unary_unary_rpc_method_handler(waiting)
    call = Layers([Noting("a", noted)]).wrap(handler, PATH).unary_unary
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await call(b"", None)
    assert noted == ["a enters", "a leaves CancelledError()"]
