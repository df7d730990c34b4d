"""Log events have stable names, each is used, and their page is the code's own."""

import re

import pytest

from tests.repo.log_events_page import CATALOGS, events_of, page
from tests.repo.tree import ROOT, Tree


def test_page_of_log_events_is_up_to_date() -> None:
    """docs/operations/log-events.md is what `make docs` writes."""
    assert (ROOT / "docs/operations/log-events.md").read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("title", CATALOGS)
def test_events_have_names_in_snake_case_and_complete_sentences(title: str) -> None:
    """A constant bears the name of its event; meaning and action are sentences."""
    for constant, event in events_of(CATALOGS[title]).items():
        assert event.name == constant.lower()
        assert re.fullmatch(r"[a-z]+(_[a-z0-9]+)+", event.name), event.name
        assert event.meaning.endswith("."), event.name
        assert event.action.endswith("."), event.name


@pytest.mark.parametrize("title", CATALOGS)
def test_each_event_is_emitted_somewhere(title: str, tree: Tree) -> None:
    """No event is on the page that no code writes."""
    catalog = CATALOGS[title]
    package = ".".join(catalog.__name__.split(".")[:2])
    sources = "".join(
        tree.text(name)
        for name in tree.names
        if name.endswith(".py") and f"src/{package.replace('.', '/')}/" in name and not name.endswith("log_events.py")
    )
    assert [name for name in events_of(catalog) if f"log_events.{name}" not in sources] == []
