"""The table of features: read from its page, and the tests that cite each row.

python -m tests.repo.features docs/features.md      # fills in the last column
"""

import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.repo.tree import ROOT

PAGE = "docs/features.md"
ROW = re.compile(r"^\| (E-\d{3}) \| (.*?) \| (\w+) \| (.*?) \|$", re.M)
CITED = re.compile(r"\bE-\d{3}\b")
STATES = ("yes", "otherwise", "partly", "no")
RANGES = (
    (1, 13),
    (20, 29),
    (40, 60),
    (70, 88),
    (100, 115),
    (120, 133),
    (140, 157),
    (170, 176),
    (190, 197),
    (210, 225),
    (240, 253),
)
NAMED_MAX = 3
"""The number of tests that a row names; the first ones by file."""


@dataclass(frozen=True, slots=True)
class Feature:
    """One row: the feature, its state, and the tests or the remark in its last column."""

    row: str
    feature: str
    state: str
    last: str

    @property
    def tests(self) -> list[str]:
        """The tests that are named, `file::name`."""
        return re.findall(r"`(tests/[\w/]+\.py::\w+)`", self.last)


def rows_wanted() -> list[str]:
    """The ids that the page must have, in order."""
    return [f"E-{number:03}" for first, last in RANGES for number in range(first, last + 1)]


def features(text: str) -> list[Feature]:
    """The rows of the page."""
    return [Feature(*match.groups()) for match in ROW.finditer(text)]


def citing() -> dict[str, list[str]]:
    """Row to the tests whose docstring cites it, `file::name`, by file."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                for row in set(CITED.findall(ast.get_docstring(node) or "")):
                    found.setdefault(row, []).append(f"{path.relative_to(ROOT)}::{node.name}")
    return found


def filled(text: str) -> str:
    """The page with the tests that cite each row; remarks before them stay."""
    tests = citing()

    def line(match: re.Match[str]) -> str:
        row, feature, state, last = match.groups()
        remark = re.sub(r"`tests/[^`]*`(, )?", "", last).strip()
        named = ", ".join(f"`{one}`" for one in tests.get(row, [])[:NAMED_MAX])
        return f"| {row} | {feature} | {state} | {' '.join(filter(None, (remark, named))) or '-'} |"

    return ROW.sub(line, text)


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(filled(page.read_text()))
