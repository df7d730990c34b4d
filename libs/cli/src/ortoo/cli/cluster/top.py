"""`ortoo top`: current rates of topics, refreshed periodically."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ortoo.cli.terminal.output import Columns, CommandOutput, OutputTable
from ortoo.common.logs.counts import counted
from ortoo.common.process.clock import SystemClock

if TYPE_CHECKING:
    from ortoo.client import Admin, Client, ClusterInfo

ROWS_MAX = 30


@dataclass(frozen=True, slots=True)
class TopicRow:
    """The figures of one topic in one sample."""

    topic: str
    messages: int
    """Number of stored messages."""
    in_per_s: float
    """Messages stored per second since the previous sample."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One sample of the cluster: its topics, number of groups, and processes."""

    at_ms: int
    topics: Sequence[TopicRow]
    groups: int
    cluster: "ClusterInfo"


async def top(
    mq: "Client",
    interval_s: Annotated[float, typer.Option("--interval", min=0.2, help="Seconds between two samples.")] = 1.0,
    count: Annotated[int, typer.Option("-n", min=0, help="Stop after this number of samples; 0 = never.")] = 0,
) -> AsyncIterator[CommandOutput]:
    """Show topics, groups and processes as they change. Ctrl-C ends it."""
    clock = SystemClock()
    ends_before: Mapping[str, int] = {}
    before_ms = snapshots = 0
    while True:
        ends_before, snapshot = await _take_snapshot(mq.admin, ends_before, before_ms, clock.now_ms())
        before_ms = snapshot.at_ms
        columns: Columns = {"TOPIC": "topic", "MESSAGES": "messages", "IN/S": lambda row: f"{row.in_per_s:.0f}"}
        yield CommandOutput(snapshot, (_headline(snapshot), OutputTable(columns, snapshot.topics)), clears_screen=True)
        snapshots += 1
        if snapshots == count:
            return
        await clock.sleep(interval_s)


async def _take_snapshot(
    admin: "Admin", before: Mapping[str, int], before_ms: int, at_ms: int
) -> tuple[dict[str, int], Snapshot]:
    cluster, topics, groups = await asyncio.gather(admin.describe_cluster(), admin.list_topics(), admin.list_groups())
    described = await asyncio.gather(*(admin.describe_topic(topic.name) for topic in topics[:ROWS_MAX]))
    ends: dict[str, int] = {}
    rows = []
    for one in described:
        name = one.topic.name
        ends[name] = sum(queue.end_offset for queue in one.queues)
        stored = sum(queue.end_offset - queue.begin_offset for queue in one.queues)
        seconds = (at_ms - before_ms) / 1000
        rate = (ends[name] - before[name]) / seconds if name in before and seconds > 0 else 0.0
        rows.append(TopicRow(name, stored, round(rate, 1)))
    rows.sort(key=lambda row: (-row.in_per_s, -row.messages, row.topic))
    return ends, Snapshot(at_ms, rows, len(groups), cluster)


def _headline(snapshot: Snapshot) -> str:
    """The line above the tables: counts, and the names of processes that are away."""
    away = [item.name for item in (*snapshot.cluster.enodes, *snapshot.cluster.snodes) if not item.alive]
    trouble = f", AWAY: {', '.join(away)}" if away else ""
    enodes, snodes = len(snapshot.cluster.enodes), len(snapshot.cluster.snodes)
    counts = {"enode": enodes, "snode": snodes, "topic": len(snapshot.topics), "group": snapshot.groups}
    return ", ".join(counted(count, noun) for noun, count in counts.items()) + trouble
