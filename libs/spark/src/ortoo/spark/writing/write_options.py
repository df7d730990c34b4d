"""The options of a write, and its columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ortoo.client import Codec
from ortoo.common.cluster.names import check_topic_name
from ortoo.common.errors import Invalid
from ortoo.spark.core.link import CLUSTER_OPTIONS, Cluster
from ortoo.spark.core.options import OptionReader, did_you_mean

KNOWN: Final = (
    *CLUSTER_OPTIONS, "topic", "tag", "messageGroup", "deliverySemantics", "sinkId", "jobId", "extraColumns", "codec",
    "deliveryTimeoutMs", "inFlightBytes", "maxRatePerSecond",
)  # fmt: skip
"""Every option of a write, as documented."""

_TEXT = ("string",)
_NUMBER = ("int", "bigint", "smallint", "tinyint")
COLUMNS: Final[Mapping[str, Sequence[str]]] = {
    "body": ("binary", "string"),
    "topic": _TEXT,
    "tag": _TEXT,
    "keys": ("array<string>", "string"),
    "message_group": _TEXT,
    "properties": ("map<string,string>",),
    "message_id": _TEXT,
    "born_at": ("timestamp", "timestamp_ntz"),
    "deliver_at": ("timestamp", "timestamp_ntz"),
    "priority": _NUMBER,
    "trace_context": _TEXT,
    "born_host": _TEXT,
    "enode": _TEXT,
    "queue_id": _NUMBER,
}
"""Column to its allowed types; `body` is required, the others are optional."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a write, checked."""

    cluster: Cluster
    topic: str
    tag: str
    message_group: str
    semantics: str
    sink_id: str
    job_id: str
    codec: Codec
    delivery_timeout_ms: int
    in_flight_bytes: int
    rate_max: int
    columns: tuple[str, ...] = ()
    """The columns of the rows."""

    @property
    def repeatable(self) -> bool:
        """Whether a repeated task sends the same batches with the same ids."""
        return self.semantics != "at-least-once"


def parse(options: Mapping[str, str], schema: Any) -> WriteOptions:
    """Parse and check options and columns. Errors: Invalid with the problem and the expected value."""
    take = OptionReader(options, KNOWN)
    columns = {field.name: field.dataType.simpleString() for field in schema.fields}
    extra = take.choice("extraColumns", "refuse", "refuse", "properties") == "properties"
    _check_columns(columns, extra)
    take.at_most_one("topic", "path")
    topic = take.text("topic") or take.text("path")
    if topic:
        check_topic_name(topic)
    elif "topic" not in columns:
        raise Invalid('missing topic; expected .option("topic", "orders") or a column `topic`', field="topic")
    semantics = take.choice("deliverySemantics", "at-least-once", "at-least-once", "idempotent", "exactly-once")
    take.only_with("jobId", semantics != "at-least-once", "deliverySemantics=idempotent or exactly-once")
    take.only_with("sinkId", semantics != "at-least-once", "deliverySemantics=idempotent or exactly-once")
    if semantics == "exactly-once" and not topic:
        raise Invalid("exactly-once needs a single topic; use the option `topic` instead of a column", field="topic")
    if semantics != "at-least-once" and "born_at" not in columns:
        raise Invalid(
            f"{semantics} needs rows that are equal in a repetition; add their creation time, "
            'for instance .withColumn("born_at", current_timestamp())',
            field="born_at",
        )
    return WriteOptions(
        cluster=Cluster.of(take),
        topic=topic,
        tag=take.text("tag"),
        message_group=take.text("messageGroup"),
        semantics=semantics,
        sink_id=take.text("sinkId"),
        job_id=take.text("jobId"),
        codec=Codec[take.choice("codec", "none", "none", "zstd", "lz4").upper()],
        delivery_timeout_ms=take.duration_ms("deliveryTimeoutMs", 120_000),
        in_flight_bytes=take.size_bytes("inFlightBytes", 16 << 20),
        rate_max=take.number("maxRatePerSecond"),
        columns=tuple(columns),
    )


def _check_columns(columns: Mapping[str, str], extra: bool) -> None:
    if "body" not in columns:
        raise Invalid(f"there is no column `body`{did_you_mean('body', columns)}", field="body")
    for name, kind in columns.items():
        expected = COLUMNS.get(name)
        if expected is None:
            if not extra:
                raise Invalid(
                    f"a message has no column {name!r}{did_you_mean(name, COLUMNS)} "
                    "(extraColumns=properties makes properties of such columns)",
                    field=name,
                )
            if not kind.startswith(
                ("string", "int", "bigint", "double", "float", "boolean", "date", "decimal", "smallint")
            ):
                raise Invalid(f"a {kind} cannot become a property; cast it to string", field=name)
        elif kind not in expected and not (kind.startswith("string") and "string" in expected):
            raise Invalid(f"it is {kind}; expected {' or '.join(expected)}", field=name)
