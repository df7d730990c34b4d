"""The options of a read."""

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ortoo.client import Filter, Sql
from ortoo.common.cluster.names import check_topic_name
from ortoo.common.errors import Invalid
from ortoo.spark.core.columns import chosen_names
from ortoo.spark.core.link import CLUSTER_OPTIONS, Cluster
from ortoo.spark.core.offsets import LATEST, Offsets, parsed_tree
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
_SPARK_DOES: Final = {
    "bodyFormat": "ortoo.spark.format.bodies.text() or .json(...)",
    "valueSchema": 'ortoo.spark.format.bodies.json("id bigint, name string")',
    "onInvalid": "the argument on_invalid of ortoo.spark.format.bodies.json or .text",
}
"""Removed options and their replacements; Spark decodes bodies now."""

Tree = Mapping[Any, int]


@dataclass(frozen=True, slots=True)
class Bound:
    """The start or the end of a read; one of the fields is set."""

    word: str = ""
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
    """The options of a read, checked."""

    cluster: Cluster
    topics: tuple[str, ...]
    pattern: str
    assigned: Mapping[str, Any]
    view: str
    groups: tuple[str, ...]
    wanted: Filter
    """Filter that the broker applies: a tag expression, or an SQL condition."""
    start: Bound
    start_default: str
    end: Bound
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


def parse(options: Mapping[str, str], *, streaming: bool, for_schema: bool = False) -> ReadOptions:
    """Parse and check the options. Errors: Invalid with the option and the expected value.

    Spark requests the schema before it is known whether the read is a batch or a stream; `for_schema` accepts both.
    """
    for name, why in _REMOVED.items():
        if name.lower() in map(str.lower, options):
            raise Invalid(why, field=name)
    for name, instead in _SPARK_DOES.items():
        if (value := options.get(name, options.get(name.lower()))) and value != "binary":
            raise Invalid(f'Spark decodes bodies; use frame.withColumn("value", {instead})', field=name)
    take = OptionReader(options, (*KNOWN, "bodyFormat"))
    view = take.choice("view", "messages", "messages", "groups", "deliveries")
    topics, pattern, assigned = _topics(take, required=view == "messages")
    fail = take.flag("failOnDataLoss", True)
    policy = take.choice("onDataLoss", "fail" if fail else "earliest", "fail", "earliest", "latest")
    if take.given("failOnDataLoss") and (policy == "fail") != fail:
        raise Invalid(f"it contradicts failOnDataLoss={str(fail).lower()}; expected only one", field="onDataLoss")
    take.at_most_one("tags", "sql")
    for name in STREAM_ONLY:
        take.only_with(name, streaming or for_schema, "streaming queries (a batch read is bounded by endingOffsets)")
    start = _bound(take, "starting", "latest" if streaming else "earliest")
    take.only_with("startingOffsetsDefault", not start.word and start.time_ms is None, "offsets as JSON, or a group's")
    timed = start.time_ms is not None or start.times is not None
    take.only_with("startingOffsetsByTimestampStrategy", timed, "startingTimestamp and startingOffsetsByTimestamp")
    take.only_with("maxTriggerDelay", bool(take.given("minOffsetsPerTrigger")), "minOffsetsPerTrigger")
    take.only_with("groups", view != "messages", "views")
    max_offsets, min_offsets = take.number("maxOffsetsPerTrigger"), take.number("minOffsetsPerTrigger")
    if max_offsets and min_offsets > max_offsets:
        raise Invalid(f"it is more than maxOffsetsPerTrigger, {max_offsets}", field="minOffsetsPerTrigger")
    return ReadOptions(
        cluster=Cluster.of(take),
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        view=view,
        groups=take.names("groups"),
        wanted=Sql(take.text("sql")) if take.given("sql") else take.text("tags", "*"),
        start=start,
        start_default=take.choice("startingOffsetsDefault", "earliest", "earliest", "latest"),
        end=_ending(take, streaming),
        time_strategy=take.choice("startingOffsetsByTimestampStrategy", "error", "error", "latest"),
        on_data_loss=policy,
        max_offsets=max_offsets,
        max_bytes=take.size_bytes("maxBytesPerTrigger"),
        min_offsets=min_offsets,
        max_delay_ms=take.duration_ms("maxTriggerDelay", 15 * 60_000),
        min_partitions=take.number("minPartitions"),
        max_records=take.number("maxRecordsPerPartition"),
        max_queues_per_task=take.number("maxQueuesPerTask", 16, low=1),
        columns=chosen_names(take.names("columns")),
        consumer_group=take.text("consumerGroup"),
        fetch_timeout_ms=take.duration_ms("fetchTimeoutMs", 120_000),
        metadata_max_age_ms=take.duration_ms("metadataMaxAgeMs", 100),
        latest_wait_ms=take.duration_ms("latestOffsetWaitMs", 200),
    )


def _topics(take: OptionReader, *, required: bool) -> tuple[tuple[str, ...], str, Mapping[str, Any]]:
    ways = "subscribe", "subscribePattern", "assign", "path"
    take.at_most_one(*ways)
    if required and not take.given(*ways):
        raise Invalid("missing topics; expected one of subscribe, subscribePattern and assign", field="subscribe")
    topics, pattern, assigned = take.names("subscribe") or take.names("path"), take.text(ways[1]), take.json("assign")
    if pattern:
        try:
            re.compile(pattern)
        except re.error as error:
            raise Invalid(f"{pattern!r} is no regular expression: {error}", field="subscribePattern") from None
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


def _ending(take: OptionReader, streaming: bool) -> Bound:
    end = _bound(take, "ending", "latest")
    if streaming and end != Bound(word="latest"):
        raise Invalid("a stream has no end; use Trigger.AvailableNow, or a batch read", field="endingOffsets")
    if end.word == "earliest" or (end.offsets and min(end.offsets.values()) < LATEST):
        raise Invalid("a read cannot end at the earliest offset; expected latest or offsets", field="endingOffsets")
    if end.group:
        raise Invalid("a read cannot end at a group's offsets; expected latest or offsets", field="endingOffsets")
    return end


def _bound(take: OptionReader, side: str, default: str) -> Bound:
    """One of the three ways to give a bound. Errors: Invalid for two of them."""
    take.at_most_one(f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets")
    time = take.text(f"{side}Timestamp")
    if time:
        return Bound(time_ms=_time_ms(time, f"{side}Timestamp"))
    times = take.json(f"{side}OffsetsByTimestamp")
    if times is not None:
        return Bound(times=parsed_tree(times, f"{side}OffsetsByTimestamp"))
    name = f"{side}Offsets"
    text = take.text(name, default)
    if text.lower() in ("earliest", "latest"):
        return Bound(word=text.lower())
    if text.startswith("group:"):
        group = text.removeprefix("group:").strip()
        if not group:
            raise Invalid("missing group name; expected for instance group:billing", field=name)
        return Bound(group=group)
    if not text.startswith("{"):
        raise Invalid(
            f'{text!r}, expected earliest, latest, group:NAME, or `{{"topic": {{"enode": {{"0": 17}}}}}}`', field=name
        )
    tree = take.json(name)
    return Bound(offsets=parsed_tree(tree["q"] if Offsets.is_json(tree) else tree, name))


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
