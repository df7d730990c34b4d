"""Functions of the application around its handlers and sends, which run at the `yield` of the function."""

import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from ortoo.client.pop.popped import PoppedMessage
from ortoo.common.errors import Invalid
from ortoo.common.records.message import Message

HandlerMiddleware = Callable[[Sequence[PoppedMessage]], AsyncIterator[None]]
SendMiddleware = Callable[[Message], AsyncIterator[Message]]


def entering(middleware: Callable[..., AsyncIterator[Any]]) -> Callable[..., AbstractAsyncContextManager[Any]]:
    """The context manager of a middleware. Errors: Invalid for a function that is not `async def` with a `yield`."""
    if not inspect.isasyncgenfunction(middleware):
        name = getattr(middleware, "__qualname__", repr(middleware))
        raise Invalid(f"{name} is no middleware; expected an `async def` function with one `yield`", field="middleware")
    return asynccontextmanager(middleware)
