"""A streaming query over the life of topics: no message is lost silently or read twice.

The source is the real one. Topics are created, deleted and restored, or created again. They lose messages by retention
or truncation. Enodes go down and drivers fail anywhere. The calls and limits are Spark's, in its order.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; run `make spark-setup`")

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import LongType, StructField, StructType

from ortoo.client import DataLoss, NotFound, Queue, Unavailable
from ortoo.common.errors import Invalid
from ortoo.spark.core import read_options
from ortoo.spark.core.group_offsets import commit_group
from ortoo.spark.core.offsets import SourceOffsets
from ortoo.spark.reading import bounds, stream_read
from ortoo.spark.reading.stream_offsets import StreamOffsets
from ortoo.spark.reading.stream_read import StreamReader
from tests.unit.spark.reading.topic_life import MESSAGE_BYTES, Crash, FakeLink, Spark, World

SCHEMA = StructType([StructField("offset", LongType())])
NAMES = ("t", "u")
EVENTS = (
    "", "", "", "send", "send", "grow", "expire", "delete", "create", "undelete", "away", "back", "cut", "crash",
    "recreate", "recreate", "purge",
)  # fmt: skip
"""Events that may happen between two calls of Spark."""


@contextmanager
def query_of(world: World, **options: str) -> Iterator[tuple[Spark, dict[str, str]]]:
    """A query with options, which may change between its runs."""
    link = FakeLink(world)
    chosen = {"address": "localhost:1", "latestOffsetWaitMs": "0", "metadataMaxAgeMs": "0"} | options
    with patch.object(stream_read, "link_to", lambda cluster: link):
        yield Spark(world, link, lambda: StreamReader(read_options.parse(chosen, streaming=True), SCHEMA)), chosen


def live(draw: Any, events: tuple[str, ...]) -> None:
    """One query and one drawn world; one of `events` may happen between two calls."""
    world = World()
    world.create("t")
    for at in range(draw(st.integers(0, 3))):
        world.send("t", at, draw(st.integers(1, 6)))
    policy = draw(st.sampled_from(["fail", "earliest", "latest"]))
    options = {"onDataLoss": policy, "consumerGroup": "g"}
    options |= draw(st.sampled_from([{"subscribe": "t"}, {"subscribePattern": ".*"}]))
    options |= draw(st.sampled_from([{}, {"maxOffsetsPerTrigger": "3"}]))
    options |= draw(st.sampled_from([{}, {"maxBytesPerTrigger": "40b"}]))
    options |= draw(st.sampled_from([{}, {"minOffsetsPerTrigger": "2", "maxTriggerDelay": "1h"}]))
    beyond = Queue("t", "a", 0)
    start = draw(st.sampled_from(["earliest", "latest", "beyond"]))
    offset = len(world.topics["t"].queues[beyond].messages) + 2
    options["startingOffsets"] = json.dumps({"t": {"a": {"0": offset}}}) if start == "beyond" else start
    with query_of(world, **options) as (spark, chosen):
        if start == "beyond":
            with pytest.raises((Invalid, DataLoss)) as refused:
                spark.run()
            assert refused.type is Invalid, "a start beyond the end is a mistake, not a loss"
            assert "cannot start at" in str(refused.value)
            chosen["startingOffsets"] = "earliest"
        runs = st.sampled_from(["available_now", "available_now", "default", "once"])
        for _ in range(draw(st.integers(1, 4))):
            spark.rows_max = rows_max(options)
            spark.happens = lambda: happen(draw, events, world, spark)
            try:
                spark.run(draw(runs))
            except (Crash, Unavailable, NotFound):
                pass  # killed, an enode was down too long, or a new query's topic was missing: it is run again
            except DataLoss:
                assert chosen["onDataLoss"] == "fail"
                chosen["onDataLoss"] = draw(st.sampled_from(["earliest", "latest"]))
        spark.happens = lambda: None
        world.away.clear()
        if "t" not in world.topics and not spark.offsets:
            return
        for _ in range(2):
            try:
                spark.run()
            except DataLoss:
                chosen["onDataLoss"] = "earliest"
                spark.run()
        judge(world, spark)


def rows_max(options: dict[str, str]) -> int:
    """The largest number of messages in a batch, by options in messages and in bytes."""
    by_bytes = 40 // MESSAGE_BYTES if "maxBytesPerTrigger" in options else 1_000
    return min(int(options.get("maxOffsetsPerTrigger", 1_000)), by_bytes)


def happen(  # noqa: C901 - one line for each thing that may happen
    draw: Any, events: tuple[str, ...], world: World, spark: Spark
) -> None:
    """One event, or none, between two calls of Spark; only a limited number."""
    if spark.events_left == 0:
        return
    what = draw(st.sampled_from(events))
    spark.link.now_s += draw(st.sampled_from([0, 1]))  # the source may use its cached state, or query again
    spark.events_left -= bool(what)
    name, at, count = draw(st.sampled_from(NAMES)), draw(st.integers(0, 3)), draw(st.integers(1, 6))
    if what == "crash":
        raise Crash
    if what == "create" and name not in world.topics:
        world.create(name)
    elif what == "undelete" and world.deleted:
        world.undelete(at)
    elif what == "purge" and world.deleted:
        world.purge(at)
    elif what == "away":
        world.away.add("ab"[at % 2])
    elif what == "back":
        world.away.clear()
    elif name in world.topics:
        topic = world.topics[name]
        queue, life = sorted(topic.queues.items())[at % len(topic.queues)]
        if what == "cut":
            cut(world, spark, topic.topic_id, queue, count)
        elif what == "send" and spark.position(topic.topic_id, queue) <= len(life.messages):
            world.send(name, at, count)  # not onto a truncated end that no call has seen: it could not be detected
        elif what == "grow":
            world.grow(name)
        elif what in ("expire", "delete"):
            world.expire(name, at, count) if what == "expire" else world.delete(name)
        elif what == "recreate":
            world.delete(name)
            world.create(name)


def cut(world: World, spark: Spark, topic_id: int, queue: Queue, count: int) -> None:
    """Truncate a queue. Messages that no checkpoint has reached cannot be missed."""
    life = world.topics[queue.topic].queues[queue]
    gone = life.messages[max(len(life.messages) - count, life.begin) :]
    del life.messages[len(life.messages) - len(gone) :]
    ever = world.ever.get((topic_id, queue), {})
    spark.reported |= {number for number in gone if ever[number] >= spark.position(topic_id, queue)}


def judge(world: World, spark: Spark) -> None:
    """Each message of the query was read once, or is reported as lost; batches keep to limits."""
    rows = Counter(number for batch in spark.batches for number in batch)
    assert not {number for number, times in rows.items() if times > 1}, "these came twice"
    for place, begin in spark.owed.items():
        for number, at in world.ever.get(place, {}).items():
            assert at < begin or number in rows or number in spark.reported, f"{place} {at} is lost in silence"
    end = SourceOffsets.of_json(spark.offsets[-1])
    for queue, offset in end.queues.items():
        topic = world.topics.get(queue.topic)
        if topic is not None and len(spark.offsets) > 2 and end != SourceOffsets.of_json(spark.offsets[0]):
            assert world.group.get(queue) == offset, "the group is not where the query is"


@given(st.data())
@settings(max_examples=150, deadline=None, report_multiple_bugs=False, suppress_health_check=[HealthCheck.too_slow])
def test_nothing_is_lost_in_silence_and_nothing_comes_twice(data: st.DataObject) -> None:
    """For any events, a message that the checkpoint has passed was read once, or its loss was reported."""
    live(data.draw, EVENTS)


def unchecked_start(link: Any, options: Any, state: Any) -> dict[Queue, int]:
    """The old defect: an offset beyond the end is accepted."""
    return bounds._resolved(link, options.start, state, "startingOffsets", "earliest")


def silent_about_patterns(self: StreamOffsets, at: SourceOffsets, held: Any) -> Any:
    """The old defect, for patterns: a deleted topic is not reported."""
    moved, losses = MOVED(self, at, held)
    return moved, tuple(loss for loss in losses if loss.reason != "the topic was deleted")


def target_by_name(self: StreamOffsets, queue: Queue, offset: int, held: Any) -> int:
    """The old defect: the end of an AvailableNow run applies to any topic that has the name now."""
    end = held.ranges[queue].end if queue in held.ranges else offset
    return max(end if self.target is None else self.target.queues.get(queue, offset), offset)


def unlimited_by_bytes(self: StreamReader) -> Any:
    """The old defect: a limit in bytes alone is not passed to Spark."""
    return ReadMaxRows(self._options.max_offsets) if self._options.max_offsets else ReadAllAvailable()


def start_unstored(self: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> Any:
    """A defect: the first batch does not know where it begins."""
    return PARTITIONS(self, start, {name: value for name, value in end.items() if name != "s"})


def group_one_batch_late(self: StreamReader, end: dict[str, Any]) -> None:
    """The old defect: the group moves when Spark calls `commit`, which happens late or never."""
    commit_group(self._link(), "g", SourceOffsets.of_json(end).queues)


MOVED = StreamOffsets._move
PARTITIONS = StreamReader.partitions


@pytest.mark.parametrize(
    ("defect", "events", "old"),
    [
        ("no limit in bytes", ("", "send"), [(StreamReader, "getDefaultReadLimit", unlimited_by_bytes)]),
        ("start beyond the end", ("",), [(stream_read, "start_offsets", unchecked_start)]),
        ("deleted topic unreported", ("", "send", "delete"), [(StreamOffsets, "_move", silent_about_patterns)]),
        ("end of another topic", ("", "recreate"), [(StreamOffsets, "_end", target_by_name)]),
        ("start unstored", ("", "send", "crash"), [(StreamReader, "partitions", start_unstored)]),
        (
            "group moves late",
            ("",),
            [(StreamReader, "_commit_group", lambda *_: None), (StreamReader, "commit", group_one_batch_late)],
        ),
    ],
)
def test_each_mend_is_missed_when_it_is_taken_out(
    defect: str, events: tuple[str, ...], old: list[tuple[Any, str, Callable[..., Any]]]
) -> None:
    """With an old defect, random lives that include its events detect it."""

    @given(st.data())
    @settings(
        max_examples=1_500, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    def found(data: st.DataObject) -> None:
        live(data.draw, events)

    with ExitStack() as patches:
        for place, name, function in old:
            patches.enter_context(patch.object(place, name, function))
        with pytest.raises(BaseException) as raised:
            found()
    assert "life.py" in str(raised.traceback[-1].path), defect


def test_limits_reach_spark_as_it_asks_for_them() -> None:
    """Spark passes on the limit of the source. It never passes ReadAllAvailable, which is left to Trigger.Once."""
    world = World()
    world.create("t")
    for options, limit in (
        ({"maxBytesPerTrigger": "1k"}, ReadMaxBytes(1_024)),
        ({"maxOffsetsPerTrigger": "7"}, ReadMaxRows(7)),
        ({"maxOffsetsPerTrigger": "7", "maxBytesPerTrigger": "1k"}, ReadMaxRows(7)),
    ):
        with query_of(world, subscribe="t", **options) as (_, chosen):
            reader = StreamReader(read_options.parse(chosen, streaming=True), SCHEMA)
            assert reader.getDefaultReadLimit() == limit
    with query_of(world, subscribe="t") as (_, chosen):
        reader = StreamReader(read_options.parse(chosen, streaming=True), SCHEMA)
        assert not isinstance(reader.getDefaultReadLimit(), ReadAllAvailable)


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_first_batch_is_repeated_after_a_topic_was_deleted(start: str) -> None:
    """The loss is reported, the other topic is read, and the group follows."""
    world = World()
    for name in NAMES:
        world.create(name)
        world.send(name, 0, 3)
    options = {"subscribe": ",".join(NAMES), "startingOffsets": start, "onDataLoss": "earliest", "consumerGroup": "g"}
    with query_of(world, **options) as (spark, _):
        with patch.object(spark, "_batch", side_effect=Crash), pytest.raises(Crash):
            spark.run()
        world.delete("u")
        spark.run()
        assert [len(batch) for batch in spark.batches] == [3 if start == "earliest" else 0]
        assert bool(spark.reported) == (start == "earliest")
        assert world.group[Queue("t", "a", 0)] == 3
        judge(world, spark)


@pytest.mark.parametrize("is_restorable", [True, False])
def test_a_deleted_topic_leaves_the_offsets_when_it_cannot_be_restored(is_restorable: bool) -> None:
    """Its loss is reported. A topic that is restored continues at its offset."""
    world = World()
    for name in NAMES:
        world.create(name)
        world.send(name, 0, 3)
    with query_of(
        world, subscribePattern=".*", onDataLoss="earliest", startingOffsets="earliest", consumerGroup="g"
    ) as (
        spark,
        _,
    ):
        spark.run()
        world.send("u", 0, 2)
        world.delete("u")
        if not is_restorable:
            world.purge(0)
        spark.run()
        spark.run()
        held = SourceOffsets.of_json(spark.offsets[-1])
        assert {queue.topic for queue in held.queues} == ({"t", "u"} if is_restorable else {"t"})
        assert set(held.topic_ids) == ({"t", "u"} if is_restorable else {"t"})
        assert spark.reported
        judge(world, spark)
