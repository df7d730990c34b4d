"""lag: adds a sample to a history of the lag of groups, their speed, and stuck queues."""

import csv
import datetime
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from ortoo.spark.core.link import ClusterLink, link_to
from ortoo.spark.core.read_options import parse
from ortoo.spark.format.views import group_rows
from ortoo.spark.pipeline.runtime.progress import Say
from ortoo.spark.pipeline.runtime.report_page import ReportTable, new_figure, text_table, write_page
from ortoo.spark.pipeline.runtime.settings import PipelineSettings


class LagSample(NamedTuple):
    """The lag of one group in one topic at one time."""

    sampled_at_ms: int
    group: str
    topic: str
    lag: int
    committed: int
    """Sum of the committed offsets."""
    stuck_queues: int
    """Queues with a lag in which the group has no offset at all."""


def lag(settings: PipelineSettings, say: Say) -> list[LagSample]:
    """Measure the lag of groups, add it to lag.csv, and write lag.html and lag.png; returns the new samples."""
    folder = settings.output_folder("reports", settings.lag.output_path)
    link = link_to(settings.cluster)
    now = _take_sample(link, settings)
    file = folder / "lag.csv"
    history = [*_read(file), *now]
    _write(file, history)
    table = ReportTable("Now", ("group", "topic", "lag", "per second", "caught up in", "stuck queues"), _rows(history))
    page = write_page(
        folder,
        "lag",
        "Lag of consumer groups",
        f"{len({m.sampled_at_ms for m in history})} samples; lag counts stored messages that are not acknowledged.",
        [table],
        _figure(history),
    )
    for line in text_table(table):
        say(line)
    say(f"report: {page}")
    return now


def _take_sample(link: ClusterLink, settings: PipelineSettings) -> list[LagSample]:
    options = {**settings.cluster_options, "view": "groups", "groups": ",".join(settings.lag.groups)}
    now_ms = link.clock.now_ms()
    by_pair: dict[tuple[str, str], list[dict[str, int]]] = defaultdict(list)
    for row in group_rows(link, parse(options, streaming=False)):
        by_pair[row["group"], row["topic"]].append(row)
    return [
        LagSample(
            now_ms,
            group,
            topic,
            sum(row["lag"] for row in rows),
            sum(row["committed_offset"] or 0 for row in rows),
            sum(row["committed_offset"] is None and row["lag"] > 0 for row in rows),
        )
        for (group, topic), rows in sorted(by_pair.items())
    ]


def _rows(history: list[LagSample]) -> list[tuple[object, ...]]:
    """The newest sample of each group and topic, with the speed since the previous sample."""
    rows: list[tuple[object, ...]] = []
    for (group, topic), moments in _series(history):
        newest, speed, time_left = moments[-1], None, None
        if len(moments) > 1:
            seconds = max((newest.sampled_at_ms - moments[-2].sampled_at_ms) / 1000, 0.001)
            speed = (newest.committed - moments[-2].committed) / seconds
            falling = (moments[-2].lag - newest.lag) / seconds
            time_left = (
                "now" if not newest.lag else f"{newest.lag / falling:,.0f} s" if falling > 0 else "never, at this rate"
            )
        rows.append((group, topic, newest.lag, speed, time_left, newest.stuck_queues))
    return rows


def _series(history: list[LagSample]) -> list[tuple[tuple[str, str], list[LagSample]]]:
    """The samples of each group and topic."""
    series: dict[tuple[str, str], list[LagSample]] = defaultdict(list)
    for moment in history:
        series[moment.group, moment.topic].append(moment)
    return sorted(series.items())


def _read(file: Path) -> list[LagSample]:
    if not file.exists():
        return []
    with file.open(newline="") as source:
        return [
            LagSample(int(row[0]), row[1], row[2], int(row[3]), int(row[4]), int(row[5]))
            for row in list(csv.reader(source))[1:]
        ]


def _write(file: Path, history: list[LagSample]) -> None:
    waiting = file.with_suffix(".new")
    with waiting.open("w", newline="") as target:
        writer = csv.writer(target)
        writer.writerow(LagSample._fields)
        writer.writerows(history)
    waiting.replace(file)


def _figure(history: list[LagSample]) -> object:
    figure = new_figure()
    axes = figure.subplots()
    series = _series(history)
    for (group, topic), moments in series[:12]:
        times = [datetime.datetime.fromtimestamp(m.sampled_at_ms / 1000, datetime.UTC) for m in moments]
        axes.plot(times, [m.lag for m in moments], marker="o", label=f"{group} / {topic}")
    axes.set_ylabel("lag, messages")
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)
    if series:
        axes.legend()
    figure.autofmt_xdate()
    return figure
