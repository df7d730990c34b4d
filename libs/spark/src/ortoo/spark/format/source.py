"""The class of the data source `ortoo`. All options are checked here, before any task runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql.datasource import DataSource

from ortoo.common.errors import Unsupported
from ortoo.spark.core import columns
from ortoo.spark.core.read_options import ReadOptions, parse


class OrtooDataSource(DataSource):
    """Topics as tables and streams: `spark.read.format("ortoo")`, and `readStream`, `write`, `writeStream`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "ortoo"

    def schema(self) -> str:
        """The columns of a read, in Spark's DDL."""
        options = self._read_options(streaming=False, for_schema=True)
        if options.view != "messages":
            from ortoo.spark.format import views

            return views.DDL[options.view]
        return columns.ddl(options.columns)

    def reader(self, schema: Any) -> Any:
        """The plan of a batch read."""
        from ortoo.spark.reading.batch_read import BatchReader

        options = self._read_options(streaming=False)
        if options.view != "messages":
            from ortoo.spark.format import views

            return views.ViewReader(options, schema)
        return BatchReader(options, schema)

    def streamReader(self, schema: Any) -> Any:  # noqa: N802 - Spark's name
        """The source of a streaming query."""
        with _since("4.2", "streams are read"):  # admission control, AvailableNow
            from ortoo.spark.reading.stream_read import StreamReader

        return StreamReader(self._read_options(streaming=True), schema)

    def writer(self, schema: Any, overwrite: bool) -> Any:
        """The sink of a batch write."""
        from ortoo.spark.writing.batch_write import BatchWriter

        return BatchWriter(self._options(), schema, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
        """The sink of a streaming query."""
        with _since("4.1", "streams are written"):  # sinks that take Arrow
            from ortoo.spark.writing.stream_write import StreamWriter

        return StreamWriter(self._options(), schema, overwrite)

    def _read_options(self, *, streaming: bool, for_schema: bool = False) -> ReadOptions:
        options = self._options()
        if for_schema:  # may be a stream, whose reader refuses the option
            options.pop("endingoffsets", None)
        return parse(options, streaming=streaming, for_schema=for_schema)

    def _options(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.options.items()}


@contextmanager
def _since(version: str, what: str) -> Iterator[None]:
    """Convert the ImportError of an older Spark into an error with the required version."""
    try:
        yield
    except ImportError as error:
        raise Unsupported(
            f"{what} with Spark {version} or newer; the installed Spark does not support it ({error})"
        ) from error
