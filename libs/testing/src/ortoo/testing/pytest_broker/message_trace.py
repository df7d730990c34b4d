"""The last packets between the test and the broker, for the report of a failed test."""

import io
import re
from collections import deque

LINES_MAX = 40
TEST = "test"
"""The machine that the test and its clients run on."""
_LINE = re.compile(r"(?P<at>[\d.]+) (?P<way>\S+) (?P<what>.*)\n")


class MessageTrace(io.TextIOBase):
    """A trace file that keeps the last lines that concern the test, and every fault."""

    def __init__(self) -> None:
        """Start empty."""
        self.lines_of_test = 0
        """The number of packets from or to the test."""
        self._lines: deque[str] = deque(maxlen=LINES_MAX)

    def write(self, line: str) -> int:
        """Keep a line of the trace, unless it is between two roles."""
        if f" {TEST}>" in line or f">{TEST} " in line:
            self.lines_of_test += 1
            self._lines.append(line)
        elif " machine " in line or " fault " in line:
            self._lines.append(line)
        return len(line)

    def format(self) -> str:
        """The lines as text."""
        return "\n".join(map(_format_line, self._lines)) or "(nothing was said)"


def _format_line(line: str) -> str:
    found = _LINE.match(line)
    if found is None:
        return line.strip()
    words = found["what"].split()
    if ">" not in found["way"]:
        return f"{float(found['at']):12.3f} s  {found['way']} {' '.join(words)}"
    source, _, target = found["way"].partition(">")
    said = [f"{words[1]} bytes" if len(words) > 2 and words[1].isdecimal() else "", *words[3:]]
    if len(words) > 1 and not words[1].isdecimal():
        said = words[1:]
    return f"{float(found['at']):12.3f} s  {source:>8} > {target:<8} {words[0]} {' '.join(filter(None, said))}".rstrip()
