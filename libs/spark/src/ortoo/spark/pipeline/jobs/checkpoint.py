"""Reading Spark's checkpoint of the archive's query: where it started, and what it has committed."""

import json
from pathlib import Path

from ortoo.spark.core.offsets import Offsets
from ortoo.spark.lake.table import NOTES, Lake


def committed_offsets(checkpoint: Path) -> Offsets | None:
    """The end of the newest committed batch; None before the first."""
    committed = _numbers(checkpoint / "commits")
    planned = _numbers(checkpoint / "offsets")
    known = [number for number in committed if number in planned]
    return _offsets(checkpoint, max(known)) if known else None


def remember_start(lake: Lake, checkpoint: Path) -> Offsets | None:
    """Where the query started, noted in the lake at the first call, because Spark forgets old batches."""
    note = lake.folder / NOTES / "start.json"
    if note.exists():
        return Offsets.of_json(json.loads(note.read_text()))
    planned = _numbers(checkpoint / "offsets")
    if 0 not in planned:
        return None
    start = _offsets(checkpoint, 0)
    waiting = note.with_suffix(".new")
    waiting.write_text(json.dumps(start.to_json()))
    waiting.replace(note)
    return start


def _numbers(folder: Path) -> set[int]:
    return {int(file.name) for file in folder.glob("*") if file.name.isdigit()}


def _offsets(checkpoint: Path, number: int) -> Offsets:
    """The file has a version, a line about the batch, and one line of JSON for each source; we have one."""
    lines = (checkpoint / "offsets" / str(number)).read_text().splitlines()
    return Offsets.of_json(json.loads(lines[2]))
