"""The options of a read."""

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ortoo.common.errors import Invalid
from ortoo.spark.core.columns import chosen_names
from ortoo.spark.core.offsets import LATEST, parsed_tree
from ortoo.spark.core.options import OptionReader

KNOWN: Final = (
    "address", "subscribe", "subscribePattern", "assign", "view", "groups",
    "startingOffsets", "startingOffsetsDefault", "endingOffsets", "startingTimestamp", "endingTimestamp",
    "startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy",
    "failOnDataLoss", "onDataLoss", "maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger",
    "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition", "maxQueuesPerTask",
    "columns", "bodyFormat", "valueSchema", "onInvalid", "consumerGroup", "filterPushdown",
    "fetchTimeoutMs", "metadataMaxAgeMs", "latestOffsetWaitMs",
)  # fmt: skip
"""Every option of a read, as documents write it."""

Tree = Mapping[Any, int]


@dataclass(frozen=True, slots=True)
class Bound:
    """Where reading starts or ends: one of the fields is set."""

    word: str = ""
    """earliest or latest."""
    group: str = ""
    """The committed offsets of this consumer group."""
    offsets: Tree | None = None
    """Queue to offset, -1 latest, -2 earliest; queues left out take the default."""
    time_ms: int | None = None
    """The first message stored at or after this time."""
    times: Tree | None = None
    """Queue to such a time."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a read was asked for, checked."""

    addresses: tuple[str, ...]
    topics: tuple[str, ...]
    pattern: str
    assigned: Mapping[str, Any]
    view: str
    groups: tuple[str, ...]
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
    body_format: str
    value_ddl: str | None
    on_invalid: str
    consumer_group: str
    filter_pushdown: bool
    fetch_timeout_ms: int
    metadata_max_age_ms: int
    latest_wait_ms: int


def parse(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Read and check the options. Errors: Invalid, naming the option and what was expected."""
    take = OptionReader(options, KNOWN)
    view = take.choice("view", "messages", "messages", "groups", "deliveries")
    topics, pattern, assigned = _topics(take, required=view == "messages")
    body_format = take.choice("bodyFormat", "binary", "binary", "utf8", "json")
    value_ddl = take.text("valueSchema") or None
    if body_format == "json" and value_ddl is None:
        raise Invalid(
            'bodyFormat=json needs the fields, such as valueSchema="id bigint, name string"', field="valueSchema"
        )
    if body_format != "json" and value_ddl is not None:
        raise Invalid("it is for bodyFormat=json alone", field="valueSchema")
    fail = take.flag("failOnDataLoss", True)
    start_default = take.choice("startingOffsetsDefault", "earliest", "earliest", "latest")
    return ReadOptions(
        addresses=take.addresses(),
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        view=view,
        groups=take.names("groups"),
        start=_bound(take, "starting", "latest" if streaming else "earliest"),
        start_default=start_default,
        end=_ending(take, streaming),
        time_strategy=take.choice("startingOffsetsByTimestampStrategy", "error", "error", "latest"),
        on_data_loss=take.choice("onDataLoss", "fail" if fail else "earliest", "fail", "earliest", "latest"),
        max_offsets=take.number("maxOffsetsPerTrigger"),
        max_bytes=take.number("maxBytesPerTrigger"),
        min_offsets=take.number("minOffsetsPerTrigger"),
        max_delay_ms=take.duration_ms("maxTriggerDelay", 15 * 60_000),
        min_partitions=take.number("minPartitions"),
        max_records=take.number("maxRecordsPerPartition"),
        max_queues_per_task=take.number("maxQueuesPerTask", 16, low=1),
        columns=chosen_names(take.names("columns"), with_value=body_format == "json"),
        body_format=body_format,
        value_ddl=value_ddl,
        on_invalid=take.choice("onInvalid", "fail", "fail", "null", "replace"),
        consumer_group=take.text("consumerGroup"),
        filter_pushdown=take.flag("filterPushdown", False),
        fetch_timeout_ms=take.duration_ms("fetchTimeoutMs", 120_000),
        metadata_max_age_ms=take.duration_ms("metadataMaxAgeMs", 100),
        latest_wait_ms=take.duration_ms("latestOffsetWaitMs", 200),
    )


def _topics(take: OptionReader, *, required: bool) -> tuple[tuple[str, ...], str, Mapping[str, Any]]:
    topics, pattern, assigned = take.names("subscribe"), take.text("subscribePattern"), take.json("assign")
    if not topics and take.text("path"):
        topics = take.names("path")
    given = [
        name for name, value in (("subscribe", topics), ("subscribePattern", pattern), ("assign", assigned)) if value
    ]
    if len(given) > 1 or (required and not given):
        raise Invalid(
            f"{' and '.join(given) or 'nothing'} given; give exactly one of subscribe, subscribePattern and assign",
            field=given[0] if given else "subscribe",
        )
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
    return topics, pattern, assigned or {}


def _ending(take: OptionReader, streaming: bool) -> Bound:
    end = _bound(take, "ending", "latest")
    if streaming and end != Bound(word="latest"):
        raise Invalid("a stream has no end; use Trigger.AvailableNow, or a batch read", field="endingOffsets")
    if end.word == "earliest" or (end.offsets and min(end.offsets.values()) < LATEST):
        raise Invalid("a read cannot end at the earliest offset; give latest or offsets", field="endingOffsets")
    if end.group:
        raise Invalid("a read cannot end at a group's offsets; give latest or offsets", field="endingOffsets")
    return end


def _bound(take: OptionReader, side: str, default: str) -> Bound:
    """One of the three ways to say where; the time beats the times of queues, and these the offsets, as in Kafka."""
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
            raise Invalid("group: names no group; write group:billing", field=name)
        return Bound(group=group)
    if not text.startswith("{"):
        raise Invalid(
            f'{text!r}; expected earliest, latest, group:NAME, or {{"topic": {{"enode": {{"0": 17}}}}}}', field=name
        )
    tree = take.json(name)
    return Bound(offsets=parsed_tree(tree.get("q", tree), name))


def _time_ms(text: str, field: str) -> int:
    if text.isdigit():
        return int(text)
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise Invalid(f"{text!r}; expected milliseconds since 1970 or 2026-01-31T12:00:00+00:00", field=field) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return int(moment.timestamp() * 1000)
