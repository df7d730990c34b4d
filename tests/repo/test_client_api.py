"""The names that an application may rely on change only on purpose."""

import re
import types
from enum import Enum

import ortoo.client
from tests.repo.client_api import api_of, page
from tests.repo.tree import ROOT


def test_the_clients_public_names_are_frozen() -> None:
    """docs/client-api.md is the output of `make docs` from `__all__`, for the blocking client and Admin too."""
    written = (ROOT / "docs/client-api.md").read_text(encoding="utf-8")
    assert written == page()
    first, second = written.split("## Without an event loop")
    for part in (first, second):
        assert re.search(r"class (?:Blocking)?Admin\b", part)


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
