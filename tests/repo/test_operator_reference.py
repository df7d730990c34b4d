"""The reference pages of commands, errors and metrics match the code."""

import pytest

from tests.repo.operator_reference import PAGES, steps
from tests.repo.tree import ROOT


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_up_to_date(name: str) -> None:
    """The page in docs/reference is the output of `make docs`."""
    assert (ROOT / "docs/reference" / name).read_text(encoding="utf-8") == PAGES[name]()


def test_the_docstring_of_errors_names_each_kind() -> None:
    """The next step of each kind is known, that of the base class aside."""
    assert {"OrtooError", "Invalid", "Unavailable", "Internal"} <= steps().keys()
