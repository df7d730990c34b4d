"""Looks at connections and calls when something may be due by the clock. Many of them share a timer.

A timer of its own costs each of them several objects, and wakes the process for it alone.
"""

import asyncio
import math
from typing import Final, Protocol

from ortoo.common.process.containment import record_contained

LOOKS_PER_S: Final = 4
"""The number of times in a second at which connections are looked at."""
DEADLINES_PER_S: Final = 100
"""The number of times in a second at which the deadlines of calls pass."""
LOOK_AHEAD_MAX_S: Final = 60.0
"""The time to the next look at a later deadline. Callers choose any deadlines, and a look keeps its timer."""


class Looked(Protocol):
    """A connection or a call that is looked at."""

    def look(self) -> None:
        """Do what is due by the clock."""


class Looks:
    """The next looks at the connections or the calls of a server or a client."""

    def __init__(self, per_s: int = LOOKS_PER_S) -> None:
        """Look `per_s` times in a second."""
        self._per_s = per_s
        self._due: dict[int, dict[Looked, None]] = {}
        """By the number of the time, for which there is a timer."""
        self._passing: dict[Looked, None] = {}
        """Those whose time has come, until they are looked at."""

    def add(self, connection: Looked, due_s: float) -> int:
        """Look at a connection or call at a time of the event loop or a little later; returns a number for `remove`."""
        number = math.ceil(due_s * self._per_s)
        connections = self._due.get(number)
        if connections is None:
            connections = self._due[number] = {}
            loop = asyncio.get_running_loop()
            loop.call_later(number / self._per_s - loop.time(), self._look, number)
        connections[connection] = None
        return number

    def remove(self, connection: Looked, number: int) -> None:
        """Do not look at a connection or call at this time; no effect if the time has passed.

        A look at one of them may end others whose time has come as well.
        """
        self._due.get(number, {}).pop(connection, None)
        self._passing.pop(connection, None)

    def _look(self, number: int) -> None:
        self._passing = self._due.pop(number)
        while self._passing:
            connection = next(iter(self._passing))
            del self._passing[connection]
            try:
                connection.look()
            except Exception as error:  # the others are other peers'
                record_contained("h2 look", error)
