"""Calls without a task. Their layers do not wait, and their handlers wait only for one notification.

A handler offers this by an attribute `start`, a function that the server calls first:

    def start(service, request, context, done) -> bool

It returns False for a call that needs the handler itself, and raises nothing. If it returns True, it calls
`done(answer)` once, now or later, or `done` with an exception. A task for each call, with a coroutine for each layer,
would take a third of the time of a send.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ortoo.common.grpc.layers.layer import Layer, Layers, Method, ServedCall, hooks_of, leaving, left
from ortoo.common.grpc.layers.repeats import Key, Repeatable, RepeatedAnswers

if TYPE_CHECKING:
    from ortoo.common.grpc.h2.context import H2Context

Finish = Callable[[bytes], None]
"""Takes the answer of a call."""
Continue = Callable[[Any], None]
"""Takes the coroutine of the rest of a call, which returns the answer or raises an error."""


class DirectHandler:
    """The handler of a unary method, for calls that need no task."""

    def __init__(self, handle: Any, start: Callable[..., bool], method: Method, layers: Sequence[Layer]) -> None:
        """`start` takes the request, the context and `done`; `handle` serves the calls that it does not take."""
        self._handle = handle
        self._start = start
        self._method = method
        self._enters = hooks_of(layers, "enter")
        self._leave = leaving(layers)
        self.repeats = RepeatedAnswers(method, layers) if getattr(handle, "repeats", False) else None
        """The answers to calls that repeat; None = each call has an answer of its own."""

    def serve(self, data: bytes, context: "H2Context", finish: Finish, go_on: Continue) -> None:
        """Serve a call: `finish` gets the answer, or `go_on` a coroutine, for a task in the current context."""
        key = None
        if self.repeats is not None:
            key = self.repeats.key(context, data)
            repeated = None if key is None else self.repeats.answer(key, context)
            if repeated is not None:
                finish(repeated)
                return
        call = ServedCall(self._method, data, context)
        try:
            for enter in self._enters:
                if enter is not None and (waiting := enter(call)) is not None:
                    go_on(self._go_on(call, waiting))
                    return
                call.entered_layers += 1
        except Exception as error:
            call.set_failure(error)
            go_on(self._end(call))
            return
        if not self._start(call.request, context, partial(self._done, call, key, finish, go_on)):
            go_on(self._go_on(call, None))

    def _done(self, call: ServedCall, key: Key | None, finish: Finish, go_on: Continue, answer: Any) -> None:
        holds = None
        if isinstance(answer, Repeatable):
            answer, holds = answer
        if isinstance(answer, BaseException):
            call.set_failure(answer)
        else:
            call.answer = answer
            waiting = self._leave(call)
            if waiting is None and call.error is None:
                if holds is not None and key is not None and self.repeats is not None:
                    self.repeats.keep(key, call.answer, holds)
                finish(call.answer)
                return
            if waiting is not None:
                go_on(self._end(call, waiting))
                return
        go_on(self._end(call))

    async def _go_on(self, call: ServedCall, waiting: Awaitable[None] | None) -> Any:
        """The rest of a call from a layer that waits, or from the handler on."""
        try:
            if waiting is not None:
                await waiting
                call.entered_layers += 1
                for enter in self._enters[call.entered_layers :]:
                    if enter is not None and (waiting := enter(call)) is not None:
                        await waiting
                    call.entered_layers += 1
            call.answer = await self._handle(call.request, call.context)
        except BaseException as raised:
            call.set_failure(raised)
        return await self._end(call)

    async def _end(self, call: ServedCall, waiting: Awaitable[None] | None = None) -> Any:
        """Leave the layers. Errors: that of the call."""
        if waiting is not None:
            try:
                await waiting
            except BaseException as raised:
                call.set_error(raised)
        await left(call, self._leave)
        answer, error = call.answer, call.error
        call.error = None
        if error is None:
            return answer
        del call
        try:
            raise error
        finally:
            del error


def direct_handler(handler: Any, path: str, layers: Layers) -> DirectHandler | None:
    """The direct handler of a method; None if its handler does not offer one."""
    handle = handler.unary_unary
    start, service = getattr(handle, "start", None), getattr(handle, "__self__", None)
    if start is None or service is None:
        return None
    return DirectHandler(handle, partial(start, service), *layers.method(handler, path))
