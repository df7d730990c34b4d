"""The options of a write, and its columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ortoo.client import Codec
from ortoo.common.cluster.names import check_topic_name
from ortoo.common.errors import Invalid
from ortoo.common.groups.sinks import SinkIdentity
from ortoo.common.records.columns import Layout
from ortoo.spark.core.cluster_options import CLUSTER_OPTIONS, ClusterOptions
from ortoo.spark.core.columns import MESSAGE_TABLE, TYPES
from ortoo.spark.core.options import OptionReader, suggestion

KNOWN: Final = (
    *CLUSTER_OPTIONS, "topic", "tag", "messageGroup", "deliverySemantics", "sinkId", "jobId", "batchId",
    "extraColumns", "codec", "deliveryTimeoutMs", "inFlightBytes", "maxRatePerSecond", "invalidRowsTopic",
)  # fmt: skip
"""Every option of a write, as documented."""

COLUMNS: Final[Mapping[str, Sequence[str]]] = {
    "body": ("binary", "string"),
    "topic": ("string",),
    **{column.name: TYPES[column.field.layout] for column in MESSAGE_TABLE if column.field is not None},
    "enode": ("string",),
    "queue_id": TYPES[Layout.INT32],
}
"""Column to its allowed types; `body` is required, the others are optional."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The checked options of a write."""

    cluster: ClusterOptions
    topic: str
    tag: str
    message_group: str
    semantics: str
    sink_id: str
    job_id: str
    batch_id: int | None
    """The number of this batch of the job; None = 0, or Spark's number in `foreachBatch`."""
    codec: Codec
    delivery_timeout_ms: int
    in_flight_bytes: int
    rate_max: int
    invalid_rows_topic: str = ""
    """The topic for rows that cannot be sent; empty = such a row fails the task."""
    columns: tuple[str, ...] = ()
    """The columns of the rows."""

    @property
    def is_repeatable(self) -> bool:
        """Whether a repeated task sends the same batches with the same ids."""
        return self.semantics != "at-least-once"


def parse(options: Mapping[str, str], schema: Any) -> WriteOptions:
    """Parse and check the options of a write, and the columns in `schema`. Errors: Invalid with the expected value."""
    reader = OptionReader(options, KNOWN)
    columns = {field.name: field.dataType.simpleString() for field in schema.fields}
    extra = reader.choice("extraColumns", "refuse", "refuse", "properties") == "properties"
    _check_columns(columns, extra)
    reader.at_most_one("topic", "path")
    topic = reader.text("topic") or reader.text("path")
    if topic:
        check_topic_name(topic)
    elif "topic" not in columns:
        raise Invalid('missing topic; expected .option("topic", "orders") or a column `topic`', field="topic")
    if invalid_rows_topic := reader.text("invalidRowsTopic"):
        check_topic_name(invalid_rows_topic)
        if invalid_rows_topic == topic:
            raise Invalid(f"{topic} is the topic of the valid rows; name another topic", field="invalidRowsTopic")
    semantics = reader.choice("deliverySemantics", "at-least-once", "at-least-once", "idempotent", "exactly-once")
    reader.require("jobId", semantics != "at-least-once", "deliverySemantics=idempotent or exactly-once")
    reader.require("sinkId", semantics != "at-least-once", "deliverySemantics=idempotent or exactly-once")
    reader.require("batchId", bool(reader.given("jobId")), "jobId")
    if semantics == "exactly-once" and not topic:
        raise Invalid("exactly-once needs a single topic; use the option `topic` instead of a column", field="topic")
    if semantics != "at-least-once" and "born_at" not in columns:
        raise Invalid(
            f"{semantics} needs the column born_at, the creation time of a row, so that repeated tasks write equal "
            "rows",
            field="born_at",
        )
    SinkIdentity(reader.text("sinkId"), reader.text("jobId")).check()
    return WriteOptions(
        cluster=ClusterOptions.of(reader),
        topic=topic,
        tag=reader.text("tag"),
        message_group=reader.text("messageGroup"),
        semantics=semantics,
        sink_id=reader.text("sinkId"),
        job_id=reader.text("jobId"),
        batch_id=reader.number("batchId") if reader.given("batchId") else None,
        codec=Codec[reader.choice("codec", "none", "none", "zstd", "lz4").upper()],
        delivery_timeout_ms=reader.duration_ms("deliveryTimeoutMs", 120_000),
        in_flight_bytes=reader.size_bytes("inFlightBytes", 16 << 20),
        rate_max=reader.number("maxRatePerSecond"),
        invalid_rows_topic=invalid_rows_topic,
        columns=tuple(columns),
    )


def _check_columns(columns: Mapping[str, str], extra: bool) -> None:
    if "body" not in columns:
        raise Invalid(f"there is no column `body`{suggestion('body', columns)}", field="body")
    for name, kind in columns.items():
        expected = COLUMNS.get(name)
        if expected is None:
            if not extra:
                raise Invalid(
                    f"a message has no column {name!r}{suggestion(name, COLUMNS)} "
                    "(extraColumns=properties makes properties of such columns)",
                    field=name,
                )
            if not kind.startswith(
                ("string", "int", "bigint", "double", "float", "boolean", "date", "decimal", "smallint")
            ):
                raise Invalid(f"a {kind} cannot become a property; cast it to string", field=name)
        elif kind not in expected and not (kind.startswith("string") and "string" in expected):
            raise Invalid(f"it is {kind}; expected {' or '.join(expected)}", field=name)
