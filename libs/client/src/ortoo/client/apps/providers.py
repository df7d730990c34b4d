"""What handlers need beside the message: made once, when the program starts, and found by its type."""

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, get_args, get_origin, get_type_hints

from ortoo.common.errors import Invalid

Provider = Callable[..., Any]


class Providers:
    """Functions that make what others ask for, by the type that they return.

    A provider may ask for what others make. One that yields goes on when the program ends, the last one first.
    """

    def __init__(self) -> None:
        self._providers: dict[Any, Provider] = {}

    def add(self, provider: Provider) -> None:
        """Take a function in. Errors: Invalid without a return type, or when another one makes the same."""
        made = _made_by(provider)
        if made in self._providers:
            raise Invalid(f"{_name(made)} is provided twice: {_name(provider)} is the second", field="provide")
        self._providers[made] = provider

    def put(self, value: object, kind: Any) -> None:
        """Provide what is there already, as a `kind`, instead of what would be made: for tests."""
        self._providers[kind] = lambda: value

    async def make(self, stack: AsyncExitStack) -> dict[Any, Any]:
        """Everything, by type; what has to be taken back is in `stack`. Errors: Invalid for what cannot be made."""
        made: dict[Any, Any] = {}
        under_way: list[Any] = []

        async def make_one(kind: Any, wanted_by: object) -> Any:
            if kind in made:
                return made[kind]
            if kind in under_way or kind not in self._providers:
                why = "which asks for itself in the end" if kind in under_way else "which nothing provides"
                raise Invalid(f"{_name(wanted_by)} asks for {_name(kind)}, {why}", field="provide")
            under_way.append(kind)
            provider = self._providers[kind]
            asked = {name: await make_one(one, provider) for name, one in parameters_of(provider).items()}
            made[kind] = await _called(provider, asked, stack)
            under_way.pop()
            return made[kind]

        for kind in self._providers:
            await make_one(kind, self)
        return made


def parameters_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The parameters of a function and their types. Errors: Invalid for one without a type."""
    hints = get_type_hints(function)
    names = list(inspect.signature(function).parameters)
    if untyped := [name for name in names if name not in hints]:
        raise Invalid(f"{_name(function)} does not say what {untyped[0]!r} is; annotate it", field=untyped[0])
    return {name: hints[name] for name in names}


def _made_by(provider: Provider) -> Any:
    made = get_type_hints(provider).get("return")
    if made is None:
        raise Invalid(f"{_name(provider)} does not say what it makes; annotate what it returns", field="provide")
    if get_origin(made) in (AsyncIterator, AsyncGenerator):
        return get_args(made)[0]
    return made


async def _called(provider: Provider, asked: dict[str, Any], stack: AsyncExitStack) -> Any:
    if inspect.isasyncgenfunction(provider):
        return await stack.enter_async_context(asynccontextmanager(provider)(**asked))
    made = provider(**asked)
    return await made if inspect.isawaitable(made) else made


def _name(thing: Any) -> str:
    return getattr(thing, "__qualname__", None) or repr(thing)
