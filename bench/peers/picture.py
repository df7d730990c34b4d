"""The ratios as a picture: one bar a row, to the right where Ortoo is ahead, to the left where the other is."""

from pathlib import Path

from bench.peers.table import Compared

AHEAD, BEHIND = "#2a7f62", "#b5483a"
ROW_HEIGHT, WIDTH = 0.27, 10.0
"""In inches."""
RATIO_MIN, RATIO_MAX = 1 / 16, 16.0
"""Ratios outside this range are drawn at the edge; the label has the true ratio."""


def draw(rows: list[Compared], path: Path) -> None:
    """Write the picture of all rows as SVG, the same bytes for the same rows."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.transforms import blended_transform_factory

    lines = _lines(rows)
    with mpl.rc_context({"svg.hashsalt": "ortoo", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(WIDTH, ROW_HEIGHT * len(lines) + 0.9), layout="constrained")
        axes = figure.subplots()
        axes.set_xscale("log", base=2)
        axes.set_xlim(RATIO_MIN, RATIO_MAX)
        axes.set_ylim(len(lines) - 0.4, -0.6)
        axes.axvline(1, color="black", linewidth=0.8)
        left = blended_transform_factory(figure.transFigure, axes.transData)
        labels = []
        for at, line in enumerate(lines):
            if isinstance(line, str):
                heading = axes.text(0.01, at, line, transform=left, va="center", weight="bold")
                heading.set_in_layout(False)
                labels.append("")
                continue
            end = min(max(line.ratio, RATIO_MIN), RATIO_MAX)
            axes.barh(at, end - 1, left=1, height=0.62, color=AHEAD if line.ratio >= 1 else BEHIND)
            ahead = end >= 1
            axes.annotate(
                f"{line.ratio:.2f}", (end, at), xytext=(3 if ahead else -3, 0), textcoords="offset points",
                ha="left" if ahead else "right", va="center", size=8, annotation_clip=False,
            )  # fmt: skip
            labels.append(line.what.replace("`", ""))
        axes.set_yticks(range(len(lines)), labels)
        ticks = [1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16]
        axes.set_xticks(ticks, ["1/16", "1/8", "1/4", "1/2", "1", "2", "4", "8", "16"])
        axes.tick_params(axis="y", length=0)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.set_xlabel("how many times as good as the other (left of 1 the other is ahead)")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", metadata={"Date": None})


def _lines(rows: list[Compared]) -> list[Compared | str]:
    """The rows with the heading of each section before its first."""
    lines: list[Compared | str] = []
    section = ""
    for row in rows:
        if row.section != section:
            section = row.section
            lines.append(section)
        lines.append(row)
    return lines
