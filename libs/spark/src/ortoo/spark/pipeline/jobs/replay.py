"""replay: writes messages of the lake into a topic, in the order of their queues. Repeating a job adds nothing."""

import hashlib
from typing import Any

from ortoo.client import NotFound
from ortoo.common.errors import Invalid
from ortoo.common.records.text_rules import DEAD_LETTER_PROPERTIES, SYSTEM_PROPERTIES
from ortoo.spark import register
from ortoo.spark.core.link import link_to
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
    """Send the messages of the lake that match the settings to a topic; returns their number."""
    lake, job = settings.open_lake(), settings.replay
    if not job.topic:
        raise Invalid("missing topic; set `topic` in the table [replay]", field="replay.topic")
    frame = lake.read(spark)
    if job.where:
        frame = frame.where(job.where)
    count = int(frame.count())
    job_id = job.job_id or _job_id(settings)
    if job.dry_run:
        say(f"dry run: {count:,} messages would go to {job.topic} as job {job_id}")
        return count
    _ensure_topic(settings)
    account = SinkProgress(f"replay-{job_id}", job_id, job.topic)
    if account.is_committed(link_to(settings.cluster), 0):
        say(f"job {job_id} was done before, so nothing was added to {job.topic}; another job_id replays again")
        return count
    ordered = frame.repartition(job.tasks, "topic", "enode", "queue_id").sortWithinPartitions(
        "topic", "enode", "queue_id", "offset", "stored_at"
    )
    register(spark)
    options = {
        "address": settings.address,
        "topic": job.topic,
        "deliverySemantics": "exactly-once",
        "jobId": job_id,
        "sinkId": account.sink_id,
        "maxRatePerSecond": str(-(-job.max_rate_per_second // job.tasks)),
    }
    writer = ordered.selectExpr(*message_columns(frame.columns, job.mark_property)).write.format("ortoo")
    writer.options(**options).mode("append").save()
    say(f"replayed {count:,} messages into {job.topic} as job {job_id}; the same job again adds nothing")
    return count


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


def _ensure_topic(settings: PipelineSettings) -> None:
    job = settings.replay
    link = link_to(settings.cluster)
    try:
        link.run(link.admin.describe_topic(job.topic))
    except NotFound:
        if not job.create_queue_count:
            raise
        link.run(link.admin.ensure_topic(job.topic, queue_count=job.create_queue_count))
