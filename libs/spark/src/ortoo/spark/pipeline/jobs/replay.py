"""replay: writes messages of the lake into a topic, in the order of their queues.

A repeated job adds only newer rows.
"""

import hashlib
from typing import Any

from ortoo.client import NotFound
from ortoo.common.errors import Invalid
from ortoo.common.process.clock import SystemClock
from ortoo.common.records.text_rules import DEAD_LETTER_PROPERTIES, SYSTEM_PROPERTIES
from ortoo.spark import register
from ortoo.spark.core.link import link_to
from ortoo.spark.pipeline.jobs.replay_account import START, Increment, newest_positions
from ortoo.spark.pipeline.runtime.progress import Say
from ortoo.spark.pipeline.runtime.settings import PipelineSettings
from ortoo.spark.writing.sink_progress import SinkProgress
from ortoo.spark.writing.write_options import COLUMNS

_NOT_COPIED = {
    "topic": "the job names the topic",
    "enode": "the broker chooses the queue of the new topic",
    "queue_id": "the broker chooses the queue of the new topic",
    "message_id": "the broker gives a copy its own id, because ids made of a position would name the original",
    "deliver_at": "the original was delivered at that time, so that the copy is not delayed again",
}
"""The columns that a copy does not take from its original, and the reasons. A copy expires when its original does."""


def replay(spark: Any, settings: PipelineSettings, say: Say) -> int:
    """Write the matching messages that the job has not written yet; returns their number.

    An interrupted increment is completed first. Then one more increment writes the rows that the lake has got
    since.
    """
    lake, job = settings.open_lake(), settings.replay
    if not job.topic:
        raise Invalid("missing topic; set `topic` in the table [replay]", field="replay.topic")
    job_id = job.job_id or _job_id(settings)
    last = Increment.read(lake, job_id)
    frame = lake.read(spark)  # after the account, so that it has every row of that increment
    if last is not None:
        last.check_same_job(job.topic, job.where, job.mark_property)
    account, link = SinkProgress(f"replay-{job_id}", job_id, job.topic), link_to(settings.cluster)
    if job.dry_run:
        return _dry_run(settings, frame, last, account, say)
    topic_id = _ensure_topic(settings)
    if last is not None:
        last.check_same_topic(topic_id)
    if last is None and account.is_committed(link, 0):
        say(
            f"job {job_id} was done by an older version, which did not store its last row. Nothing was added to "
            f"{job.topic}; set another job_id to replay from the first row"
        )
        return 0
    register(spark)
    count = 0
    if last is not None and not account.is_committed(link, last.number):
        say(f"job {job_id} was interrupted; its increment {last.number} is repeated")
        count = _write(settings, last, frame, account)
    increment = _next_increment(settings, job_id, topic_id, last, frame)
    if increment is not None:
        increment.write(lake)
        count += _write(settings, increment, frame, account)
    if increment is None and not count:
        say(f"job {job_id} was done before and the lake has no newer rows, so nothing was added to {job.topic}")
    else:
        say(f"replayed {count:,} messages into {job.topic} as job {job_id}; the next run adds only newer rows")
    return count


def _next_increment(
    settings: PipelineSettings, job_id: str, topic_id: int, last: Increment | None, frame: Any
) -> Increment | None:
    """The increment of the rows behind the last one; None if there are none."""
    job, end = settings.replay, newest_positions(frame)
    begin = last.end if last is not None else {}
    if not any(position > begin.get(queue, START) for queue, position in end.items()):
        return None
    number = last.number + 1 if last is not None else 0
    now_ms = SystemClock().now_ms()
    return Increment(
        job_id, job.topic, topic_id, job.where, job.mark_property, job.tasks, tuple(frame.columns), number,
        now_ms, begin, {**begin, **end},
    )  # fmt: skip


def _dry_run(settings: PipelineSettings, frame: Any, last: Increment | None, account: SinkProgress, say: Say) -> int:
    """Count the messages that the job would write."""
    count = 0
    if last is not None and not account.is_committed(link_to(settings.cluster), last.number):
        count = last.rows(frame).count()
    increment = _next_increment(settings, account.query_id, 0, last, frame)
    if increment is not None:
        count += increment.rows(frame).count()
    say(f"dry run: {count:,} messages would go to {settings.replay.topic} as job {account.query_id}")
    return int(count)


def _write(settings: PipelineSettings, increment: Increment, frame: Any, account: SinkProgress) -> int:
    """Write the rows of an increment, which are the same in each repetition; returns their number."""
    rows = increment.rows(frame)
    ordered = rows.repartition(increment.tasks, "topic", "enode", "queue_id").sortWithinPartitions(
        "topic", "enode", "queue_id", "stored_at", "offset"
    )
    columns = message_columns(list(increment.columns), increment.mark)
    writer = ordered.selectExpr(*columns).write.format("ortoo").mode("append")
    writer.options(**sink_options(settings, increment, account)).save()
    return int(rows.count())


def sink_options(settings: PipelineSettings, increment: Increment, account: SinkProgress) -> dict[str, str]:
    """The options of the write of an increment: a batch of the job with its own number."""
    return {
        **settings.cluster_options,
        "topic": increment.topic,
        "deliverySemantics": "exactly-once",
        "jobId": increment.job_id,
        "batchId": str(increment.number),
        "sinkId": account.sink_id,
        "maxRatePerSecond": str(-(-settings.replay.max_rate_per_second // increment.tasks)),
    }


_IS_SYSTEM_PROPERTY = (
    f"k in ({', '.join(repr(name) for name in sorted(SYSTEM_PROPERTIES))}) or startswith(k, '{DEAD_LETTER_PROPERTIES}')"
)
"""Properties that only servers write, in SQL. Archived retries and dead letters have them."""


def message_columns(names: list[str], mark: str) -> list[str]:
    """SQL expressions for the columns of the messages to send.

    `names` are the lake's columns. The property named `mark` gets the original topic, enode, queue and offset; an empty
    `mark` adds no property.
    """
    kept = [name for name in names if name in COLUMNS and name not in _NOT_COPIED]
    chosen = [f"`{name}`" for name in kept if name not in ("properties", "born_at")]
    chosen.append("coalesce(born_at, stored_at) as born_at" if "born_at" in names else "stored_at as born_at")
    place = "concat_ws('/', topic, enode, queue_id, `offset`)"
    given = "coalesce(properties, map())" if "properties" in names else "map()"
    sendable = f"map_filter(cast({given} as map<string,string>), (k, v) -> not ({_IS_SYSTEM_PROPERTY}))"
    if mark:
        kept_entries = f"map_filter({sendable}, (k, v) -> k <> '{mark}')"
        chosen.append(f"map_concat({kept_entries}, map('{mark}', {place})) as properties")
    elif "properties" in names:
        chosen.append(f"{sendable} as properties")
    return chosen


def _job_id(settings: PipelineSettings) -> str:
    """An id made of lake, condition and topic, so that a repeated job without an id adds nothing."""
    text = "\x1f".join((settings.lake.path, settings.replay.where, settings.replay.topic))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _ensure_topic(settings: PipelineSettings) -> int:
    """The id of the replay's topic. The setting `create_queue_count` creates a missing topic. Errors: NotFound."""
    job = settings.replay
    link = link_to(settings.cluster)
    try:
        return link.run(link.admin.describe_topic(job.topic)).topic.topic_id
    except NotFound:
        if not job.create_queue_count:
            raise
        return link.run(link.admin.ensure_topic(job.topic, queue_count=job.create_queue_count)).topic_id
