"""Report pages: HTML with tables and a plot, and the plot as a separate picture."""

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_STYLE = (
    "body{font:15px system-ui,sans-serif;margin:2em auto;max-width:60em;color:#222}"
    "table{border-collapse:collapse;margin:1em 0}td,th{padding:.3em .8em;border-bottom:1px solid #ddd;text-align:right}"
    "td:first-child,th:first-child{text-align:left}img{max-width:100%}.note{color:#666}"
)


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table in a report: its heading, the names of its columns, and its rows."""

    heading: str
    names: Sequence[str]
    rows: Sequence[Sequence[object]]


def write_page(folder: Path, name: str, title: str, note: str, tables: Sequence[ReportTable], figure: Any) -> Path:
    """Write `name`.html and, from a matplotlib figure, `name`.png; returns the path of the page."""
    picture = folder / f"{name}.png"
    figure.savefig(picture, dpi=110, bbox_inches="tight")
    encoded = base64.b64encode(picture.read_bytes()).decode()
    parts = [f"<h1>{html.escape(title)}</h1>", f'<p class="note">{html.escape(note)}</p>']
    parts.append(f'<img alt="{html.escape(title)}" src="data:image/png;base64,{encoded}">')
    for table in tables:
        parts.append(f"<h2>{html.escape(table.heading)}</h2><table><tr>")
        parts += [f"<th>{html.escape(each)}</th>" for each in table.names]
        parts.append("</tr>")
        for row in table.rows:
            parts.append("<tr>" + "".join(f"<td>{html.escape(cell_text(cell))}</td>" for cell in row) + "</tr>")
        parts.append("</table>")
    page = folder / f"{name}.html"
    page.write_text(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style><body>{''.join(parts)}</body></html>\n"
    )
    return page


def cell_text(cell: object) -> str:
    """The text of a cell, with thousands separators in numbers."""
    if cell is None:
        return "–"
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        return str(cell)
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:,.1f}"


def text_table(table: ReportTable) -> list[str]:
    """The lines of a table for a terminal."""
    rows = [list(table.names), *[[cell_text(cell) for cell in row] for row in table.rows]]
    widths = [max(len(row[at]) for row in rows) for at in range(len(table.names))]
    return [
        "  ".join(
            cell.ljust(width) if not at else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def new_figure() -> Any:
    """A matplotlib figure that needs no display."""
    from matplotlib.figure import Figure

    return Figure(figsize=(9.0, 4.5))
