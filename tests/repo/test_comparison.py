"""The comparison with other systems names a source for each of its statements."""

from collections.abc import Iterator
from pathlib import Path

from tests.repo.tree import Tree

PAGE = "docs/comparison.md"
SOURCED = ("Delivery", "Durability, operation and limits, with default settings")
"""The sections whose cells are statements about a system."""


def unsourced(tree: Tree, page: str = PAGE) -> Iterator[str]:
    """The cells behind the first column of these sections that have no link."""
    section = ""
    for number, line in enumerate(tree.lines(page), 1):
        if line.startswith("## "):
            section = line.removeprefix("## ")
        if section not in SOURCED or not line.startswith("|") or line.startswith("|---"):
            continue
        first, *cells = (cell.strip() for cell in line.strip("|").split(" | "))
        if not first or first == "system":
            continue
        yield from (f"{page}:{number}: {cell}" for cell in cells if "](" not in cell)


def test_each_cell_has_a_source(tree: Tree) -> None:
    """A statement about Ortoo links to a page of this repository, one about another system to its documents."""
    assert list(unsourced(tree)) == []


def test_a_cell_without_a_source_is_found(tmp_path: Path) -> None:
    """The rule fires for a cell that only claims something."""
    text = "## Delivery\n\n| | Ortoo | Kafka |\n|---|---|---|\n| retries | [yes](a.md) | none |\n"
    assert list(unsourced(Tree.planted(tmp_path, {PAGE: text}))) == [f"{PAGE}:5: none"]
