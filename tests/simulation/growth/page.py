"""The table of allowed exponents for docs/testing/growth.md.

python -m tests.simulation.growth.page
"""

from bench.table import ROOT, page_with
from tests.simulation.growth.axes import AXES
from tests.simulation.growth.costs import GROWTH, TABLE

PAGE = ROOT / "docs/testing/growth.md"


def content() -> str:
    """The axes, and the table."""
    numbers = "\n".join(f"| {name} | {axis.few:,} | {GROWTH * axis.few:,} |" for name, axis in AXES.items())
    rows = [
        f"| {'any' if row.axis == '*' else row.axis} | {'any' if row.step == '*' else row.step.replace('*', '…')} | "
        f"{'any' if row.measure == '*' else row.measure.replace('*', '…')} | "
        f"{'nothing' if row.exponent < 0 else f'{row.exponent:g}'} | {row.why} |"
        for row in TABLE
    ]
    head = "| axis | step | measure | exponent | reason |\n|---|---|---|---|---|\n"
    return f"| axis | N | 4 N |\n|---|---|---|\n{numbers}\n\n{head}" + "\n".join(rows) + "\n"


def page(text: str) -> str:
    """The page `text` with the table between its marks."""
    return page_with(text, content(), "growth")


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
