"""Each sentence of some operator pages stands beside the tests that show it, or beside the reason why none does.

`tests/repo/claims/PAGE.txt` has blocks: lines with tests, and below them indented sentences or rows of tables. A line
`- KIND` instead of tests names what a sentence is if it claims no behaviour of the software. After a change of a page,
change its file: find or write the test of a new sentence.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.repo.prose import SENTENCE_END, texts
from tests.repo.tree import ROOT, Tree

CLAIMS = Path(__file__).parent / "claims"
PAGES = ROOT / "docs/operations"
GENERATED = "Made from the code by `make docs`."
KINDS = {
    "- advice": "an instruction for the reader",
    "- reason": "a reason",
    "- subject": "the subject of a page or section",
    "- limit": "something that is not promised",
    "- measured": "a figure of a run on one machine; the page names the program that repeats it",
    "- elsewhere": "about other software, or about the past",
}


@dataclass(frozen=True)
class Block:
    """Sentences of a page with their tests, or with their kind."""

    shown_by: tuple[str, ...]
    sentences: tuple[str, ...]


def blocks_of(text: str) -> Iterator[Block]:
    """The blocks of a file of claims."""
    for part in text.strip().split("\n\n"):
        lines = part.splitlines()
        shown_by = tuple(line for line in lines if line and not line.startswith(" "))
        yield Block(shown_by, tuple(line.strip() for line in lines if line.startswith(" ")))


def sentences_of(page: str) -> list[str]:
    """The sentences and the rows of tables of a page, without headers, and without the rows of a generated page.

    The rows of a generated page are compared with the code by the test that its claims name for `GENERATED`.
    """
    found: list[str] = []
    source = (PAGES / page).read_text()
    is_generated = GENERATED in source
    rows = source.splitlines()
    for one in texts(Tree(ROOT, [f"docs/operations/{page}"])):
        row = rows[one.line - 1]
        if row.startswith("|"):
            is_header = one.line < len(rows) and rows[one.line].startswith("|---")
            if not is_header and not is_generated and row not in found:
                found.append(row)
        elif one.kind != "heading":
            found += SENTENCE_END.split(one.text)
    return found


@cache
def functions_of(name: str) -> frozenset[str]:
    """The functions of a module."""
    path = ROOT / name
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text())
    return frozenset(one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))


def exists(reference: str) -> bool:
    """Whether a test, or a program for measurements and long runs, exists."""
    name, _, function = reference.partition("::")
    if "/test_" in name:
        return function in functions_of(name)
    return (ROOT / name).is_file()


def faults(page: str, text: str) -> Iterator[str]:
    """The mistakes in the claims of a page."""
    blocks = list(blocks_of(text))
    listed = [sentence for block in blocks for sentence in block.sentences]
    standing = sentences_of(page)
    yield from (f"without a test: {one}" for one in standing if one not in listed)
    yield from (f"not in the page: {one}" for one in listed if one not in standing)
    yield from (f"listed twice: {one}" for one in sorted(set(listed)) if listed.count(one) > 1)
    for block in blocks:
        if not block.shown_by or not block.sentences:
            yield f"half a block: {block}"
        yield from (f"no such test: {one}" for one in block.shown_by if one not in KINDS and not exists(one))


@pytest.mark.parametrize("file", sorted(CLAIMS.glob("*.txt")), ids=lambda file: file.stem)
def test_each_sentence_is_shown_by_tests_or_claims_nothing(file: Path) -> None:
    """A changed sentence needs a look at its tests, and a removed test leaves no claim behind."""
    assert list(faults(f"{file.stem}.md", file.read_text())) == []


def test_what_is_wrong_is_found() -> None:
    """The check can fail: an untested sentence, one that the page does not have, and a test that does not exist."""
    page = "slaves.md"
    first, *others = sentences_of(page)
    gone = "tests/repo/test_claims.py::test_gone"
    text = f"- subject\n    {first}\n    Not there.\n\n{gone}\n    {others[0]}\n    {first}\n"
    assert list(faults(page, text)) == [
        *(f"without a test: {one}" for one in others[1:]),
        "not in the page: Not there.",
        f"listed twice: {first}",
        f"no such test: {gone}",
    ]
