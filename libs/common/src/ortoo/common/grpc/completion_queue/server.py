"""Hot methods: registered on gRPC's core instead of grpc.aio, and served with the usual handlers and layers."""

import asyncio
import contextlib
import contextvars
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Any

import grpc

from ortoo.common.grpc.completion_queue.context import OK, QueueCallContext
from ortoo.common.grpc.completion_queue.core import CompletionQueue, QueueCall
from ortoo.common.grpc.layers.direct import DirectHandler, direct_handler
from ortoo.common.grpc.layers.layer import Layers
from ortoo.common.process.clock import Clock, SystemClock
from ortoo.common.process.containment import as_ortoo_error

UNSENT_BYTES_MAX = 32 << 10
"""Maximum size of a call's small answers that wait for gRPC before the handler has to wait."""
SMALL_BYTES = 2 << 10
"""Larger answers count as the call's memory until gRPC has taken them."""
FLUSH_BYTES = 8 << 10
"""After a larger answer the handler waits until gRPC has taken it; smaller ones fit into the connection's buffer."""
PERIODIC_PAUSE_S = 0.02
"""The time for which calls of periodic methods are gathered, so that the event loop takes many at one wake-up."""
UNKNOWN: int = grpc.StatusCode.UNKNOWN.value[0]


class _CallDetails(grpc.HandlerCallDetails):
    """The name of a method, in the form in which gRPC asks for its handler."""

    def __init__(self, method: str) -> None:
        self.method, self.invocation_metadata = method, ()


class QueueServer:
    """A wrapper of a server that was not started yet. It passes on added handlers, except those of hot methods."""

    def __init__(
        self,
        server: grpc.aio.Server,
        core: CompletionQueue,
        hot: Collection[str],
        layers: Layers,
        clock: Clock,
        periodic: Collection[str] = (),
    ) -> None:
        """`hot` are the full names of methods that take one request; calls of these methods pass `layers`.

        Calls of `periodic` methods, which are hot too, wait for `PERIODIC_PAUSE_S` in a queue of their own.
        """
        self.add_registered_method_handlers = server.add_registered_method_handlers
        self._server = server
        self._core = core
        self._periodic_core = core.another(PERIODIC_PAUSE_S) if periodic else None
        self._hot, self._periodic = frozenset((*hot, *periodic)), frozenset(periodic)
        self._layers = layers
        self._clock = clock
        self._handlers: dict[str, Any] = {}

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Called by generated code. The first handler of a method serves it, as in grpc.aio.

        Calls of a hot method do not reach grpc.aio, although it has a handler, because the core knows the method.
        """
        self._server.add_generic_rpc_handlers(handlers)
        for method in self._hot - self._handlers.keys():
            found = next(filter(None, (one.service(_CallDetails(method)) for one in handlers)), None)
            if found is not None:
                self._handlers[method] = found

    @classmethod
    def wrap(
        cls, server: grpc.aio.Server, hot: Collection[str], layers: Layers, periodic: Collection[str] = ()
    ) -> "QueueServer | None":
        """A queue front for this server. None if the server's core is unsuitable: grpc.aio then serves all methods."""
        clock = SystemClock()
        core = CompletionQueue.of_server(server, clock)
        return None if core is None else cls(server, core, hot, layers, clock, periodic)

    def register(self) -> None:
        """Register the hot methods on the core. Call this before the server starts."""
        for method, handler in self._handlers.items():
            core, direct = self._core, None
            if self._periodic_core is not None and method in self._periodic:
                core, direct = self._periodic_core, direct_handler(handler, method, self._layers)
            core.register(method, _Method(method, handler, self._layers, self._clock, direct).begin)

    def start(self) -> None:
        """Begin to take calls. Call this after the server has started."""
        for core in self._cores():
            core.start()

    async def close(self) -> None:
        """End the queue. Call this after the server has stopped."""
        for core in self._cores():
            await core.close()

    def _cores(self) -> list[CompletionQueue]:
        return [self._core] if self._periodic_core is None else [self._core, self._periodic_core]


class _Method:
    """One hot method: each call runs in its own task, in the context of the server's start."""

    def __init__(
        self, name: str, handler: Any, layers: Layers, clock: Clock, direct: DirectHandler | None = None
    ) -> None:
        """`direct` serves calls that need no task; None = all calls have one."""
        self._name = name
        self._direct = direct
        self._arriving = layers.arriving(name, handler)
        around = layers.wrap(handler, name)
        self._call: Callable[[Any, Any], Any] = around.unary_unary or around.unary_stream
        self._has_many: bool = handler.response_streaming
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._around = contextvars.copy_context()

    def begin(self, call: QueueCall) -> None:
        """Handle the headers of a call: receive its request, unless a layer refuses the call."""
        arrival = call.arrival = self._arriving(call.metadata, lambda reason: self._end(call, reason))
        call.closed, arrival.peer = arrival.on_released, call.peer()
        if arrival.refused is None:
            call.receive(self.take)
        else:
            self._begin_to_serve(call, b"")

    def _end(self, call: QueueCall, reason: str) -> None:
        """End a call whose request has not come."""
        if not call.is_answered:
            context = QueueCallContext(call, self._clock)
            context.set_code(grpc.StatusCode.RESOURCE_EXHAUSTED)
            context.set_details(reason)
            context.finish(None)

    def take(self, call: QueueCall) -> None:
        """Handle the request of a call."""
        if call.is_answered:
            return
        if call.message is not None and not call.is_caller_gone:
            self._begin_to_serve(call, call.message)
            call.message = None
            return
        context = QueueCallContext(call, self._clock)
        if call.is_caller_gone:
            context.set_code(grpc.StatusCode.CANCELLED)
        else:
            context.set_code(grpc.StatusCode.UNIMPLEMENTED)
            context.set_details(f"{self._name} takes one request, and none came")
        context.finish(None)

    def _begin_to_serve(self, call: QueueCall, message: bytes) -> None:
        context = QueueCallContext(call, self._clock)
        call.arrival.on_request_received()
        variables = self._around.copy()
        if self._direct is not None and call.arrival.refused is None:
            go_on = partial(self._go_on, call, context, variables)
            variables.run(self._direct.serve, message, context, context.finish, go_on)
            return
        self._serve_in_task(call, context, variables, self._answer(call, message, context))

    def _go_on(self, call: QueueCall, context: QueueCallContext, variables: contextvars.Context, rest: Any) -> None:
        """Run the rest of a call that needs a task after all."""
        self._serve_in_task(call, context, variables, self._rest(call, rest))

    def _serve_in_task(
        self,
        call: QueueCall,
        context: QueueCallContext,
        variables: contextvars.Context,
        answering: Awaitable[bytes | None],
    ) -> None:
        # gRPC keeps the call until it is answered, and the call keeps its task.
        self._loop.create_task(self._serve(call, context, answering), context=variables)

    async def _answer(self, call: QueueCall, message: bytes, context: QueueCallContext) -> bytes | None:
        if call.is_caller_gone:
            raise asyncio.CancelledError
        if not self._has_many:
            data: bytes | None = await self._call(message, context)
            return data
        await self._answer_many(call, message, context)
        return None

    async def _rest(self, call: QueueCall, rest: Awaitable[bytes]) -> bytes:
        if call.is_caller_gone and call.cancelled is not None:  # the layers still have to be left
            call.cancelled()
        return await rest

    async def _serve(self, call: QueueCall, context: QueueCallContext, answering: Awaitable[bytes | None]) -> None:
        """Serve a call and answer it, also when it fails; only exceptions that end the process are raised."""
        data = None
        try:
            # Not before this first step, because a task that is cancelled earlier never runs and would not answer.
            call.cancelled = asyncio.current_task().cancel  # type: ignore[union-attr]  # it is this one
            data = await answering
        except asyncio.CancelledError:
            if context.number == OK:  # no layer set a status
                context.set_code(grpc.StatusCode.CANCELLED)
        except grpc.aio.AbortError:
            pass  # the context has the status
        except Exception as error:  # not translated by a layer
            failed = as_ortoo_error(error, self._name)
            context.set_code(UNKNOWN)
            context.set_details(f"Unexpected {type(error).__name__}: {failed}")
        except BaseException as error:
            context.set_code(UNKNOWN)
            context.set_details(f"Unexpected {type(error).__name__}")
            context.finish(None)
            raise
        context.finish(data)

    async def _answer_many(self, call: QueueCall, message: bytes, context: QueueCallContext) -> None:
        """Send each answer. Small answers are sent together, because a write for each would be slow."""
        async with contextlib.aclosing(self._call(message, context)) as answers:
            async for data in answers:
                call.send(data)
                if call.unsent_bytes > (FLUSH_BYTES if len(data) > SMALL_BYTES else UNSENT_BYTES_MAX):
                    await call.wait_until_written()
