"""Dependencies of handlers: made once, when the program starts, and found by type."""

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NoReturn, get_args, get_origin, get_type_hints

from ortoo.common.errors import Invalid

Provider = Callable[..., Any]


class Providers:
    """Functions that make dependencies, by the type that they return.

    A provider may depend on other providers. When the program ends, providers that yield are resumed in reverse order.
    """

    def __init__(self) -> None:
        self._providers: dict[Any, Provider] = {}

    def add(self, provider: Provider) -> None:
        """Add a provider. Errors: Invalid without a return type, or when another provider makes the same type."""
        made = _provided_type(provider)
        if made in self._providers:
            raise Invalid(f"{_name(made)} is provided twice: {_name(provider)} is the second", field="provide")
        self._providers[made] = provider

    def set_value(self, value: object, kind: Any) -> None:
        """In tests: use an existing value for the type `kind` instead of calling a provider."""
        self._providers[kind] = lambda: value

    async def make(self, stack: AsyncExitStack) -> dict[Any, Any]:
        """Make all dependencies; returns them by type. Leaving `stack` closes them.

        Errors: Invalid if a dependency cannot be made.
        """
        provided: dict[Any, Any] = {}
        in_progress: list[Any] = []

        async def make_one(kind: Any, required_by: object) -> Any:
            if kind in provided:
                return provided[kind]
            if kind in in_progress or kind not in self._providers:
                reason = "which depends on itself" if kind in in_progress else "which has no provider"
                raise Invalid(f"{_name(required_by)} depends on {_name(kind)}, {reason}", field="provide")
            in_progress.append(kind)
            provider = self._providers[kind]
            dependencies = {name: await make_one(one, provider) for name, one in parameters_of(provider).items()}
            provided[kind] = await _call_provider(provider, dependencies, stack)
            in_progress.pop()
            return provided[kind]

        for kind in self._providers:
            await make_one(kind, self)
        return provided


def parameters_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The parameters of a function and their types. Errors: Invalid for a parameter without annotation."""
    hints = get_type_hints(function)
    names = list(inspect.signature(function).parameters)
    if untyped := [name for name in names if name not in hints]:
        raise Invalid(f"{_name(function)} has no annotation for {untyped[0]!r}; add its type", field=untyped[0])
    return {name: hints[name] for name in names}


def result_of(function: Callable[..., Any]) -> Any:
    """The annotated type of a function's result; None if it has no annotation or returns None."""
    annotated = get_type_hints(function).get("return")
    return None if annotated in (None, type(None), Any, NoReturn) else annotated


def _provided_type(provider: Provider) -> Any:
    provided = get_type_hints(provider).get("return")
    if provided is None:
        raise Invalid(f"{_name(provider)} has no return annotation; add the type that it provides", field="provide")
    if get_origin(provided) in (AsyncIterator, AsyncGenerator):
        return get_args(provided)[0]
    return provided


async def _call_provider(provider: Provider, dependencies: dict[str, Any], stack: AsyncExitStack) -> Any:
    if inspect.isasyncgenfunction(provider):
        return await stack.enter_async_context(asynccontextmanager(provider)(**dependencies))
    made = provider(**dependencies)
    return await made if inspect.isawaitable(made) else made


def _name(thing: Any) -> str:
    return getattr(thing, "__qualname__", None) or repr(thing)
