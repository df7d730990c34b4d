"""Layers around calls: each layer defines its work before, during and after a call, for every kind of call.

Layers are plain functions, entered in order and left in reverse order. One coroutine function per method runs all
layers and the handler, for calls of all transports.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import grpc

from ortoo.common.grpc.errors import Context
from ortoo.common.grpc.layers.answers import Answers, noting, passing
from ortoo.common.grpc.layers.arrival import ARRIVAL, Arrival, Arriving, Metadata, RepeatCaller
from ortoo.common.grpc.layers.receiving import Requests, request_of
from ortoo.common.grpc.limits.inflation import Inflation
from ortoo.common.grpc.limits.request_shape import beginning_check, counted

OBSERVING = "/grpc."
"""The prefix of the paths of health and reflection."""


KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


@dataclass(frozen=True, slots=True)
class Method:
    """The static properties of a method."""

    path: str
    """Such as "/ortoo.v1.ProducerService/Publish"."""
    name: str
    """Such as "ProducerService/Publish"."""
    is_request_stream: bool
    """Whether its requests are a stream."""
    is_response_stream: bool
    """Whether its answers are a stream."""
    read: Callable[[bytes], Any]
    write: Callable[[Any], bytes]
    inflation: Inflation = field(default_factory=Inflation)

    async def inflate(self, data: bytes) -> bytes:
        """A compressed request, decompressed. Errors: Invalid."""
        return await self.inflation.inflate(data, beginning_check(self.path))


class ServedCall:
    """A call while it is served."""

    __slots__ = (
        "answer",
        "context",
        "data",
        "end_error",
        "entered_layers",
        "error",
        "is_writing",
        "kept",
        "method",
        "request",
    )

    def __init__(self, method: Method, data: Any, context: Context) -> None:
        self.method = method
        self.context = context
        self.data: bytes | None = None if method.is_request_stream else data
        """The raw request; None if the requests are a stream."""
        self.request: Any = None
        """The decoded request."""
        self.answer: Any = None
        """The answer of a call without a stream; for a stream that failed, the last answer."""
        self.error: BaseException | None = None
        """Why it failed."""
        self.kept: dict[Layer, Any] = {}
        """The state that layers keep of this call."""
        self.entered_layers = 0
        self.is_writing = False
        """Whether gRPC is writing an answer of a stream. A call that is cancelled during the write ends without a
        status."""
        self.end_error: Exception | None = None
        """The error with which another task ended the call."""

    def set_error(self, error: BaseException) -> None:
        """End the call with this error, which replaces an earlier answer or error."""
        self.answer, self.error = None, error

    def make_terminator(self) -> Callable[[Exception], None]:
        """A function that ends the call with an error.

        It cancels the call's task, but not while an answer is written.
        """
        task = asyncio.current_task()

        def end(error: Exception) -> None:
            if self.end_error is None:
                self.end_error = error
                if task is not None and not self.is_writing:
                    task.cancel()

        return end

    def mark_written(self) -> None:
        """Note that the transport has taken an answer. Errors: the error that ended the call meanwhile."""
        self.is_writing = False
        if self.end_error is not None:
            raise self.end_error

    def set_failure(self, raised: BaseException) -> None:
        """Keep the error of the call. If `make_terminator` ended the call, its error replaces the cancellation."""
        if self.end_error is not None and isinstance(raised, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
            raised = self.end_error
        self.error = raised


class Layer:
    """Code around calls. A layer that was entered is always left. A method that has to wait returns an awaitable."""

    services: tuple[str, ...] = ("/",)
    """The prefixes of the paths of the methods that it serves."""
    always_repeats = False
    """Whether repeated calls (`ortoo.common.grpc.layers.repeats`) may be answered without this layer."""

    def repeat_key(self, caller: RepeatCaller) -> bytes | None:
        """The facts that this layer's decision depends on, beside the request; None = it has to be entered."""
        del caller
        return None

    def on_repeated(self, method: Method) -> None:
        """Called when a repeated call was answered."""

    def on_poll(self, method: Method) -> Callable[[str], None]:
        """Called when a call waits without being made (`layers.polls`); returns its `End`. Errors: if it has none."""
        raise NotImplementedError

    def arrive(self, arrival: Arrival) -> None:
        """Called when the headers of a call have arrived. An error refuses the call before its request is received."""

    def enter(self, call: ServedCall) -> Awaitable[None] | None:
        """Called when the call begins. An error refuses the call, and `leave` is not called."""

    def on_request(self, call: ServedCall, request: Any) -> Awaitable[None] | None:
        """Called for each request of a stream, before the handler gets it."""

    def on_response(self, call: ServedCall, answer: Any) -> Any:
        """Called with the answer, or with each answer of a stream; returns the answer for the next outer layer."""

    def on_sent(self, call: ServedCall, answer: Any) -> None:
        """Called when the transport has taken an answer of a stream, so that the next answer may follow."""

    def leave(self, call: ServedCall) -> Awaitable[None] | None:
        """Called when the call has ended with its `answer` or `error`; a layer may replace one by the other."""


class Guard(Layer):
    """A layer that is entered before the request is decoded. It sees the headers and the raw `ServedCall.data`."""

    def after_decoding(self) -> Sequence[Layer]:
        """The layers that check the decoded request for this guard. The server enters them before all other layers."""
        return ()


class Layers(grpc.aio.ServerInterceptor):
    """The layers of a server, the first one outermost."""

    def __init__(self, layers: Sequence[Layer], *, receives: bool = False) -> None:
        """With `receives` the handlers receive the requests of calls themselves, as the servers of grpc.aio need it."""
        self._layers, self._receives = tuple(layers), receives
        self._known: dict[str, tuple[Any, Any, Arriving]] = {}
        self._refusing: dict[str, Any] = {}
        self._inflation = Inflation()
        self._arrives = [one for one in layers if type(one).arrive is not Layer.arrive]

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Return the handler of the call's method with the layers around it; grpc.aio calls this for each call."""
        handler, path = await continuation(handler_call_details), handler_call_details.method
        if handler is None:
            return None
        known = self._known.get(path)
        if known is None or known[0] is not handler:
            wrapped = self.wrap(handler, path, boxed=True, receives=self._receives)
            known = (handler, wrapped, self.arriving(path, handler))
            self._known[path] = known
        _, wrapped, arriving = known
        if (task := asyncio.current_task()) is None:
            return wrapped
        arrival = arriving(handler_call_details.invocation_metadata or (), task.cancel)
        task.add_done_callback(arrival.on_released)
        ARRIVAL.set(arrival)
        return wrapped if arrival.refused is None else self._refusal(path)

    def arriving(self, path: str, handler: Any) -> Arriving:
        """A function that shows each call of a method to the layers before its request; a layer may refuse the call."""
        steps = tuple(one.arrive for one in self._arrives if path.startswith(one.services))
        kind, is_observer = path.rpartition("/")[2], path.startswith(OBSERVING)
        gives_many: bool = handler.response_streaming

        def arrived(metadata: Metadata, end: Callable[[str], object], has_request: bool = False) -> Arrival:
            arrival = Arrival(kind, metadata, is_observer=is_observer, gives_many=gives_many)
            arrival.end, arrival.has_request = end, has_request
            try:
                for step in steps:
                    step(arrival)
            except Exception as error:
                arrival.refused = error.with_traceback(None)
            return arrival

        return arrived

    def _refusal(self, path: str) -> Any:
        """A handler that does not wait for a request: the layers refuse the call when they are entered."""
        found = self._refusing.get(path)
        if found is None:
            found = self.wrap(grpc.stream_stream_rpc_method_handler(_never, bytes, bytes), path)
            self._refusing[path] = found
        return found

    def wrap(self, handler: Any, path: str, *, boxed: bool = False, receives: bool = False, joins: bool = False) -> Any:
        """A method's handler with the layers for this method around it; it takes and returns bytes.

        With `boxed` each request and answer of a stream is passed in a list, which the reader empties. Otherwise
        grpc.aio would keep each message until the next message comes, and a stream may be idle for hours. With
        `receives` the handler takes a call before its one request has arrived, and receives the request itself. With
        `joins` the transport takes several answers of a stream at once, as `Answers`.
        """
        kind = next(kind for kind in KINDS if getattr(handler, kind) is not None)
        handle = getattr(handler, kind)
        method, layers = self.method(handler, path)
        boxed = boxed and inspect.isasyncgenfunction(handle)
        read = (lambda data: [data]) if method.is_request_stream and boxed else None
        receives = receives and not method.is_request_stream
        if method.is_response_stream and not inspect.isasyncgenfunction(handle):
            # The handler itself writes its answers to the context, as the health service's Watch does.
            wrapped = _one(handle, method, layers, writes=False, receives=receives)
            write = handler.response_serializer
        elif method.is_response_stream:
            wrapped = _many(handle, method, layers, boxed=boxed, receives=receives, joins=joins)
            write = list.pop if boxed else None
        else:
            wrapped, write = _one(handle, method, layers, receives=receives), None
        functions = {kind: None, kind.replace("unary_", "stream_", 1) if receives else kind: wrapped}
        is_stream = method.is_request_stream or receives
        return handler._replace(
            request_streaming=is_stream, request_deserializer=read, response_serializer=write, **functions
        )

    def method(self, handler: Any, path: str) -> tuple[Method, tuple[Layer, ...]]:
        """A method with its layers."""
        method = Method(
            path,
            path.rpartition(".")[2],
            handler.request_streaming,
            handler.response_streaming,
            counted(path, handler.request_deserializer or bytes),
            handler.response_serializer or bytes,
            self._inflation,
        )
        return method, tuple(layer for layer in self._layers if path.startswith(layer.services))


async def _never(requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
    raise AssertionError("a call that was refused is not served")
    yield


def hooks_of(layers: Sequence[Layer], name: str) -> list[Any]:
    """For each layer its method of this name; None if the layer does not define the method."""
    return [getattr(one, name) if getattr(type(one), name) is not getattr(Layer, name) else None for one in layers]


def _one(handle: Any, method: Method, layers: Sequence[Layer], *, writes: bool = True, receives: bool = False) -> Any:
    enters, leave, given = hooks_of(layers, "enter"), leaving(layers, writes=writes), _given(method, layers)

    async def one(data: Any, context: Context) -> Any:
        call = ServedCall(method, data, context)
        try:
            if receives:
                call.data = await request_of(context)
            for enter in enters:
                if enter is not None and (waiting := enter(call)) is not None:
                    await waiting
                call.entered_layers += 1
            call.answer = await handle(given(call, data), context)
        except BaseException as raised:
            call.set_failure(raised)
        while (waiting := leave(call)) is not None:
            try:
                await waiting
            except BaseException as raised:
                call.set_error(raised)
        answer, error = call.answer, call.error
        if error is None:
            return answer
        # gRPC keeps the error in the call's context: the locals of this frame must not refer to it.
        call.error = None
        del call, data, context, answer
        try:
            raise error
        finally:
            del error

    return one


def _many(handle: Any, method: Method, layers: Sequence[Layer], *, boxed: bool, receives: bool, joins: bool) -> Any:
    enters, leave, given = hooks_of(layers, "enter"), leaving(layers), _given(method, layers, boxed=boxed)
    passed = passing([one for one in reversed(hooks_of(layers, "on_response")) if one is not None])
    sent = noting([one for one in hooks_of(layers, "on_sent") if one is not None])

    async def many(data: Any, context: Context) -> AsyncIterator[Any]:
        call, is_abandoned = ServedCall(method, data, context), False
        try:
            if receives:
                call.data = await request_of(context)
            await _entered(call, enters)
            async with aclosing(handle(given(call, data), context)) as answers:
                async for answer in answers:
                    ready = passed(call, answer)
                    for answer in [Answers(ready)] if joins and len(ready) > 1 else ready:
                        call.is_writing = True
                        yield [answer] if boxed else answer
                        call.mark_written()
                        sent(call, answer)
                    del answer, ready
        except GeneratorExit as raised:  # gRPC's task was cancelled during a write
            call.error, is_abandoned = raised, True
        except BaseException as raised:
            call.set_failure(raised)
        await left(call, leave)
        last, error = call.answer, call.error
        call.error = None
        del call, data, context
        if is_abandoned:
            return
        if last is not None:
            yield [last] if boxed else last
        if error is not None:
            try:
                raise error
            finally:
                del error

    return many


async def _entered(call: ServedCall, enters: Sequence[Any]) -> None:
    for enter in enters:
        if enter is not None and (waiting := enter(call)) is not None:
            await waiting
        call.entered_layers += 1


async def left(call: ServedCall, leave: Callable[[ServedCall], Awaitable[None] | None]) -> None:
    """Leave all layers."""
    while (waiting := leave(call)) is not None:
        try:
            await waiting
        except BaseException as raised:
            call.set_error(raised)


def leaving(layers: Sequence[Layer], *, writes: bool = True) -> Callable[[ServedCall], Awaitable[None] | None]:
    """A function that leaves layers until a layer has to wait. It returns this awaitable, or None at the end."""
    answereds = hooks_of(layers, "on_response") if writes else [None] * len(layers)
    exits = tuple(zip(answereds, hooks_of(layers, "leave"), strict=True))

    def leave(call: ServedCall) -> Awaitable[None] | None:
        while call.entered_layers:
            call.entered_layers -= 1
            answered, leave_one = exits[call.entered_layers]
            try:
                if answered is not None and call.answer is not None:
                    call.answer = answered(call, call.answer)
                if leave_one is not None and (waiting := leave_one(call)) is not None:
                    told: Awaitable[None] = waiting
                    return told
            except BaseException as raised:
                call.set_error(raised)
        return None

    return leave


def _given(method: Method, layers: Sequence[Layer], *, boxed: bool = False) -> Callable[[ServedCall, Any], Any]:
    """The handler's argument: the request, or the requests of a stream, decoded and passed through the layers."""
    if not method.is_request_stream:
        return lambda call, _: call.request
    askeds = [one for one in hooks_of(layers, "on_request") if one is not None]
    return lambda call, requests: Requests(call, requests, askeds, boxed=boxed)
