"""The names that an application may rely on change only on purpose."""

import ast
import operator
import re
import subprocess
import sys
import types
from enum import Enum

import pytest

import ortoo.client
from ortoo.client.names.modules import MODULE_OF
from tests.repo.client_api import api_of, pages
from tests.repo.tree import ROOT


def test_the_clients_public_names_are_frozen() -> None:
    """The pages are the output of `make docs` from `__all__`, for the blocking client and Admin too."""
    for name, text in pages().items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == text
        assert re.search(r"class (?:Blocking)?Admin\b", text)


def test_type_checkers_and_the_interpreter_find_the_same_names() -> None:
    """The imports for type checkers, the modules of lazy imports and `__all__` agree."""
    text = (ROOT / "libs/client/src/ortoo/client/__init__.py").read_text(encoding="utf-8")
    (block,) = [node for node in ast.parse(text).body if isinstance(node, ast.If)]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    checked = {name.name: str(node.module) for node in imports for name in node.names}
    assert checked == MODULE_OF
    assert sorted(checked) == sorted(ortoo.client.__all__)
    assert set(ortoo.client.__all__) <= set(dir(ortoo.client))


def test_a_name_that_does_not_exist_is_an_error() -> None:
    """A wrong name is an AttributeError and an ImportError, as in every module."""
    with pytest.raises(AttributeError, match="has no attribute 'Producr'"):
        operator.attrgetter("Producr")(ortoo.client)
    with pytest.raises(ImportError, match="cannot import name 'Producr'"):
        exec("from ortoo.client import Producr")


LOADED_LATER = (
    "structlog",
    "rich",
    "google.protobuf.json_format",
    "importlib.metadata",
    "tomllib",
    "ortoo.client.pull",
)
FIRST_IMPORTS = """
import sys
from ortoo.client import Message, ProducerSettings, connect
print(*sys.modules)
"""


def test_a_first_producer_loads_only_its_part() -> None:
    """The names of a first program load neither other consumers nor slow libraries."""
    done = subprocess.run([sys.executable, "-c", FIRST_IMPORTS], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "ortoo.client.produce.producer" in loaded
    assert [name for name in LOADED_LATER if name in loaded] == []


def test_everything_public_says_what_it_is() -> None:
    """Each public class and function has a docstring of its own."""
    for name in ortoo.client.__all__:
        value = getattr(ortoo.client, name)
        if isinstance(value, type) or callable(value):
            assert (value.__doc__ or "").strip(), name


def test_a_changed_argument_changes_the_list() -> None:
    """A new name, a new method and a changed default each show in the page."""
    module = types.ModuleType("planted")

    class Thing:
        async def send(self, body: bytes, *, tag: str = "") -> int:
            return len(body) + len(tag)

        def _hidden(self) -> None: ...

    class Color(Enum):
        RED = 1

    module.__dict__.update(Thing=Thing, Color=Color, __all__=["Thing", "Color"])
    page = api_of(module)
    assert "class Thing\n" in page
    assert "    async def send(self, body: bytes, *, tag: str = '') -> int\n" in page
    assert "class Color(Enum)\n    RED = 1\n" in page
    assert "_hidden" not in page
