"""Compares the messages that were read with those in the lake, queue by queue."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from ortoo.client import Queue
from ortoo.spark.core.offsets import SourceOffsets
from ortoo.spark.lake.table import DATE, Lake


@dataclass(frozen=True, slots=True)
class QueueCount:
    """The counted rows of one queue in the lake."""

    rows: int
    distinct: int
    first: int


@dataclass(frozen=True, slots=True)
class QueueCheck:
    """The expected and actual rows of one queue, and their differences."""

    topic: str
    enode: str
    queue_id: int
    begin: int
    end: int
    rows: int
    duplicates: int
    missing: int

    @property
    def is_complete(self) -> bool:
        """Whether every message of the queue is in the lake exactly once."""
        return not self.duplicates and not self.missing


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The result of comparing a lake with the offsets that were read: one check for each queue."""

    checks: tuple[QueueCheck, ...]
    jobs: tuple[str, ...] = ()
    """The archives whose accounts were compared, by their ids."""

    @property
    def is_complete(self) -> bool:
        """Whether every message of every queue is in the lake exactly once."""
        return all(check.is_complete for check in self.checks)

    @property
    def rows(self) -> int:
        """Number of rows in the lake."""
        return sum(check.rows for check in self.checks)

    def write(self, file: Path) -> None:
        """Write the report as JSON."""
        queues = [asdict(check) for check in self.checks]
        report = {"right": self.is_complete, "rows": self.rows, "jobs": self.jobs, "queues": queues}
        file.write_text(json.dumps(report, indent=2) + "\n")

    def lines(self) -> Iterable[str]:
        """The report as text: one line when the lake is complete, otherwise one line for each differing queue."""
        incomplete = [check for check in self.checks if not check.is_complete]
        if not incomplete:
            yield f"reconciled: {self.rows:,} rows from {len(self.checks)} queues, each message once"
        for check in incomplete:
            yield (
                f"DIFFERENT: queue {check.queue_id} of {check.topic} on {check.enode}, offsets {check.begin} to "
                f"{check.end}: {check.missing:,} missing, {check.duplicates:,} duplicates"
            )


def reconcile(start: SourceOffsets, end: SourceOffsets, counted: Mapping[Queue, QueueCount]) -> Reconciliation:
    """Compare the offsets that a query has read with the counted rows of the lake; does no I/O."""
    checks = []
    for queue in sorted(set(end.queues) | set(counted)):
        count = counted.get(queue, QueueCount(0, 0, 0))
        stop = end.queues.get(queue, 0)
        begin = start.queues.get(queue, count.first if count.rows else stop)
        missing = max(stop - begin - count.distinct, 0)
        checks.append(
            QueueCheck(
                queue.topic, queue.enode, queue.queue_id, begin, stop, count.rows, count.rows - count.distinct, missing
            )
        )
    return Reconciliation(tuple(checks))


def counts(frame: Any) -> dict[Queue, QueueCount]:
    """Count the rows of each queue in a frame of messages, by a Spark query."""
    rows = frame.sparkSession.sql(
        """
        select topic, enode, queue_id, count(*) as total, count(distinct offset) as different,
               min(offset) as smallest
        from {messages} group by topic, enode, queue_id
        """,
        messages=frame.select("topic", "enode", "queue_id", "offset"),
    ).collect()
    return {
        Queue(row.topic, row.enode, row.queue_id): QueueCount(row.total, row.different, row.smallest) for row in rows
    }


def counts_by_date(lake: Lake) -> dict[Queue, QueueCount]:
    """Count the rows of each queue in a Delta lake without Spark, which needs a package for each object store.

    All rows of a message have the same date. Dates are therefore counted one after another, and memory holds the
    offsets of one date only.
    """
    dataset, found = lake.table().to_pyarrow_dataset(), dict[Queue, QueueCount]()
    of_offset = [("offset", kind) for kind in ("count", "count_distinct", "min")]
    for date in sorted({Path(file).parent.name.removeprefix(f"{DATE}=") for file in lake.file_paths()}):
        rows = dataset.to_table(["topic", "enode", "queue_id", "offset"], filter=pc.field(DATE) == date)
        for row in rows.group_by(["topic", "enode", "queue_id"]).aggregate(of_offset).to_pylist():
            queue = Queue(row["topic"], row["enode"], row["queue_id"])
            one = QueueCount(*(row[f"offset_{kind}"] for _, kind in of_offset))
            before = found.get(queue, QueueCount(0, 0, one.first))
            found[queue] = QueueCount(
                before.rows + one.rows,
                before.distinct + one.distinct,
                min(before.first, one.first),
            )
    return found
