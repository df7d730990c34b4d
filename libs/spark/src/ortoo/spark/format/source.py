"""The class of the data source `ortoo`. All options are checked here, before any task runs."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final

from pyspark.sql.datasource import DataSource

from ortoo.common.errors import Unsupported
from ortoo.spark.core import columns
from ortoo.spark.core.frozen_modules import freeze_modules
from ortoo.spark.core.read_options import ReadOptions, parse
from ortoo.spark.format import table_options

NO_OPTIONS: Final[Mapping[str, str]] = MappingProxyType({})


class OrtooDataSource(DataSource):
    """Topics as tables and streams: `spark.read.format("ortoo")`, and `readStream`, `write`, `writeStream`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "ortoo"

    def schema(self) -> Any:
        """The columns of a read, in Spark's DDL. For a table of a catalog, a schema that also has its options."""
        options = self._read_options(streaming=False, for_schema=True)
        if options.view != "messages":
            from ortoo.spark.format import views

            ddl = views.DDL[options.view]
        else:
            ddl = columns.ddl(options.columns)
        if not any(name.lower().startswith(table_options.PREFIX) for name in self.options):
            return ddl
        return table_options.schema_with(ddl, self._options())

    def reader(self, schema: Any) -> Any:
        """The plan of a batch read."""
        from ortoo.spark.reading.batch_read import BatchReader

        options = self._read_options(streaming=False, of_table=table_options.of_schema(schema))
        if options.view != "messages":
            from ortoo.spark.format import views

            return views.ViewReader(options, schema)
        return _ready(BatchReader(options, schema))

    def streamReader(self, schema: Any) -> Any:  # noqa: N802 - Spark's name
        """The source of a streaming query."""
        with _since("4.2", "streams are read"):  # admission control, AvailableNow
            from ortoo.spark.reading.stream_read import StreamReader

        return _ready(StreamReader(self._read_options(streaming=True), schema))

    def writer(self, schema: Any, overwrite: bool) -> Any:
        """The sink of a batch write."""
        from ortoo.spark.writing.batch_write import BatchWriter

        return _ready(BatchWriter(self._options(), schema, overwrite))

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
        """The sink of a streaming query."""
        with _since("4.1", "streams are written"):  # sinks that take Arrow
            from ortoo.spark.writing.stream_write import StreamWriter

        return _ready(StreamWriter(self._options(), schema, overwrite))

    def _read_options(
        self, *, streaming: bool, for_schema: bool = False, of_table: Mapping[str, str] = NO_OPTIONS
    ) -> ReadOptions:
        options = {**of_table, **self._options()}
        if for_schema:  # may be a stream, whose reader refuses the option
            options.pop("endingoffsets", None)
        return parse(options, streaming=streaming, for_schema=for_schema)

    def _options(self) -> dict[str, str]:
        return table_options.without_repetition({name.lower(): value for name, value in self.options.items()})


def _ready(part: Any) -> Any:
    """The reader or writer, after its modules were excluded from the garbage collections of its process."""
    freeze_modules()
    return part


@contextmanager
def _since(version: str, what: str) -> Iterator[None]:
    """Convert the ImportError of an older Spark into an error with the required version."""
    try:
        yield
    except ImportError as error:
        raise Unsupported(
            f"{what} with Spark {version} or newer; the installed Spark does not support it ({error})"
        ) from error
