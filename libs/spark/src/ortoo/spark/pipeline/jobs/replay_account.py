"""The account of a replay: the rows of the lake that its newest increment writes. It is stored in the lake.

A lake adds the rows of a queue in the order of their store times and offsets. An increment is therefore a range of
such positions for each queue. Its range is stored before its first message is written. So an interrupted job
writes the same rows when it is repeated, even if the lake has grown or was compacted. The next increment starts behind.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from ortoo.client import Queue
from ortoo.common.errors import Conflict, Invalid, Unsupported
from ortoo.spark.core.offsets import parsed_tree
from ortoo.spark.lake.table import Lake

PREFIX: Final = "replay-"
_FORMAT: Final = 1
_STARTED_AT: Final = ":started_at"

Position = tuple[int, int]
"""A row in the order of its queue: its store time in microseconds, and its offset."""
START: Final[Position] = (-(1 << 62), -1)
"""The position before every row."""


@dataclass(frozen=True, slots=True)
class Increment:
    """One increment of a replay: the rows behind `begin`, up to `end`, inclusive."""

    job_id: str
    topic: str
    topic_id: int
    where: str
    mark: str
    tasks: int
    columns: tuple[str, ...]
    """The columns of the lake when the increment started."""
    number: int
    started_at_ms: int
    begin: Mapping[Queue, Position]
    end: Mapping[Queue, Position]

    @property
    def condition(self) -> str:
        """The condition in SQL. `:started_at` is the time at which the increment started."""
        return self.where.replace(_STARTED_AT, f"timestamp_millis({self.started_at_ms})")

    def check_same_job(self, topic: str, where: str, mark: str) -> None:
        """Refuse another job under the same id. Errors: Invalid."""
        for name, stored, given in (
            ("topic", self.topic, topic), ("where", self.where, where), ("mark_property", self.mark, mark)
        ):  # fmt: skip
            if stored != given:
                raise Invalid(
                    f"the replay {self.job_id} was started with {stored!r}, not {given!r}; set the former value, or "
                    "another job_id for another replay",
                    field=f"replay.{name}",
                )

    def check_same_topic(self, topic_id: int) -> None:
        """Refuse a topic that was created again, because it lacks the earlier increments. Errors: Conflict."""
        if self.topic_id != topic_id:
            raise Conflict(
                f"the topic {self.topic} was created again after increment {self.number} of the replay {self.job_id}. "
                "It lacks earlier messages; set another job_id, which replays from the first row",
                field="replay.job_id",
            )

    def rows(self, lake_rows: Any) -> Any:
        """The rows of this increment as a Spark frame, with the columns that the lake had when it started."""
        from pyspark.sql import functions as sf

        bounds = [
            (queue.topic, queue.enode, queue.queue_id, *self.begin.get(queue, START), *last)
            for queue, last in sorted(self.end.items())
        ]
        names = "topic string, enode string, queue_id int, _after_us long, _after long, _last_us long, _last long"
        limits = sf.broadcast(lake_rows.sparkSession.createDataFrame(bounds, names))
        kept = lake_rows.join(limits, ["topic", "enode", "queue_id"]).where(
            "struct(unix_micros(stored_at), `offset`) > struct(_after_us, _after)"
            " and struct(unix_micros(stored_at), `offset`) <= struct(_last_us, _last)"
        )
        chosen = kept.select(*self.columns)
        return chosen.where(self.condition) if self.where else chosen

    def write(self, lake: Lake) -> None:
        """Store it in the lake, in place of the previous increment of the job."""
        lake.write_note(_note_name(self.job_id), json.dumps(self._to_json()))

    @classmethod
    def read(cls, lake: Lake, job_id: str) -> "Increment | None":
        """The newest increment of a job; None if it has none. Errors: Unsupported for a newer format."""
        text = lake.read_note(_note_name(job_id))
        if text is None:
            return None
        value = json.loads(text)
        if value.get("v") != _FORMAT:
            raise Unsupported(f"an account has format {value.get('v')!r}, expected {_FORMAT}; upgrade ortoo-spark")
        return cls(
            job_id, value["topic"], int(value["topic_id"], 16), value["where"], value["mark"], value["tasks"],
            tuple(value["columns"]), value["increment"], value["started_at_ms"], _positions(value["after"]),
            _positions(value["last"]),
        )  # fmt: skip

    def _to_json(self) -> dict[str, Any]:
        return {
            "v": _FORMAT, "topic": self.topic, "topic_id": f"{self.topic_id:016x}", "where": self.where,
            "mark": self.mark, "tasks": self.tasks, "columns": list(self.columns), "increment": self.number,
            "started_at_ms": self.started_at_ms, "after": _trees(self.begin), "last": _trees(self.end),
        }  # fmt: skip


def newest_positions(lake_rows: Any) -> dict[Queue, Position]:
    """The position of the last row of each queue in a frame of the lake."""
    from pyspark.sql import functions as sf

    newest = sf.max(sf.struct(sf.unix_micros("stored_at").alias("at"), "offset")).alias("newest")
    rows = lake_rows.groupBy("topic", "enode", "queue_id").agg(newest).collect()
    return {Queue(row.topic, row.enode, row.queue_id): (row.newest.at, row.newest.offset) for row in rows}


def _note_name(job_id: str) -> str:
    return PREFIX + quote(job_id, safe="")


def _trees(positions: Mapping[Queue, Position]) -> list[dict[str, Any]]:
    """Two trees of queues: the store times and the offsets."""
    trees: list[dict[str, Any]] = [{}, {}]
    for queue, position in sorted(positions.items()):
        for tree, number in zip(trees, position, strict=True):
            tree.setdefault(queue.topic, {}).setdefault(queue.enode, {})[str(queue.queue_id)] = number
    return trees


def _positions(trees: list[dict[str, Any]]) -> dict[Queue, Position]:
    times, offsets = (parsed_tree(tree, "the account of a replay") for tree in trees)
    return {queue: (time, offsets[queue]) for queue, time in times.items()}
