"""The list of architecture decisions, generated from the decisions: `make docs` writes it, a test compares it."""

import re
import sys
from pathlib import Path

HEAD = """# Architecture decisions

For contributors: the decisions about the architecture, with their reasons.

Each file has the context, the decision, the non-goals, the rejected alternatives and the consequences.
The content of a decision never changes. A newer decision replaces it and links to it. `make docs` generates this list.

| number | decision | status |
|---|---|---|
"""


class Malformed(Exception):
    """A decision's file lacks the form that the index needs."""


def index_of(folder: Path) -> str:
    """The text of README.md for a folder of decisions. Errors: Malformed, with the file and the missing part."""
    rows = []
    for number, file in enumerate(sorted(folder.glob("[0-9]*.md")), 1):
        text = file.read_text(encoding="utf-8")
        if not re.fullmatch(rf"{number:04d}-[a-z0-9-]+\.md", file.name):
            raise Malformed(f"{file.name}: expected a name like {number:04d}-a-slug.md, without gaps in the numbers")
        title = re.match(rf"# ADR {number}: (.+)\n", text)
        status = re.search(r"^Status: (.+)$", text, re.MULTILINE)
        if title is None or status is None:
            raise Malformed(f"{file.name}: expected a first line '# ADR {number}: TITLE' and a line 'Status: WORD'")
        for section in ("Context", "Decision", "Non-goals", "Rejected", "Consequences"):
            if f"\n## {section}\n" not in text:
                raise Malformed(f"{file.name}: expected a section '## {section}'")
        rows.append(f"| {number:04d} | [{title[1]}]({file.name}) | {status[1]} |\n")
    return HEAD + "".join(rows)


if __name__ == "__main__":
    decisions = Path(sys.argv[1])
    (decisions / "README.md").write_text(index_of(decisions), encoding="utf-8")
