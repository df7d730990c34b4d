"""One line for each batch of a running query."""

import json
from collections.abc import Callable
from typing import Any

from ortoo.spark.core.offsets import SourceOffsets

Say = Callable[[str], None]


class ProgressLines:
    """Prints the progress of a query; each call prints the batches since the previous call."""

    def __init__(self, say: Say) -> None:
        """`say` gets the lines."""
        self._say = say
        self._last_batch_id = -1

    def print_new(self, query: Any) -> None:
        """Print a line for each new batch that had rows."""
        for progress in query.recentProgress:
            if progress.batchId > self._last_batch_id:
                self._last_batch_id = progress.batchId
                if progress.numInputRows:
                    self._say(line(progress))


def line(progress: Any) -> str:
    """A line of text about one batch of a query: its rows, speed and duration, and the query's lag."""
    source = progress.sources[0]
    speed = progress.processedRowsPerSecond or 0.0
    return (
        f"batch {progress.batchId}: {progress.numInputRows:,} rows, {speed:,.0f} rows/s, "
        f"{progress.durationMs.get('triggerExecution', 0):,} ms, lag {lag_of(source.latestOffset, source.endOffset):,}"
    )


def lag_of(latest: Any, end: Any) -> int:
    """The number of messages between the offsets `end` and the offsets `latest`, both as Spark reports them."""
    newest, reached = _read(latest), _read(end)
    return sum(max(offset - reached.queues.get(queue, 0), 0) for queue, offset in newest.queues.items())


def _read(value: Any) -> SourceOffsets:
    parsed = json.loads(value) if isinstance(value, str) else value
    return SourceOffsets.of_json(parsed) if parsed else SourceOffsets()
