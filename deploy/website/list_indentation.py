"""Lists as GitHub reads them: text below a list item is indented as far as the item's own text.

Python-Markdown expects four spaces a level instead.
"""

import re

ITEM = re.compile(r" *(?:[*+-]|\d+[.)]) +(?=\S)")
FENCE = re.compile(r" *(`{3,}|~{3,})")
SPACES = 4


def widened(markdown: str) -> str:
    """The same text with four spaces for each list level."""
    lines: list[str] = []
    texts: list[int] = []  # where the text of each enclosing item begins
    fence = ""
    for line in markdown.split("\n"):
        indent = len(line) - len(line.lstrip(" "))
        if line.strip() and not fence:
            while texts and indent < texts[-1]:
                texts.pop()
        inside = texts[-1] if texts else 0
        lines.append(" " * SPACES * len(texts) + line[min(inside, indent) :] if line.strip() else "")
        if opened := FENCE.match(line):
            if not fence:
                fence = opened[1]
            elif line.strip() == fence:
                fence = ""
        elif not fence and indent - inside < SPACES and (item := ITEM.match(line)):
            texts.append(item.end())
    return "\n".join(lines)
