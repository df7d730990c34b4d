"""Views: tables with the present lag of groups, or with the messages that wait for a retry or were parked.

For example:

    spark.read.format("ortoo").option("view", "groups").load()
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ortoo.client import NotFound
from ortoo.common.errors import Invalid
from ortoo.common.groups.sinks import is_sink_group
from ortoo.spark.arrow.schema import utc_schema
from ortoo.spark.core.link import ClusterLink, link_to
from ortoo.spark.core.read_options import ReadOptions
from ortoo.spark.reading.topic_state import topic_names

RETRY: Final = "%RETRY%"
DEAD_LETTER: Final = "%DLQ%"
DDL: Final[Mapping[str, str]] = {
    "groups": (
        "group string, topic string, enode string, queue_id int, committed_offset bigint, end_offset bigint, "
        "lag bigint, seen_at timestamp"
    ),
    "deliveries": (
        "group string, topic string, state string, enode string, queue_id int, messages bigint, begin_offset bigint, "
        "end_offset bigint, seen_at timestamp"
    ),
}
"""The columns of each view, in Spark's DDL."""


class ViewReader(DataSourceReader):
    """Reads a view of the cluster (groups or deliveries) as one small task."""

    def __init__(self, options: ReadOptions, schema: Any) -> None:
        """Read columns of a view. Errors: Invalid for a column that the view does not have."""
        self._options = options
        self._schema = utc_schema(schema)
        self._names = list(self._schema.names)
        known = [part.split()[0] for part in DDL[options.view].split(", ")]
        if unknown := [name for name in self._names if name not in known]:
            raise Invalid(
                f"the view {options.view} has no column {unknown[0]!r}; it has {', '.join(known)}", field="view"
            )

    def partitions(self) -> Sequence[Any]:
        """The only task of the view."""
        return [InputPartition(0)]

    def read(self, partition: Any) -> Iterator[Any]:
        """Query the cluster, and yield the rows of the view as one Arrow batch."""
        del partition
        link = link_to(self._options.cluster)
        rows = group_rows(link, self._options) if self._options.view == "groups" else delivery_rows(link, self._options)
        now_us = link.clock.now_ms() * 1000
        columns = [
            pa.array([row.get(name, now_us if name == "seen_at" else None) for row in rows], kind)
            for name, kind in zip(self._names, self._schema.types, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=self._schema)


def group_rows(link: ClusterLink, options: ReadOptions) -> list[dict[str, Any]]:
    """Rows of the view `groups`: the committed offset and the lag of each group in each queue of each topic.

    Without the option `groups`, topics in which a group has no offset are left out.
    """
    groups = options.groups or tuple(
        group.name for group in link.run(link.admin.list_groups()) if not is_sink_group(group.name)
    )
    topics = topic_names(link, options) if options.topics or options.pattern else _all_topics(link)
    rows = []
    for group in groups:
        for topic in topics:
            try:
                lag = link.run(link.admin.describe_lag(group, topic))
            except NotFound:
                continue
            if not options.groups and all(item.committed_offset < 0 for item in lag.queues):
                continue
            rows += [
                {
                    "group": group,
                    "topic": topic,
                    "enode": item.queue.enode,
                    "queue_id": item.queue.queue_id,
                    "committed_offset": item.committed_offset if item.committed_offset >= 0 else None,
                    "end_offset": item.end_offset,
                    "lag": item.lag_messages,
                }
                for item in lag.queues
            ]
    return rows


def delivery_rows(link: ClusterLink, options: ReadOptions) -> list[dict[str, Any]]:
    """One row for each queue of a retry topic or dead-letter topic, with the number of its messages."""
    rows = []
    for topic in _all_topics(link):
        for prefix, state in ((RETRY, "retry"), (DEAD_LETTER, "dead")):
            group = topic.removeprefix(prefix)
            if topic == group or (options.groups and group not in options.groups):
                continue
            rows += [
                {
                    "group": group,
                    "topic": topic,
                    "state": state,
                    "enode": item.queue.enode,
                    "queue_id": item.queue.queue_id,
                    "messages": item.end_offset - item.begin_offset,
                    "begin_offset": item.begin_offset,
                    "end_offset": item.end_offset,
                }
                for item in link.run(link.admin.describe_topic(topic)).queues
            ]
    return rows


def _all_topics(link: ClusterLink) -> tuple[str, ...]:
    return tuple(sorted(item.name for item in link.run(link.admin.list_topics())))
