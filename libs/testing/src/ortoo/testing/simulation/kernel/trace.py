"""What happened, line by line: two runs of one seed are the same run if and only if their traces are equal."""

import hashlib
from typing import TextIO


class Trace:
    """A digest of every line, and the lines themselves where somebody wants to read them."""

    def __init__(self, file: TextIO | None = None) -> None:
        """Begin empty; lines go to `file` too."""
        self.lines = 0
        self._digest = hashlib.sha256()
        self._file = file

    def add(self, time_s: float, *what: object) -> None:
        """One thing happened at this time."""
        line = f"{time_s:.9f} {' '.join(map(str, what))}\n"
        self.lines += 1
        self._digest.update(line.encode())
        if self._file is not None:
            self._file.write(line)

    @property
    def digest(self) -> str:
        """The digest of everything so far, 64 hex digits."""
        return self._digest.hexdigest()
