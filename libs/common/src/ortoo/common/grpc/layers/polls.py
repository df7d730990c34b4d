"""Calls that wait for an event without being made, such as the polls of idle consumers, or acks of one message.

A handler of one request offers this by an attribute `poll`, a function that the server calls first:

    def poll(service, request, key, wait) -> Callable[[], object] | None

`request` are bytes, `key` is what the layers depend on, and `wait` is the call (`PollWait`). The function returns
None for a call that has to be made, and then it has changed nothing. Otherwise it calls later `wait.answer(answers)`,
or `wait.make()` when there is something to do. It returns a function that the server calls if the caller leaves before.

The layers of the method decide by `Layer.always_repeats` and `Layer.repeat_key` whether a call may wait in this way,
and count it by `Layer.on_poll`. A call that is made later passes all layers.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from ortoo.common.errors import OrtooError
from ortoo.common.grpc.layers.arrival import RepeatCaller
from ortoo.common.grpc.layers.layer import Layers, hooks_of
from ortoo.common.grpc.layers.repeats import ITEM_BYTES_MAX, Key, layer_key

End = Callable[[str], None]
"""Ends the wait for a layer, with the status of the call; "" = it is made now."""
Stop = Callable[[], object]


class PollWait(RepeatCaller, Protocol):
    """A call that waits. Exactly one of its functions is called, once and later, unless the caller leaves before."""

    timeout_s: float | None
    """The time for which the caller waits, as it began; None = without end."""

    def answer(self, answers: Sequence[bytes]) -> None:
        """Answer the call successfully. A method without a stream has one answer."""

    def make(self, over: Callable[[], object]) -> None:
        """Make the call. `over` is called when it has ended."""


class Polls:
    """The calls of one method that wait without being made."""

    def __init__(self, begin: Callable[..., Stop | None], path: str, handler: Any, layers: Layers) -> None:
        """`begin` takes the request, the key of the layers, and the call."""
        method, around = layers.method(handler, path)
        self._begin = begin
        self._key = layer_key(around)
        self._observers = [partial(one, method) for one in hooks_of(around, "on_poll") if one is not None]

    def begin(self, request: bytes, wait: PollWait) -> tuple[Stop, list[End]] | None:
        """Let a call wait. Returns the function of its handler, and those of layers; None if it has to be made."""
        key: Key | None = self._key(wait) if len(request) <= ITEM_BYTES_MAX else None
        if key is None:
            return None
        ends: list[End] = []
        try:
            for observer in self._observers:
                ends.append(observer())  # noqa: PERF401 - keeps those before an error
        except OrtooError:
            stop = None
        else:
            stop = self._begin(request, key, wait)
        if stop is not None:
            return stop, ends
        for end in ends:
            end("")
        return None


def polls_of(handler: Any, path: str, layers: Layers) -> Polls | None:
    """The polls of a method; None if its handler does not offer them."""
    handle = handler.unary_stream or handler.unary_unary
    poll, service = getattr(handle, "poll", None), getattr(handle, "__self__", None)
    return None if poll is None or service is None else Polls(partial(poll, service), path, handler, layers)
