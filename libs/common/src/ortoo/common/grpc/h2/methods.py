"""Methods of the server: how their calls begin, take their requests, run their handlers and answer."""

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import grpc

from ortoo.common.grpc.h2.call import OK, H2Call
from ortoo.common.grpc.h2.context import H2Context, Requests
from ortoo.common.grpc.h2.framing import Metadata
from ortoo.common.grpc.layers.answers import each
from ortoo.common.grpc.layers.arrival import Arrival, Arriving
from ortoo.common.grpc.layers.direct import DirectHandler
from ortoo.common.process.clock import Clock
from ortoo.common.process.containment import as_ortoo_error

UNKNOWN: int = grpc.StatusCode.UNKNOWN.value[0]
UNIMPLEMENTED: int = grpc.StatusCode.UNIMPLEMENTED.value[0]
RESOURCE_EXHAUSTED: int = grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
CANCELLED: int = grpc.StatusCode.CANCELLED.value[0]


class H2Method:
    """One method: each call runs in the context of the server's start, in its own task unless it needs none."""

    def __init__(
        self,
        path: str,
        handler: Any,
        arriving: Arriving | None,
        direct: DirectHandler | None,
        clock: Clock,
        around: contextvars.Context,
    ) -> None:
        """`handler` takes and returns what its serializers make of bytes; the layers are part of it.

        `direct` is the same for calls that need no task; None = all calls have one.
        """
        self.path = path
        self._arriving = arriving
        self._direct = direct
        self._clock = clock
        self._around = around
        self._loop = asyncio.get_running_loop()
        self.takes_many: bool = handler.request_streaming
        """Whether its requests are a stream."""
        self._has_many: bool = handler.response_streaming
        self._read = handler.request_deserializer
        self._write = handler.response_serializer
        self._call = (
            handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
        )  # fmt: skip

    def begin(self, call: H2Call, *, is_whole: bool) -> None:
        """Handle the headers of a call: wait for its request, unless a layer refuses the call.

        With `is_whole`, the call gets its whole request before anything else happens.
        """
        if self._arriving is not None:
            has_request = is_whole and self._direct is not None
            arrival = call.arrival = self._arriving(call.headers.metadata, partial(self._end, call), has_request)
            if call.is_closed:  # a layer has broken the connection
                arrival.on_released()
                return
            call.closed, arrival.peer = arrival.on_released, call.peer()
            if arrival.refused is not None:
                self.serve_soon(call, b"")
                return
            if self.takes_many:  # its handler begins now; others may begin before its task has entered the layers
                arrival.on_request_received()
        if self.takes_many:
            self.serve_soon(call, b"")

    def _end(self, call: H2Call, reason: str) -> None:
        """End a call whose request has not come."""
        call.fail(RESOURCE_EXHAUSTED, reason)

    def on_messages(self, call: H2Call, messages: list[bytes], data_bytes: int) -> None:
        """Handle requests, and the end of the requests."""
        if self.takes_many:
            call.queue(messages, data_bytes)
            return
        if data_bytes:
            call.consumed(data_bytes)
        if call.is_served:
            return
        if messages:
            self.serve_soon(call, messages[0])
        elif call.is_half_closed:
            call.answer(None, UNIMPLEMENTED, f"{self.path} takes one request, and none came", ())

    def serve_soon(self, call: H2Call, message: bytes) -> None:
        """Run the handler of a call with its one request, or with an empty one if its requests are a stream."""
        call.is_served = True
        context = H2Context(call, self._clock, self._read, self._write)
        arrival: Arrival | None = call.arrival
        variables = self._around.copy()
        if arrival is not None and not self.takes_many:
            arrival.on_request_received()
            if self._direct is not None and arrival.refused is None:
                go_on = partial(self._go_on, call, context, variables)
                variables.run(self._direct.serve, message, context, context.finish, go_on)
                return
        self._serve_in_task(call, self.serve(call, message, context), variables)

    def _go_on(self, call: H2Call, context: H2Context, variables: contextvars.Context, rest: Any) -> None:
        """Run the rest of a call that needs a task after all."""
        self._serve_in_task(call, self._conclude(call, context, self._rest(call, context, rest)), variables)

    async def _rest(self, call: H2Call, context: H2Context, rest: Any) -> bytes | None:
        if call.is_caller_gone:  # the layers still have to be left
            call.task.cancel()
        return await self._answer_one(rest, context)

    def _serve_in_task(self, call: H2Call, serving: Any, variables: contextvars.Context) -> None:
        # The call keeps its task.
        call.task = self._loop.create_task(serving, context=variables)

    async def serve(self, call: H2Call, message: bytes, context: H2Context) -> None:
        """Serve a call and answer it, also when it fails; only exceptions that end the process are raised."""
        await self._conclude(call, context, self._answer(call, message, context))

    async def _answer(self, call: H2Call, message: bytes, context: H2Context) -> bytes | None:
        if call.is_caller_gone:
            raise asyncio.CancelledError
        request: Any = message
        if self.takes_many:
            request = Requests(context)
        elif self._read is not None:
            request = self._read(message)
        if not self._has_many:
            return await self._answer_one(self._call(request, context), context)
        await self._answer_many(call, self._call(request, context), context)
        return None

    async def _conclude(self, call: H2Call, context: H2Context, answering: Awaitable[bytes | None]) -> None:
        data = None
        try:
            # Not before this first step, because a task that is cancelled earlier never runs and would not answer.
            call.cancelled = call.task.cancel
            data = await answering
        except asyncio.CancelledError:
            if context.number == OK and not call.is_caller_gone:  # no layer set a status
                context.set_code(grpc.StatusCode.CANCELLED)
        except grpc.aio.AbortError:
            pass  # the context has the status
        except Exception as error:  # not translated by a layer
            as_ortoo_error(error, self.path)
            if context.number == OK:
                context.set_code(grpc.StatusCode.UNKNOWN)
            context.set_details(f"Unexpected {type(error)}: {error}")
        except BaseException as error:
            context.set_code(grpc.StatusCode.UNKNOWN)
            context.set_details(f"Unexpected {type(error).__name__}")
            context.finish(None)
            raise
        context.finish(data)

    async def _answer_one(self, answer: Any, context: H2Context) -> bytes | None:
        """The answer of the handler, encoded; None if it may not be sent."""
        data: Any = await answer if inspect.isawaitable(answer) else answer
        if self._write is not None and context.number == OK:
            data = self._write(data)
        return data if data is not None and context.check_size(data) else None

    async def _answer_many(self, call: H2Call, answers: Any, context: H2Context) -> None:
        """Send each answer. Answers of one loop iteration are sent together."""
        if inspect.isawaitable(answers):
            await answers  # the handler itself writes its answers to the context
            return
        if not inspect.isasyncgen(answers):
            for answer in answers:
                await context.write(answer)
            return
        write = self._write
        try:
            async for answer in answers:
                together = [one if write is None else write(one) for one in each(answer)]
                if context.is_aborted or not all(map(context.check_size, together)):
                    return
                await call.send_and_wait(*together)
                del answer, together
        finally:
            await answers.aclose()


class InterceptedMethod:
    """A method whose handler is found by interceptors, for each call."""

    def __init__(
        self,
        path: str,
        find: Callable[[H2Call, str], Awaitable[Any]],
        clock: Clock,
        around: contextvars.Context,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._path = path
        self._find = find
        self._clock = clock
        self._around = around
        self._loop = loop

    @property
    def takes_many(self) -> bool:
        """Requests are kept until the handler is known."""
        return True

    def begin(self, call: H2Call, *, is_whole: bool) -> None:
        """Ask the interceptors for the handler."""
        call.is_served = True
        call.task = self._loop.create_task(self._serve(call), context=self._around.copy())

    def on_messages(self, call: H2Call, messages: list[bytes], data_bytes: int) -> None:
        """Handle requests, and the end of the requests."""
        call.queue(messages, data_bytes)

    async def _serve(self, call: H2Call) -> None:
        call.cancelled = call.task.cancel
        try:
            handler = await self._find(call, self._path)
        except asyncio.CancelledError:
            call.answer(None, CANCELLED, "", ())
            return
        except Exception as error:
            as_ortoo_error(error, self._path)
            call.answer(None, UNKNOWN, f"Unexpected {type(error)}: {error}", ())
            return
        if handler is None:
            call.answer(None, UNIMPLEMENTED, "Method not found!", ())
            return
        method = H2Method(self._path, handler, None, None, self._clock, self._around)
        context = H2Context(call, self._clock, handler.request_deserializer, handler.response_serializer)
        message = b"" if handler.request_streaming else await call.receive()
        if message is None:
            call.answer(None, UNIMPLEMENTED, f"{self._path} takes one request, and none came", ())
            return
        await method.serve(call, message, context)


class CallDetails(grpc.HandlerCallDetails):
    """The details of a call, for interceptors and generic handlers."""

    def __init__(self, method: str, invocation_metadata: Metadata = ()) -> None:
        self.method, self.invocation_metadata = method, invocation_metadata
