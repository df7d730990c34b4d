"""The trace of events, line by line: two runs of one seed are equal if and only if their traces are equal."""

import hashlib
from typing import TextIO


class Trace:
    """A digest of every line, and the lines themselves if a file is given."""

    def __init__(self, file: TextIO | None = None) -> None:
        """Start empty; lines go to `file` too."""
        self.lines = 0
        self._digest = hashlib.sha256()
        self._file = file

    def add(self, time_s: float, *what: object) -> None:
        """Record an event at this time."""
        line = f"{time_s:.9f} {' '.join(map(str, what))}\n"
        self.lines += 1
        self._digest.update(line.encode())
        if self._file is not None:
            self._file.write(line)

    @property
    def digest(self) -> str:
        """The digest of everything so far, 64 hex digits."""
        return self._digest.hexdigest()
