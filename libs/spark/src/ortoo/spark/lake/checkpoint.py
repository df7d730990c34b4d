"""Reads the checkpoint of an archive's query: its id, and the offsets of its batches."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from ortoo.spark.core.offsets import SourceOffsets


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The folder in which Spark keeps the state of one streaming query."""

    folder: Path

    @property
    def query_id(self) -> str:
        """The id of the query; empty before its first start."""
        file = self.folder / "metadata"
        return str(json.loads(file.read_text())["id"]) if file.exists() and file.read_text().strip() else ""

    def planned(self, batch_id: int) -> SourceOffsets:
        """The end offsets of a planned batch.

        The file has a version, a line about the batch, and one line of JSON for each source; we have one source.
        """
        return replace(self._entry(batch_id), start=None)

    def before(self, batch_id: int) -> SourceOffsets:
        """The start offsets of a planned batch; none for a first batch that is empty."""
        if batch_id - 1 in self._batch_ids("offsets"):
            return self.planned(batch_id - 1)
        return self._entry(batch_id).start or SourceOffsets()

    def oldest_known(self) -> SourceOffsets | None:
        """The oldest offsets that Spark has kept: the start, until Spark deletes it. None before the first batch."""
        planned = self._batch_ids("offsets")
        return self._entry(min(planned)).start or self.planned(min(planned)) if planned else None

    def start(self) -> SourceOffsets | None:
        """The start of the query; None before its first batch, and after Spark has deleted it."""
        return self.oldest_known() if 0 in self._batch_ids("offsets") else None

    def committed(self) -> SourceOffsets | None:
        """The end of the newest committed batch; None before the first."""
        known = self._batch_ids("commits") & self._batch_ids("offsets")
        return self.planned(max(known)) if known else None

    def newest_done(self, batch_id: int) -> SourceOffsets | None:
        """The end of the newest batch that Spark has committed; `batch_id` counts as committed."""
        planned = self._batch_ids("offsets")
        known = (self._batch_ids("commits") | {batch_id}) & planned
        return self.planned(max(known)) if known else None

    def _entry(self, batch_id: int) -> SourceOffsets:
        return SourceOffsets.of_json(json.loads((self.folder / "offsets" / str(batch_id)).read_text().splitlines()[2]))

    def _batch_ids(self, kind: str) -> set[int]:
        return {int(file.name) for file in (self.folder / kind).glob("*") if file.name.isdecimal()}
