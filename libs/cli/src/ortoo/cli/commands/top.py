"""`ortoo top`: what flows now, looked at again and again."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ortoo.cli.terminal.output import print_json, print_table
from ortoo.client import Admin, ClusterInfo, connect
from ortoo.common.process.clock import SystemClock

CLEAR = "\x1b[H\x1b[2J"
ROWS_MAX = 30


@dataclass(frozen=True, slots=True)
class TopicRow:
    """One topic at one look."""

    topic: str
    messages: int
    """Messages that are stored."""
    in_per_s: float
    """Messages stored a second since the look before."""


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen at one moment."""

    at_ms: int
    topics: Sequence[TopicRow]
    groups: int
    cluster: ClusterInfo


async def watch(addresses: Sequence[str], interval_s: float, count: int, *, as_json: bool) -> None:
    """Look for ever, or `count` times."""
    clock = SystemClock()
    before: Mapping[str, int] = {}
    before_ms = looks = 0
    async with connect(addresses) as mq:
        while True:
            ends, look = await _look(mq.admin, before, before_ms, clock.now_ms())
            before, before_ms = ends, look.at_ms
            if as_json:
                print_json(look)
            else:
                _show(look, clear=sys.stdout.isatty())
            looks += 1
            if looks == count:
                return
            await clock.sleep(interval_s)


async def _look(admin: Admin, before: Mapping[str, int], before_ms: int, at_ms: int) -> tuple[dict[str, int], Look]:
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
    return ends, Look(at_ms, rows, len(groups), cluster)


def _show(look: Look, *, clear: bool) -> None:
    if clear:
        print(CLEAR, end="")
    away = [item.name for item in (*look.cluster.enodes, *look.cluster.snodes) if not item.alive]
    trouble = f", AWAY: {', '.join(away)}" if away else ""
    enodes, snodes = len(look.cluster.enodes), len(look.cluster.snodes)
    print(f"{enodes} enodes, {snodes} snodes, {len(look.topics)} topics, {look.groups} groups{trouble}")
    print_table(
        ("TOPIC", "MESSAGES", "IN/S"), [(row.topic, row.messages, f"{row.in_per_s:.0f}") for row in look.topics]
    )
