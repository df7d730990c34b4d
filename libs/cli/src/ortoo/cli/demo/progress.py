"""The demo's progress bar, and the lines above it."""

from collections.abc import Sequence
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class FlightProgress:
    """A bar for what was sent and one for what arrived; a context manager."""

    def __init__(self, flights: int) -> None:
        """Expect so many flights."""
        self._progress = Progress(
            TextColumn("{task.description:>10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        )
        self._sent = self._progress.add_task("sent", total=flights)
        self._delivered = self._progress.add_task("delivered", total=flights)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def sent(self, count: int) -> None:
        """So many were sent."""
        self._progress.update(self._sent, completed=count)

    def delivered(self, counts: Sequence[int]) -> None:
        """So many have arrived in each group; the bar shows the first, which gets everything."""
        self._progress.update(self._delivered, completed=counts[0])

    def say(self, line: str) -> None:
        """Print a line above the bars."""
        self._progress.console.print(line)
