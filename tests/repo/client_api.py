"""The public names of `ortoo.client`, as text: `make docs` writes two pages of docs, and a test compares them."""

import enum
import inspect
import re
import sys
from collections.abc import AsyncIterator, Iterator
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import get_type_hints, is_typeddict

import ortoo.client
import ortoo.client.blocking
from ortoo.client.admin.topics import TopicCalls
from ortoo.client.core.closed import Openable
from ortoo.client.produce.transactions import TransactionChecker
from ortoo.common.records.message_fields import ColumnFields

HEAD = """# Client API

For application developers: the public names of the Python client, with their methods and arguments.

An application may rely on the names in `ortoo.client.__all__`, and on no others. The names for programs without an
event loop are those of the [blocking client](blocking-client-api.md).
A change of this list is a deliberate change of the API. `make docs` generates this page.

```python
"""
BLOCKING = """# Blocking client API

For application developers: the public names of `ortoo.client.blocking`, the client for programs without an event loop.

Other types in their signatures come from `ortoo.client` ([client API](client-api.md)). `make docs` generates this page.

```python
"""


PARTS = (ColumnFields, Openable, TopicCalls)
"""Base classes without a public name; their members belong to the class that inherits them."""


def api_of(module: ModuleType, head: str = HEAD) -> str:
    """The page for a module with `__all__`: each public name, and one line for each of its public members."""
    return head + _names_of(module)


def pages() -> dict[str, str]:
    """The pages by their file names: the client, and the blocking client for programs without an event loop."""
    return {
        "client-api.md": api_of(ortoo.client),
        "blocking-client-api.md": api_of(ortoo.client.blocking, BLOCKING),
    }


_NAMES = {name: getattr(ortoo.client, name) for name in ortoo.client.__all__} | {
    "AsyncIterator": AsyncIterator,
    "TransactionChecker": TransactionChecker,
}
"""The names in the annotations that are evaluated only here, because their modules are imported at the first use."""


def _names_of(module: ModuleType) -> str:
    lines = [line for name in sorted(module.__all__) for line in _described(name, getattr(module, name))]
    return "\n".join(lines) + "\n```\n"


def _described(name: str, value: object) -> Iterator[str]:
    if is_typeddict(value):
        yield f"class {name}(TypedDict)"
        yield from (f"    {field}: {kind}" for field, kind in get_type_hints(value).items())
    elif inspect.isclass(value):
        bases = ", ".join(base.__name__ for base in value.__bases__ if base not in (object, *PARTS))
        yield f"class {name}({bases})" if bases else f"class {name}"
        if issubclass(value, enum.Enum):
            yield "    " + ", ".join(f"{member.name} = {member.value!r}" for member in value)
            return
        if not issubclass(value, BaseException):
            yield f"    {_signature('__init__', value)}"
        parts = [vars(part) for part in PARTS if issubclass(value, part)]
        members = {name: member for part in (*parts, vars(value)) for name, member in part.items()}
        for member_name in sorted(members.keys() - {"rare"}):
            if not member_name.startswith("_"):
                yield from _member(member_name, inspect.getattr_static(value, member_name))
    elif inspect.isroutine(value):
        yield _signature(name, value)
    else:
        yield f"{name}: {type(value).__name__}"


def _member(name: str, value: object) -> Iterator[str]:
    if isinstance(value, property | cached_property):
        yield f"    {name}: property"
    elif isinstance(value, classmethod | staticmethod):
        yield f"    {type(value).__name__} {_signature(name, value.__func__)}"
    elif inspect.isroutine(value):
        yield f"    {_signature(name, value)}"


def _signature(name: str, value: object) -> str:
    kind = "async def" if inspect.iscoroutinefunction(value) else "def"
    try:
        text = str(inspect.signature(value, locals=_NAMES, eval_str=True)) if callable(value) else "()"
    except ValueError:
        text = "(...)"
    text = re.sub(r"\b(?:ortoo|collections\.abc)(?:\.[a-z_0-9]+)*\.(?=[A-Z])", "", text)
    # The text of Unpack differs between versions of Python.
    return f"{kind} {name}" + re.sub(r"\*<class '(\w+)'>|typing\.Unpack\[(\w+)\]", r"Unpack[\1\2]", text)


if __name__ == "__main__":
    for name, text in pages().items():
        (Path(sys.argv[1]) / name).write_text(text, encoding="utf-8")
