"""The options of a read."""

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ortoo.client import Filter, Sql
from ortoo.common.cluster.names import check_topic_name
from ortoo.common.errors import Invalid
from ortoo.spark.core.cluster_options import CLUSTER_OPTIONS, ClusterOptions
from ortoo.spark.core.columns import chosen_names
from ortoo.spark.core.offsets import LATEST, SourceOffsets, parsed_tree
from ortoo.spark.core.options import OptionReader

KNOWN: Final = (
    *CLUSTER_OPTIONS, "subscribe", "subscribePattern", "assign", "view", "groups", "tags", "sql",
    "startingOffsets", "startingOffsetsDefault", "endingOffsets", "startingTimestamp", "endingTimestamp",
    "startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy",
    "failOnDataLoss", "onDataLoss", "maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger",
    "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition", "maxQueuesPerTask",
    "columns", "consumerGroup",
    "fetchTimeoutMs", "metadataMaxAgeMs", "latestOffsetWaitMs",
)  # fmt: skip
"""Every option of a read, as documented."""
STREAM_ONLY: Final = (
    "maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay",
    "consumerGroup", "metadataMaxAgeMs", "latestOffsetWaitMs",
)  # fmt: skip
"""Options that apply only to streaming queries."""
_REMOVED: Final = {
    "filterPushdown": (
        "this option was removed, because Spark applies one query's filter to later queries of the same frame. "
        "Their rows would be missing. Remove it, and filter with the option tags or sql"
    ),
}
"""Removed options without a direct successor, and the reason."""
_DECODED_BY_SPARK: Final = {
    "bodyFormat": "ortoo.spark.format.bodies.text() or .json(...)",
    "valueSchema": 'ortoo.spark.format.bodies.json("id bigint, name string")',
    "onInvalid": "the argument on_invalid of ortoo.spark.format.bodies.json or .text",
}
"""Removed options and their replacements; Spark decodes bodies now."""

Tree = Mapping[Any, int]


@dataclass(frozen=True, slots=True)
class OffsetBound:
    """The start or the end of a read; exactly one field is set."""

    keyword: str = ""
    """earliest or latest."""
    group: str = ""
    """The committed offsets of this consumer group."""
    offsets: Tree | None = None
    """Queue to offset, -1 latest, -2 earliest; other queues use the default."""
    time_ms: int | None = None
    """The first message stored at or after this time."""
    times: Tree | None = None
    """Queue to such a time."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The checked options of a read."""

    cluster: ClusterOptions
    topics: tuple[str, ...]
    pattern: str
    assigned: Mapping[str, Any]
    view: str
    groups: tuple[str, ...]
    filter: Filter
    """Filter that the broker applies: a tag expression, or an SQL condition."""
    start: OffsetBound
    start_default: str
    end: OffsetBound
    time_strategy: str
    on_data_loss: str
    max_offsets: int
    max_bytes: int
    min_offsets: int
    max_delay_ms: int
    min_partitions: int
    max_records: int
    max_queues_per_task: int
    columns: tuple[str, ...]
    consumer_group: str
    fetch_timeout_ms: int
    metadata_max_age_ms: int
    latest_wait_ms: int

    def reads(self, topic: str) -> bool:
        """Whether these options name a topic."""
        if self.pattern:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.topics


def parse(options: Mapping[str, str], *, streaming: bool, for_schema: bool = False) -> ReadOptions:
    """Parse and check the options of a read. Errors: Invalid with the option and the expected value.

    `for_schema` accepts the options of streams and batch reads, because Spark requests the schema before it is known
    which of them the read is.
    """
    for name, why in _REMOVED.items():
        if name.lower() in map(str.lower, options):
            raise Invalid(why, field=name)
    for name, instead in _DECODED_BY_SPARK.items():
        if (value := options.get(name, options.get(name.lower()))) and value != "binary":
            raise Invalid(f'Spark decodes bodies; use frame.withColumn("value", {instead})', field=name)
    reader = OptionReader(options, (*KNOWN, "bodyFormat"))
    view = reader.choice("view", "messages", "messages", "groups", "deliveries")
    topics, pattern, assigned = _topics(reader, required=view == "messages")
    fail = reader.flag("failOnDataLoss", True)
    policy = reader.choice("onDataLoss", "fail" if fail else "earliest", "fail", "earliest", "latest")
    if reader.given("failOnDataLoss") and (policy == "fail") != fail:
        raise Invalid(
            f"this option contradicts failOnDataLoss={str(fail).lower()}; give only one of the two options",
            field="onDataLoss",
        )
    reader.at_most_one("tags", "sql")
    for name in STREAM_ONLY:
        reader.require(name, streaming or for_schema, "streaming queries (a batch read is bounded by endingOffsets)")
    start = _bound(reader, "starting", "latest" if streaming else "earliest")
    reader.require(
        "startingOffsetsDefault", not start.keyword and start.time_ms is None, "startingOffsets as JSON or group:NAME"
    )
    timed = start.time_ms is not None or start.times is not None
    reader.require("startingOffsetsByTimestampStrategy", timed, "startingTimestamp and startingOffsetsByTimestamp")
    reader.require("maxTriggerDelay", bool(reader.given("minOffsetsPerTrigger")), "minOffsetsPerTrigger")
    reader.require("groups", view != "messages", "views")
    max_offsets, min_offsets = reader.number("maxOffsetsPerTrigger"), reader.number("minOffsetsPerTrigger")
    if max_offsets and min_offsets > max_offsets:
        raise Invalid(f"this minimum is above maxOffsetsPerTrigger, {max_offsets}", field="minOffsetsPerTrigger")
    return ReadOptions(
        cluster=ClusterOptions.of(reader),
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        view=view,
        groups=reader.names("groups"),
        filter=Sql(reader.text("sql")) if reader.given("sql") else reader.text("tags", "*"),
        start=start,
        start_default=reader.choice("startingOffsetsDefault", "earliest", "earliest", "latest"),
        end=_ending(reader, streaming),
        time_strategy=reader.choice("startingOffsetsByTimestampStrategy", "error", "error", "latest"),
        on_data_loss=policy,
        max_offsets=max_offsets,
        max_bytes=reader.size_bytes("maxBytesPerTrigger"),
        min_offsets=min_offsets,
        max_delay_ms=reader.duration_ms("maxTriggerDelay", 15 * 60_000),
        min_partitions=reader.number("minPartitions"),
        max_records=reader.number("maxRecordsPerPartition"),
        max_queues_per_task=reader.number("maxQueuesPerTask", 16, low=1),
        columns=chosen_names(reader.names("columns")),
        consumer_group=reader.text("consumerGroup"),
        fetch_timeout_ms=reader.duration_ms("fetchTimeoutMs", 120_000),
        metadata_max_age_ms=reader.duration_ms("metadataMaxAgeMs", 100),
        latest_wait_ms=reader.duration_ms("latestOffsetWaitMs", 200),
    )


def _topics(reader: OptionReader, *, required: bool) -> tuple[tuple[str, ...], str, Mapping[str, Any]]:
    alternatives = "subscribe", "subscribePattern", "assign", "path"
    reader.at_most_one(*alternatives)
    if required and not reader.given(*alternatives):
        raise Invalid("missing topics; expected one of subscribe, subscribePattern and assign", field="subscribe")
    topics, pattern, assigned = (
        reader.names("subscribe") or reader.names("path"),
        reader.text(alternatives[1]),
        reader.json("assign"),
    )
    if pattern:
        try:
            re.compile(pattern)
        except re.error as error:
            raise Invalid(f"{pattern!r} is not a regular expression: {error}", field="subscribePattern") from None
    if assigned is not None:
        if not isinstance(assigned, dict):
            raise Invalid('expected {"orders": [0, 1]} or {"orders": {"enode-0": [0, 1]}}', field="assign")
        for topic, queues in assigned.items():
            for ids in queues.values() if isinstance(queues, dict) else (queues,):
                if not isinstance(ids, list) or not ids or not all(type(each) is int and each >= 0 for each in ids):
                    raise Invalid(f"the queues of {topic} are {ids!r}; expected a list such as [0, 1]", field="assign")
        topics = tuple(sorted(assigned))
    for topic in topics:
        check_topic_name(topic, "subscribe")
    return topics, pattern, assigned or {}


def _ending(reader: OptionReader, streaming: bool) -> OffsetBound:
    end = _bound(reader, "ending", "latest")
    if streaming and end != OffsetBound(keyword="latest"):
        raise Invalid("a stream has no end; use Trigger.AvailableNow, or a batch read", field="endingOffsets")
    if end.keyword == "earliest" or (end.offsets and min(end.offsets.values()) < LATEST):
        raise Invalid("a read cannot end at the earliest offset; expected latest or offsets", field="endingOffsets")
    if end.group:
        raise Invalid("a read cannot end at a group's offsets; expected latest or offsets", field="endingOffsets")
    return end


def _bound(reader: OptionReader, side: str, default: str) -> OffsetBound:
    """The start or end, given by one of three options. Errors: Invalid if more than one of them is given."""
    reader.at_most_one(f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets")
    time = reader.text(f"{side}Timestamp")
    if time:
        return OffsetBound(time_ms=_time_ms(time, f"{side}Timestamp"))
    times = reader.json(f"{side}OffsetsByTimestamp")
    if times is not None:
        return OffsetBound(times=parsed_tree(times, f"{side}OffsetsByTimestamp"))
    name = f"{side}Offsets"
    text = reader.text(name, default)
    if text.lower() in ("earliest", "latest"):
        return OffsetBound(keyword=text.lower())
    if text.startswith("group:"):
        group = text.removeprefix("group:").strip()
        if not group:
            raise Invalid("missing group name; expected for instance group:billing", field=name)
        return OffsetBound(group=group)
    if not text.startswith("{"):
        raise Invalid(
            f'{text!r}, expected earliest, latest, group:NAME, or `{{"topic": {{"enode": {{"0": 17}}}}}}`', field=name
        )
    tree = reader.json(name)
    return OffsetBound(offsets=parsed_tree(tree["q"] if SourceOffsets.is_json(tree) else tree, name))


def _time_ms(text: str, field: str) -> int:
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise Invalid(f"{text!r}; expected milliseconds since 1970 or 2026-01-31T12:00:00+00:00", field=field) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return int(moment.timestamp() * 1000)
