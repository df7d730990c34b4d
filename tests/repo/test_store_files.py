"""The page of a store's files and the tests of lost files are made from one table."""

from tests.repo.tree import ROOT
from tests.store_files import FILES, Harm, page


def test_the_page_of_files_is_up_to_date() -> None:
    """docs/formats/files.md equals the output of `make docs`."""
    assert (ROOT / "docs/formats/files.md").read_text(encoding="utf-8") == page()


def test_every_row_says_what_each_harm_does() -> None:
    """No cell is left out."""
    assert [one.name for one in FILES if set(one.alone) != set(Harm) or set(one.replicas) != set(Harm)] == []
