"""A streaming source that does no work. It imports no module of Ortoo, so that its cost is that of Spark itself."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition


class Plain(DataSource):
    """A stream that does no work, so that its cost is that of Spark itself for a Python source."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "bench-plain"

    def schema(self) -> str:
        """One column."""
        return "n long"

    def streamReader(self, schema: Any) -> Any:  # noqa: N802 - Spark's name
        """The plan."""
        return PlainReader(int(self.options["rows"]))


class PlainReader(DataSourceStreamReader):
    """One batch of `rows` numbers, in one task."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Before the batch."""
        return {"batch": 0}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:  # noqa: N802 - Spark's name
        """After the batch."""
        return {"batch": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[Any]:
        """One task."""
        return [InputPartition(self._rows)] if end["batch"] > start["batch"] else []

    def read(self, partition: Any) -> Iterator[Any]:
        """The numbers."""
        yield pa.RecordBatch.from_pydict({"n": pa.array(range(partition.value), pa.int64())})
