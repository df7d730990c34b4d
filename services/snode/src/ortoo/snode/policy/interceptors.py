"""Interceptors, which run before and after every call and when a call fails, in a fixed order."""

import importlib
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from ortoo.common.errors import Invalid


class InterceptedCall(NamedTuple):
    """One call of a client, or one request within a stream."""

    method: str
    """Service and method, "ProducerService/Publish"."""
    request: Any
    """The message as received; None for a call whose requests are a stream."""
    peer: str
    bulk_bytes: int = 0
    """Bytes of the batch, which are received beside the message."""

    @property
    def topic(self) -> str:
        """The topic that the request names; empty if it names none."""
        named = getattr(self.request, "topic", "")
        named = getattr(named, "name", named)  # a message in RocketMQ's protocol
        if isinstance(named, str) and named:
            return named
        for message in getattr(self.request, "messages", ())[:1]:  # all messages of a SendMessage are of one topic
            if sent_to := getattr(getattr(message, "topic", ""), "name", ""):
                return str(sent_to)
        queue = getattr(self.request, "queue", None) or getattr(self.request, "message_queue", None)
        topic = getattr(queue, "topic", "")
        return str(getattr(topic, "name", topic))

    @property
    def size_bytes(self) -> int:
        """The size of the request."""
        return self.bulk_bytes + (int(self.request.ByteSize()) if self.request is not None else 0)


class Interceptor(Protocol):
    """An observer of calls, which may refuse them.

    After a `before` that raised no error, exactly one of `after` and `on_error` is called.
    """

    async def before(self, call: InterceptedCall) -> None:
        """Called when a call begins. An OrtooError that is raised here refuses the call."""

    async def after(self, call: InterceptedCall) -> None:
        """Called when a call has succeeded."""

    async def on_error(self, call: InterceptedCall, error: BaseException) -> None:
        """Called when a call has failed, or the client has cancelled it."""


class InterceptorChain:
    """Several interceptors, which are called in order."""

    def __init__(self, interceptors: Sequence[Interceptor]) -> None:
        """Keep the interceptors, in the order in which they are called."""
        self._interceptors = tuple(interceptors)

    async def before(self, call: InterceptedCall) -> None:
        """Call `before` of each interceptor. If one refuses the call, `on_error` of those before it is called."""
        for number, one in enumerate(self._interceptors):
            try:
                await one.before(call)
            except BaseException as error:
                await self._notify_error(self._interceptors[:number], call, error)
                raise

    async def after(self, call: InterceptedCall) -> None:
        """Call `after` of each interceptor."""
        for one in self._interceptors:
            await one.after(call)

    async def on_error(self, call: InterceptedCall, error: BaseException) -> None:
        """Call `on_error` of each interceptor."""
        await self._notify_error(self._interceptors, call, error)

    async def _notify_error(
        self, interceptors: Sequence[Interceptor], call: InterceptedCall, error: BaseException
    ) -> None:
        for one in interceptors:
            await one.on_error(call, error)


def load_interceptors(names: str) -> list[Interceptor]:
    """Load interceptors from `names`: texts of the form `module:attribute`, separated by `;`.

    Each attribute is a function that returns an interceptor. Errors: Invalid, naming the setting.
    """
    loaded: list[Interceptor] = []
    for name in filter(None, map(str.strip, names.split(";"))):
        module, colon, attribute = name.partition(":")
        if not colon:
            raise Invalid(f"{name!r}; expected module:attribute", field="interceptors")
        try:
            loaded.append(getattr(importlib.import_module(module), attribute)())
        except (ImportError, AttributeError) as error:
            raise Invalid(f"{name!r} cannot be loaded: {error}", field="interceptors") from error
    return loaded
